"""How a sweep is getting on: a bar on a terminal, now and then a plain line elsewhere, nothing when not asked."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from iclflow.sweeps.estimate import duration

__all__ = ["Announce", "announced"]

EVERY = 10.0  # seconds between plain lines


class Announce(Protocol):
    def __call__(self, done: int, failed: int) -> None: ...


@contextmanager
def announced(total: int, before: int, show: bool | None) -> Iterator[Announce]:
    """`show`: None means a bar on a terminal and lines elsewhere; False means silence."""
    if show is False:
        yield lambda done, failed: None
    elif sys.stderr.isatty():
        with bar(total, before) as tell:
            yield tell
    else:
        yield Lines(total, before)


class Pace:
    """Runs a second of this session, and what is left at that rate."""

    def __init__(self, total: int, before: int):
        self.total, self.before, self.begun = total, before, time.monotonic()

    def words(self, done: int, failed: int) -> str:
        rate = (done - self.before) / max(time.monotonic() - self.begun, 1e-9)
        left = f", {duration((self.total - done) / rate)} left" if done < self.total and rate > 0 else ""
        return f"{done} of {self.total} runs done, {failed} failed, {rate:.2f} runs/s{left}"


class Lines(Pace):
    """A plain line every few seconds, and one at the end."""

    def __init__(self, total: int, before: int):
        super().__init__(total, before)
        self.last = self.begun

    def __call__(self, done: int, failed: int) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY or (done == self.total and done > self.before):
            self.last = now
            print(self.words(done, failed), file=sys.stderr, flush=True)


@contextmanager
def bar(total: int, before: int) -> Iterator[Announce]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    pace = Pace(total, before)
    columns = (TextColumn("sweep"), BarColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        handle = progress.add_task("sweep", total=total, completed=before, words="starting")

        def tell(done: int, failed: int) -> None:
            progress.update(handle, completed=done, words=pace.words(done, failed))

        yield tell
