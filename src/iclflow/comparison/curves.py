"""Loss curves from run directories, from text files of the public code, and from tables.

| file | read as |
| --- | --- |
| `DIR` | a run: one curve per seed, with times, initial weights and settings |
| `FILE.txt` | output of the public code: one row per epoch, loss in the first column; the name gives model and sizes |
| `FILE.csv` | a table with a column `loss`, and `time` (t/tau) or `step` |
"""

import itertools
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.experiment import Setup
from iclflow.results.loading import load_run
from iclflow.results.run import Run
from iclflow.system.arrays import as_array
from iclflow.system.files import first_line, regular_file
from iclflow.units import clock_of

__all__ = ["Curve", "described", "read_curves"]

LARGEST, LARGEST_LOSS = 512 * 2**20, 1e100  # bytes of a file; a loss, so that its square is a number
NAMES = {"attnM": "merged", "attnS": "separate", "mlp": "mlp"}
Column = Float[np.ndarray, " T"]
PUBLIC = re.compile(r"(attnM|attnS|mlp)_head(\d+)_D(\d+)_R(\d+)_P(\d+)_N(\d+)_seed(\d+)")


@dataclass(frozen=True)
class Curve:
    """A loss over t/tau, or over steps if the learning rate is not known."""

    name: str
    loss: Float[np.ndarray, " T"]
    step: Float[np.ndarray, " T"] | None
    time: Float[np.ndarray, " T"] | None
    run: Run | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)  # of these what the user said, not the name of the file

    def axis(self, clock: str) -> Float[np.ndarray, " T"]:
        """Return the times (`clock` is `time`) or the steps of the curve."""
        axis = self.time if clock == "time" else self.step
        if axis is None:
            missing = "lr: needed to put it on the clock t/tau" if clock == "time" else "it has no steps, only times"
            raise BadInput(f"{missing} ({self.name!r})")
        return axis


def read_curves(source: str, settings: dict[str, Any]) -> list[Curve]:
    """Read the curves of a directory or file; `settings` supply what the file does not hold, such as `lr`."""
    path = Path(source)
    if path.is_dir():
        run = load_run(path)
        several = len(run.seeds) > 1
        return [from_run(run.select(s), f"{path}, seed {s}" if several else str(path)) for s in run.seeds]
    regular_file(path, "curve", LARGEST)
    known = {**told_by_name(path.name), **settings}
    step, time, loss = read_table(path) if path.suffix == ".csv" else read_text(path)
    if time is None and step is not None and "lr" in known:
        time = step * clock(known)
    return [Curve(str(path), loss, step, time, None, known, settings)]


def from_run(run: Run, name: str) -> Curve:
    """The loss curve of a run of one seed; the flow has times but no steps."""
    steps = run.curves["step"].values.astype(float) if not run.by_flow else None
    return Curve(name, run.loss.values, steps, run.time.values, run, run.config)


def array_curve(losses: Any, time: Any, settings: dict[str, Any], name: str) -> Curve:
    """A curve from an array of losses, on the times that come with it or on its steps."""
    try:
        loss = np.asarray(as_array(losses), dtype=float)
        axis = None if time is None else np.asarray(as_array(time), dtype=float)
    except (TypeError, ValueError):
        raise BadInput(f"subject: {type(losses).__name__} must be a run, a directory, a file or an array") from None
    if loss.ndim != 1 or len(loss) < 2 or not np.isfinite(loss).all():
        raise BadInput(f"subject: an array of shape {loss.shape} must be a curve of at least two finite losses")
    if axis is not None and (axis.shape != loss.shape or not (np.diff(axis) > 0).all()):
        raise BadInput(
            f"time: shape {axis.shape} must be that of the losses, {loss.shape}, and rise from one to the next"
        )
    step = np.arange(len(loss), dtype=float)
    if axis is None and "lr" in settings:
        axis = step * clock(settings)
    return Curve(name, loss, step, axis, None, settings, settings)


def told_by_name(name: str) -> dict[str, Any]:
    """The settings that the public code writes into its file names, and those that it always uses."""
    match = PUBLIC.match(name)
    if match is None:
        return {}
    model, heads, dim, rank, samples, tokens, seed = match.groups()
    settings = {
        "model": NAMES[model], "heads": int(heads), "dim": int(dim), "samples": int(samples),
        "context": int(tokens) - 1, "seed": int(seed), "normalize": "none", "init_law": "public",
    }  # fmt: skip
    return {**settings, "rank": int(rank)} if model == "attnS" else settings


def described(settings: dict[str, Any]) -> Setup:
    """The task, model and training behind a curve from elsewhere."""
    return Setup.from_flat(settings)


def clock(settings: dict[str, Any]) -> float:
    """How far one step moves the clock of the rule."""
    setup = described(settings)
    assert setup.training.lr is not None
    return clock_of(setup.task, setup.model, setup.training).time(setup.training.lr)


def read_text(path: Path) -> tuple[Column, None, Column]:
    """Steps, no times, and losses of an output file of the public code; comments may stand before the first row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty file raises an error below
        try:
            lines = path.read_text().splitlines()
            rows = itertools.dropwhile(lambda line: line.lstrip().startswith("#"), lines)
            table = np.loadtxt(rows, ndmin=2, comments=None)
        except Exception as error:  # a damaged file can raise almost anything
            raise BadInput(f"curve: cannot read {str(path)!r} as rows of numbers ({first_line(error)})") from None
    if table.size == 0 or len(table) < 2:
        raise BadInput(f"curve: {str(path)!r} must hold at least two rows, one per epoch")
    return np.arange(len(table), dtype=float), None, checked(path, table[:, 0])


def read_table(path: Path) -> tuple[Column | None, Column | None, Column]:
    """Steps, times and losses of a table; steps or times may be missing."""
    import pandas as pd

    try:
        table = pd.read_csv(path)
        columns = {name: table[name].to_numpy(dtype=float) for name in ("step", "time", "loss") if name in table}
    except Exception as error:  # a damaged file can raise almost anything
        raise BadInput(f"curve: cannot read {str(path)!r} as a table ({first_line(error)})") from None
    if "loss" not in columns or len(columns) < 2:
        have = ", ".join(str(name)[:40] for name in table.columns[:8])
        raise BadInput(f"curve: {str(path)!r} must have columns loss and time or step, it has {have}")
    if len(table) < 2:
        raise BadInput(f"curve: {str(path)!r} must hold at least two rows")
    for name in ("step", "time"):
        if name in columns and not (np.diff(columns[name]) > 0).all():
            raise BadInput(f"curve: {name} in {str(path)!r} must rise from row to row; a file holds one curve")
        if name in columns and not np.isfinite(columns[name]).all():
            raise BadInput(f"curve: {name} in {str(path)!r} holds a value that is not a finite number")
    return columns.get("step"), columns.get("time"), checked(path, columns["loss"])


def checked(path: Path, loss: Column) -> Column:
    """Return the losses if all of them are finite, and of a size that can be compared, else raise `BadInput`."""
    if not np.isfinite(loss).all():
        raise BadInput(f"curve: {str(path)!r} holds a loss that is not a finite number")
    if np.abs(loss).max() > LARGEST_LOSS:
        raise BadInput(
            f"curve: {str(path)!r} holds the loss {np.abs(loss).max():.3g}, must be at most {LARGEST_LOSS:.0e}"
        )
    return loss
