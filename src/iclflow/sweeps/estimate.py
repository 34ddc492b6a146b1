"""The memory and disk space that a sweep takes, and what is refused for want of them before it starts."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from iclflow.errors import NoRoom
from iclflow.sweeps.columns import CURVES, columns
from iclflow.sweeps.grid import Grid
from iclflow.training.cost import held_bytes, refuse_oversized

__all__ = ["Estimate", "estimate", "refuse_if_full"]

PROCESS = 350 * 2**20  # bytes of a worker without data
MANIFEST = 3072
DISK_BLOCK = 4096


@dataclass(frozen=True)
class Estimate:
    """Totals of a sweep."""

    runs: int
    datasets: int
    memory: int
    disk: int

    def __str__(self) -> str:
        shared = f" on {self.datasets} datasets" if self.datasets < self.runs else ""
        return f"{self.runs} runs{shared}, {size(self.memory)} of memory and {size(self.disk)} of disk"


def estimate(grid: Grid, workers: int, runs: int | None = None) -> Estimate:
    """What `runs` runs of the grid (all by default) take on this number of workers; raises `NoRoom` for a large one."""
    count = grid.count if runs is None else runs
    points = grid.points_of_grid
    for point in points:  # a sweep keeps no weights
        refuse_oversized(point.replace(training=point.training.replace(records=2)))
    memory = max(workers, 1) * (PROCESS + max(held_bytes(point) for point in points))
    return Estimate(count, max(1, round(len(grid.groups) * count / grid.count)), memory, disk_bytes(grid, count))


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


def size(count: int | float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
