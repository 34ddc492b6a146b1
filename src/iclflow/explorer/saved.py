"""Saved runs and sweeps below one directory, read only. The browser refers to them by number, never by path."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iclflow.comparison.comparing import compare_one
from iclflow.errors import BadInput, IclflowError
from iclflow.explorer.detail import Detail, SeedCurve, curve_of, cut_down, detail_of, probed
from iclflow.explorer.theory_view import TheoryView, full_view, levels_only, usable
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.theory.landscape import plateau_losses

__all__ = ["Saved", "Shown"]

MOST, DEPTH, SEEDS = 500, 3, 20
Entry = tuple[str, Path, dict[str, int] | None]  # name, directory, and the place on the grid if it is a sweep


@dataclass(frozen=True)
class Shown:
    """What the page shows of a saved run or of one point of a sweep."""

    view: TheoryView
    seeds: list[SeedCurve]
    detail: Detail | None
    words: str
    python: str = ""


class Saved:
    """The runs and sweeps that were there when the server was started."""

    def __init__(self, root: Path | None) -> None:
        self.entries: list[Entry] = [] if root is None else list(found_below(root))[:MOST]

    @property
    def names(self) -> list[str]:
        """The names to choose from."""
        return [name for name, _, _ in self.entries]

    def show(self, number: object) -> Shown | None:
        """The entry with this number, or an explanation why it cannot be read; None if there is no such entry."""
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self.entries):
            return None
        name, path, where = self.entries[number]
        try:
            return show_run(path, name) if where is None else show_sweep(path, where, name)
        except IclflowError as error:
            return Shown(levels_only(np.array([1.0]), ""), [], None, f"{name}: {error}")


def found_below(root: Path) -> Iterator[Entry]:
    """Every run, and every point of every sweep, below a directory."""
    from iclflow.sweeps.store.protocol import is_sweep

    for path in directories(root, DEPTH):
        name = str(path.relative_to(root)) if path != root else path.resolve().name
        if is_sweep(path):
            yield from sweep_points(path, name)
        elif (path / "summary.json").is_file():
            yield name, path, None


def directories(root: Path, depth: int) -> Iterator[Path]:
    """Directories down to a depth, in order, without links, hidden ones and those that may not be read."""
    for place, below, _ in os.walk(root):
        path = Path(place)
        yield path
        deep = len(path.relative_to(root).parts) >= depth
        below[:] = [] if deep else sorted(n for n in below if not n.startswith(".") and not (path / n).is_symlink())


def sweep_points(path: Path, name: str) -> Iterator[Entry]:
    """One entry per point of the grid; its seeds are shown together."""
    from iclflow.sweeps.load import load

    try:
        sweep = load(path)
    except IclflowError:
        return
    axes = [str(d) for d in sweep.data["status"].dims if d != "seed"]
    for index in np.ndindex(*(sweep.data.sizes[a] for a in axes)):
        at = dict(zip(axes, index, strict=True))
        point = ", ".join(
            f"{a}={sweep.data[a].values[i]}" if a in sweep.data.coords else f"{a} {i}" for a, i in at.items()
        )
        yield f"{name}: {point or 'all'}", path, at


def show_run(path: Path, name: str) -> Shown:
    """A saved run, with theory and the detail of its first seed."""
    from iclflow.results.loading import load_run

    refuse_foreign_files(path)
    run = load_run(path)
    first = run.select(run.seeds[0])
    seeds = [curve_of(cut_down(run.select(seed))) for seed in run.seeds[:SEEDS]]
    words = f"{name}: {run.status}, read only; move a control to go back"
    detail = shown_detail(cut_down(first))
    return Shown(view_of(first), seeds, detail, words, f"run = icl.load({str(path)!r})")


def refuse_foreign_files(path: Path) -> None:
    """Refuse a summary that names files outside the directory of the run."""
    try:
        summary = json.loads((path / "summary.json").read_text())
        names = list(summary["files"])
        spectra = [str(summary["config"].get(name, "")) for name in ("spectrum", "task_spectrum")]
    except (ValueError, KeyError, AttributeError, TypeError, OSError):
        return  # damaged, which `load_run` reports
    for name in [*names, *(s for s in spectra if s.endswith(".npy"))]:
        if name in spectra or not (path / name).resolve().is_relative_to(path.resolve()):
            raise BadInput(f"summary.json: names {name[:80]!r}, which is not a file of the run")


def shown_detail(run: Run) -> Detail | None:
    """The detail of a run; None for models and tasks whose weights have no picture in an eigenbasis."""
    readable = (run.model.linear or run.model.has_gram) and run.model.offers("reduced")
    if not readable or run.experiment.data is not None:
        return None
    try:
        return probed(detail_of(run))
    except BadInput:
        return None


def show_sweep(path: Path, where: dict[str, int], name: str) -> Shown:
    """The saved curves of all seeds at one point of a sweep, with the levels that theory predicts."""
    from iclflow.sweeps.load import load

    sweep = load(path)
    data = sweep.data.isel(where)
    seeds: list[SeedCurve] = []
    for i in range(min(data.sizes.get("seed", 1), SEEDS)):
        one = data.isel(seed=i) if "seed" in data.dims else data
        time, loss = (np.asarray(one[n].values, float) if n in one else np.array([]) for n in ("curve_time", "loss"))
        good = np.isfinite(loss) & np.isfinite(time)
        seed = int(one["seed"]) if "seed" in one.coords else i
        seeds.append({"seed": seed, "time": time[good].tolist(), "loss": loss[good].tolist(), "status": "saved"})
    coordinates = {a: sweep.data[a].values[i] for a, i in where.items() if a in sweep.data.coords}
    first = {} if "seed" not in sweep.data.dims else {"seed": sweep.data["seed"].values[0]}
    experiment = sweep.experiment(**coordinates, **first)
    end = max((s["time"][-1] for s in seeds if s["time"]), default=1.0)
    levels = plateau_losses(experiment.task) if experiment.task.icl_fraction == 1 else np.array([1.0])
    words = f"{name}: a sweep, read only; move a control to go back"
    return Shown(levels_only(levels, "", end), seeds, None, words, f"sweep = icl.load({str(path)!r})")


def view_of(run: Run) -> TheoryView:
    """Theory from the initial weights and moments of the run itself, or the levels only where there is no theory."""
    levels = plateau_losses(run.task) if run.task.icl_fraction == 1 else np.array([float(run.loss.values[0])])
    end = float(run.time.values[-1])
    if (
        run.experiment.data is not None and run.moments is None
    ):  # saved by version 0.1.0: theory would read the data file
        return levels_only(levels, "", end)
    try:
        prediction: Prediction = compare_one(run, None).prediction
    except IclflowError as error:
        return levels_only(levels, str(error), end)
    return full_view(prediction) if usable(prediction) else levels_only(levels, "", end)
