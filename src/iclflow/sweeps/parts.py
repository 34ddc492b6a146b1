"""One of n parts of a sweep, for arrays of jobs: any number of parts write to the same store at once.

A part shares the lock of the store with the other parts, so that no whole session can begin, and holds a lock of its
own, so that it cannot run twice at once. Which runs it has depends on the grid alone. The first part makes the store;
the last one to end removes what killed ones have left.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from iclflow.errors import BadInput
from iclflow.sweeps.estimate import disk_bytes, refuse_if_full
from iclflow.sweeps.grid import Grid
from iclflow.sweeps.store.protocol import WORK, Store, is_sweep, prepare_store
from iclflow.system.lock import Held, holder, is_held, only_writer

__all__ = ["Part", "part_of", "parts_at_work"]

PATIENCE = 30.0  # seconds to wait while another part makes or tidies the store
MOST_PARTS = 100_000


class Part(NamedTuple):
    """Part `number`, from 1 to `total`."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"part {self.number} of {self.total}"

    def runs(self, grid: Grid) -> list[int]:
        """The runs of this part; those on the same data are together as far as parts of the same size allow."""
        order = [run for group in grid.groups.values() for run in group]
        first, last = (math.ceil(i * len(order) / self.total) for i in (self.number - 1, self.number))
        return sorted(order[first:last])

    @contextlib.contextmanager
    def store(self, path: Path, grid: Grid) -> Iterator[Store]:
        """The store, open to this part and to others at the same time."""
        path.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + PATIENCE
        while not is_sweep(path):
            with if_nobody_is_at_work(path) as alone:
                if alone and not is_sweep(path):  # no other part has made it meanwhile
                    refuse_if_full(path, disk_bytes(grid, grid.count))
                    prepare_store(path, grid, resume=False)
            if time.monotonic() > end:
                raise Held(f"out: {str(path)!r} is being written by {holder(path)}")
            time.sleep(0.1)
        with only_writer(path, shared=True, patience=PATIENCE):
            store = prepare_store(path, grid, resume=True)
            (path / WORK).mkdir(exist_ok=True)
            with only_writer(path / WORK, f"part-{self.number}-of-{self.total}"):
                yield store


def part_of(text: str) -> Part:
    """The part that `i/n` names."""
    number, slash, count = text.partition("/")
    numbers = number.isdecimal() and count.isdecimal() and len(text) < 20
    if not (slash and numbers and 1 <= int(number) <= int(count) <= MOST_PARTS):
        raise BadInput(f"part: {text[:40]!r} must be i/n, such as 3/8, with i from 1 to n and n at most {MOST_PARTS}")
    return Part(int(number), int(count))


def parts_at_work(path: Path) -> list[str]:
    """The parts that are running now, and their processes."""
    work = path / WORK
    names = sorted(file.name for file in work.glob("part-*-of-*") if is_held(work, file.name))
    return [f"{name.replace('-', ' ')}, {holder(work, name)}" for name in names]


@contextlib.contextmanager
def if_nobody_is_at_work(path: Path) -> Iterator[bool]:
    """Whether no part and no session is running; none begins during the block then."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_writer(path))
        except Held:
            yield False
        else:
            yield True
