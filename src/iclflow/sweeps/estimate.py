"""What a sweep will cost, estimated before it starts; meant to be right within a factor of a few."""

import math
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from iclflow.engines.choose import choose
from iclflow.errors import NoRoom
from iclflow.experiment import Experiment
from iclflow.sweeps.columns import CURVES, columns
from iclflow.sweeps.grid import Grid
from iclflow.training.cost import OVERHEAD, draw_seconds, held_bytes, refuse_oversized, run_seconds
from iclflow.training.data_key import data_key
from iclflow.units import clock_of

__all__ = ["Estimate", "estimate", "refuse_if_full"]

UNKNOWN_STEPS, MOST_STEPS = 2e4, 5e6  # of descent until it has settled: a guess, and the limit of `train`
MOST_ASKED = 30  # grid points at which theory is evaluated
START = 5.0  # seconds for processes, imports and the first compilation
PROCESS = 350 * 2**20  # bytes of a worker without data
MANIFEST = 3072
DISK_BLOCK = 4096


@dataclass(frozen=True)
class Estimate:
    """Totals of a sweep."""

    runs: int
    datasets: int
    seconds: float
    memory: int
    disk: int

    def __str__(self) -> str:
        shared = f" on {self.datasets} datasets" if self.datasets < self.runs else ""
        return (
            f"{self.runs} runs{shared}, about {duration(self.seconds)},"
            f" {size(self.memory)} of memory and {size(self.disk)} of disk"
        )


def estimate(grid: Grid, workers: int, runs: int | None = None) -> Estimate:
    """What `runs` runs of the grid (all by default) cost on this number of workers."""
    count = grid.count if runs is None else runs
    points = grid.points_of_grid
    for point in points:  # a sweep keeps no weights, and whitens huge samples block by block
        refuse_oversized(point.replace(training=point.training.replace(records=2, whiten=False)))
    per_point = len(grid.seeds)
    keys = {data_key(e): draw_seconds(e) for e in points}
    per_seed = any(e.training.data_seed is None and not e.population and e.data is None for e in points)
    factor = per_point if per_seed else 1
    seconds = (all_seconds(points) + OVERHEAD * len(points)) * per_point + sum(keys.values()) * factor
    memory = max(held_bytes(e) for e in points)
    share = count / grid.count
    return Estimate(
        runs=count,
        datasets=max(1, round(len(keys) * factor * share)),
        seconds=START + seconds * share / max(workers, 1),
        memory=max(workers, 1) * (PROCESS + memory),
        disk=disk_bytes(grid, count),
    )


def all_seconds(points: list[Experiment]) -> float:
    """The seconds of one run per point. Theory is slow to evaluate, so points that need it are sampled."""
    known = [e for e in points if not needs_theory(e)]
    others = [e for e in points if needs_theory(e)]
    sampled = random.Random(0).sample(others, min(len(others), MOST_ASKED))
    mean = sum(seconds_of(e) for e in sampled) / max(len(sampled), 1)
    return sum(seconds_of(e) for e in known) + mean * len(others)


def needs_theory(experiment: Experiment) -> bool:
    """Whether a run is descent with a given learning rate but without a given number of steps."""
    training = experiment.training
    return training.steps is None and training.lr is not None and not choose(experiment).flows


def seconds_of(experiment: Experiment) -> float:
    return run_seconds(experiment, float(experiment.training.steps or settling_steps(experiment)))


def settling_steps(experiment: Experiment) -> float:
    """Steps until a run of descent has settled, from the time of the last drop; a guess if theory predicts none."""
    from iclflow.sweeps.forecast import expected_of  # imports JAX

    prediction = expected_of(experiment) if needs_theory(experiment) else None
    if prediction is None or len(prediction.drop_times) == 0:
        return UNKNOWN_STEPS
    clock = clock_of(experiment.task, experiment.model, experiment.training)
    steps = prediction.end / clock.time(experiment.training.lr or 1.0)
    return min(max(steps, 1.0), MOST_STEPS) if math.isfinite(steps) else UNKNOWN_STEPS


def disk_bytes(grid: Grid, runs: int) -> int:
    rows = [len(columns(grid.drop_slots)) * 8, MANIFEST]
    if not grid.summary:
        rows.append((len(CURVES) if grid.has_tests else 3) * grid.curve_length * 8)
    return runs * sum(math.ceil(row / DISK_BLOCK) * DISK_BLOCK for row in rows)


def refuse_if_full(path: Path, needed: int) -> None:
    """Raise `NoRoom` before the sweep starts if it will not fit on the disk."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise NoRoom(f"out: the sweep needs {size(needed)} in {str(path)!r}, which has {size(free)} free")


def duration(seconds: int | float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def size(count: int | float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
