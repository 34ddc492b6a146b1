"""Saved runs and sweeps below one directory, read only. The browser names them by number, never by path."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iclflow.comparison import compare_one
from iclflow.errors import IclflowError
from iclflow.explorer.detail import algorithms, detail_of, thinned
from iclflow.explorer.theory_view import TheoryView, times
from iclflow.prediction import Prediction
from iclflow.run import Run
from iclflow.theory.landscape import plateau_losses

__all__ = ["Saved", "Shown"]

MOST, DEPTH, SEEDS = 500, 3, 20


@dataclass(frozen=True)
class Shown:
    view: TheoryView
    seeds: list[dict[str, Any]]
    detail: dict[str, Any] | None
    words: str


class Saved:
    """What was found when the page was opened."""

    def __init__(self, root: Path | None):
        self.entries: list[tuple[str, Path, dict[str, Any] | None]] = []
        if root is not None:
            self.entries = list(found_below(root))[:MOST]

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.entries]

    def show(self, number: Any) -> Shown | None:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self.entries):
            return None
        name, path, where = self.entries[number]
        try:
            return show_run(path, name) if where is None else show_sweep(path, where, name)
        except IclflowError as error:
            return Shown(empty_view(np.array([1.0])), [], None, f"{name}: {error}")


def found_below(root: Path) -> Any:
    from iclflow.sweeps.store import is_sweep

    places = [root, *(p for p in sorted(root.rglob("*")) if p.is_dir() and len(p.relative_to(root).parts) <= DEPTH)]
    for path in places:
        if path.is_symlink() or any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        name = str(path.relative_to(root)) if path != root else path.resolve().name
        if is_sweep(path):
            yield from sweep_points(path, name)
        elif (path / "summary.json").is_file():
            yield name, path, None


def sweep_points(path: Path, name: str) -> Any:
    """One entry a point of the grid; its seeds are shown together."""
    from iclflow.opening import load

    try:
        sweep = load(path)
    except IclflowError:
        return
    axes = [str(d) for d in sweep.data["status"].dims if d != "seed"]
    for index in np.ndindex(*(sweep.data.sizes[a] for a in axes)):
        at = dict(zip(axes, index, strict=True))
        words = ", ".join(
            f"{a}={sweep.data[a].values[i]}" if a in sweep.data.coords else f"{a} {i}" for a, i in at.items()
        )
        yield f"{name}: {words or 'all'}", path, at


def show_run(path: Path, name: str) -> Shown:
    from iclflow.run_files import load_run

    run = load_run(path)
    first = run.select(run.seeds[0])
    view = view_of(first)
    seeds = [curve(run.select(seed)) for seed in run.seeds[:SEEDS]]
    detail = None
    if run.model.kind in ("merged", "separate") and run.experiment.data is None:
        detail = {**detail_of(first, view.drops).payload(), "algorithms": algorithms(first)}
    return Shown(view, seeds, detail, f"{name}: {run.status}, read only; move a control to go back")


def show_sweep(path: Path, where: dict[str, int], name: str) -> Shown:
    from iclflow.opening import load

    sweep = load(path)
    data = sweep.data.isel(where)
    seeds = []
    for i in range(min(data.sizes.get("seed", 1), SEEDS)):
        one = data.isel(seed=i) if "seed" in data.dims else data
        time, loss = (np.asarray(one[n].values, float) if n in one else np.array([]) for n in ("curve_time", "loss"))
        good = np.isfinite(loss) & np.isfinite(time)
        seeds.append({"time": time[good].tolist(), "loss": loss[good].tolist(), "status": "saved"})
    coordinates = {a: sweep.data[a].values[i] for a, i in where.items() if a in sweep.data.coords}
    first = {} if "seed" not in sweep.data.dims else {"seed": sweep.data["seed"].values[0]}
    experiment = sweep.experiment(**coordinates, **first)
    end = max((s["time"][-1] for s in seeds if s["time"]), default=1.0)
    levels = plateau_losses(experiment.task) if experiment.task.icl_fraction == 1 else np.array([1.0])
    return Shown(empty_view(levels, end), seeds, None, f"{name}: a sweep, read only; move a control to go back")


def curve(run: Run) -> dict[str, Any]:
    time, loss = thinned(run)
    return {"time": time, "loss": loss, "status": run.status}


def view_of(run: Run) -> TheoryView:
    """Theory from the run's own initial weights and moments, where there is one."""
    try:
        found: Prediction = compare_one(run, None).prediction
    except IclflowError as error:
        levels = plateau_losses(run.task) if run.task.icl_fraction == 1 else np.array([float(run.loss.values[0])])
        return empty_view(levels, float(run.time.values[-1]), str(error))
    time = times(found)
    return TheoryView(
        time, found.loss(time), found.levels, found.drop_times, found.directions, [""] * len(time), "", found
    )


def empty_view(levels: np.ndarray, end: float = 1.0, note: str = "") -> TheoryView:
    time = np.geomspace(max(end, 1e-3) * 1e-4, max(end, 1e-3), 50)
    return TheoryView(time, None, levels, np.array([]), np.array([], int), [""] * 50, note, None)
