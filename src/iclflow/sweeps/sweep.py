"""A session of a sweep: hands out the missing runs, counts them and reports progress; finished runs are never lost."""

import contextlib
import multiprocessing
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iclflow.errors import BadInput, NoRoom
from iclflow.models.base import not_known
from iclflow.sweeps.estimate import Estimate, disk_bytes, estimate, refuse_if_full
from iclflow.sweeps.grid import Grid
from iclflow.sweeps.parts import Part, if_nobody_is_at_work, part_of
from iclflow.sweeps.store.protocol import (
    COPY,
    OURS,
    RUNS,
    SWEEP,
    WORK,
    Store,
    is_sweep,
    leftovers,
    open_store,
    prepare_store,
)
from iclflow.sweeps.sweep_file import grid_from, read_grid
from iclflow.sweeps.workers.signals import Stopped, raise_if_stopped, stopped_by_signals, tidying_when_stopped
from iclflow.sweeps.workers.tasks import current_versions
from iclflow.sweeps.workers.workers import Workers, workers_of
from iclflow.system.atomic import NO_ROOM, no_room, scratches_of
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import duration, progress_bar

if TYPE_CHECKING:
    import iclflow.sweeps.results

__all__ = ["FAILED", "Tally", "run_grid", "sweep"]

FAILED = ("unstable", "diverged", "failed")


@dataclass
class Tally:
    """The number of runs, and how many of them have ended with each status."""

    total: int
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return sum(self.ends.values())

    @property
    def failed(self) -> int:
        return sum(self.ends[status] for status in FAILED)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {status}" for status, count in sorted(self.ends.items()))
        return f"{self.done} of {self.total} runs are done" + (f" ({kinds})" if kinds else "")


def sweep(
    source: str | Path | dict[str, Any],
    out: str | Path,
    *,
    workers: int | None = None,
    scheduler: Any = None,
    part: str | None = None,
    resume: bool = False,
    summary: bool = False,
    progress: bool | None = False,
) -> "iclflow.sweeps.results.Sweep":
    """Run every point of a grid with every seed.

    Args:
        source: a TOML file, or the same as a dictionary with `base`, `axes`, `zip`, `seeds`, `points`.
        out: a directory for the results.
        workers: the number of processes on this machine, one per core by default; 0 computes in this process.
        scheduler: a dask cluster whose workers compute instead: the cluster object, the address or the scheduler file.
        part: `i/n` runs the i-th of n parts of the grid, beside any others, and makes or continues the sweep in `out`.
        resume: continue the sweep in `out`; without it, an existing sweep is refused.
        summary: keep drop times, plateau losses and the other quantities of each run, but no curves.
        progress: None shows a bar on a terminal and prints lines elsewhere, False shows nothing.

    Returns:
        The results of all runs. A run that fails or diverges does not stop the others; `status` counts them.

    Raises:
        BadInput: if the grid has an invalid run, or `out` cannot be used.
        NoRoom: if the disk is full.
    """
    from iclflow.sweeps.results import gather

    grid = grid_of(source, summary)
    run_grid(grid, Path(out), workers=workers, scheduler=scheduler, part=part, resume=resume, progress=progress)
    return gather(Path(out))


def grid_of(source: str | Path | dict[str, Any], summary: bool = False) -> Grid:
    """The grid of a sweep file or of a dictionary."""
    grid = grid_from(source) if isinstance(source, dict) else read_grid(Path(source))
    return replace(grid, summary=True) if summary else grid


def run_grid(
    grid: Grid,
    path: Path,
    *,
    workers: int | None = None,
    scheduler: Any = None,
    part: str | None = None,
    resume: bool = False,
    progress: bool | None = False,
    announce: Callable[[Estimate], None] = lambda estimate: None,
) -> Tally:
    """Make or resume the store of a grid, and compute its missing runs, or those of one part of it."""
    count, chosen = cores() if workers is None else workers, None if part is None else part_of(part)
    refuse_early(path, resume or chosen is not None, scheduler, chosen)
    if scheduler is not None or count > 0:
        refuse_unreachable(grid)
    asked = range(grid.count) if chosen is None else chosen.runs(grid)
    missing = set(open_store(path).missing() if is_sweep(path) else asked)
    announce(estimate(grid, count, sum(run in missing for run in asked)))
    with writing(path), stopped_by_signals():
        if chosen is not None:
            return run_part(chosen, asked, grid, path, workers=count, progress=progress)
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            if not is_sweep(path):
                refuse_if_full(path, disk_bytes(grid, grid.count))
            store = prepare_store(path, grid, resume)
            return run_missing(store, workers=count, scheduler=scheduler, progress=progress)


def run_part(part: Part, asked: Sequence[int], grid: Grid, path: Path, *, workers: int, progress: bool | None) -> Tally:
    """Compute the missing runs of one part; the last part to end tidies up."""
    with part.store(path, grid) as store:
        tally = run_missing(store, workers=workers, scheduler=None, progress=progress, asked=asked)
    with if_nobody_is_at_work(path) as last:
        if last:
            tidy(store)
    return tally


def refuse_early(path: Path, resume: bool, scheduler: Any, part: Part | None) -> None:
    """Raise the errors that can be detected before anything is written."""
    refuse_while_spawned()
    if part is not None and scheduler is not None:
        raise BadInput("part: is for jobs that need no scheduler; give either part or scheduler")
    if scheduler is not None:
        from iclflow.sweeps.workers.cluster import scheduler_address

        scheduler_address(scheduler)
    try:
        refuse_place(path, resume)
    except OSError as error:
        raise BadInput(f"out: {str(path)[:80]!r} cannot be used ({error.strerror})") from None


def refuse_unreachable(grid: Grid) -> None:
    """Refuse models that are defined in a script or notebook, which other processes cannot import."""
    for name in grid.own_models:
        if name.startswith("__main__:"):
            raise BadInput(f"{not_known(name)}, or compute in this process with workers=0")


def refuse_while_spawned() -> None:
    """Refuse to start in a process that is being spawned: it loads the user's script, which would sweep again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadInput("sweep: is started while a process is being spawned; put it below `if __name__ == '__main__':`")


def refuse_place(path: Path, resume: bool) -> None:
    if path.exists() and not path.is_dir():
        raise BadInput(f"out: {str(path)!r} is a file, must be a directory")
    if path.is_dir() and not is_sweep(path):
        ours = {*OURS, *(scratch.name for name in (SWEEP, COPY) for scratch in scratches_of(path / name))}
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
        if others:
            raise BadInput(f"out: {str(path)!r} holds {others[0]!r} and is not a sweep; choose another directory")
    if path.is_dir() and is_sweep(path) and not resume:
        raise BadInput(f"out: {str(path)!r} is a sweep already; give --resume to continue it, or another directory")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the errors of a full or read-only disk into `NoRoom`, which has its own exit code."""
    try:
        yield
    except NotADirectoryError:
        raise BadInput(f"out: {str(path)!r} has a file among its parents, which must be directories") from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise no_room(path, error) from None


def run_missing(
    store: Store, *, workers: int | None, scheduler: Any, progress: bool | None, asked: Sequence[int] | None = None
) -> Tally:
    """Compute the runs that are asked for and not there yet, all by default; the caller holds the lock."""
    if asked is None:
        tidy(store)
    tally, todo = take_stock(store, range(store.grid.count) if asked is None else asked)
    if not todo:
        return tally
    count = min(cores() if workers is None else workers, len(todo))
    session = secrets.token_hex(4)
    try:
        (store.path / WORK / session).mkdir(parents=True, exist_ok=True)
        with (
            reporting(tally, progress) as report,
            workers_of(store, session, count, scheduler) as taking,
            tidying_when_stopped(),
        ):
            work_through(store, taking, todo, tally, report)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: {tally}") from None
    except NoRoom as error:
        raise NoRoom(f"{error}; {tally}") from None
    finally:
        shutil.rmtree(store.path / WORK / session, ignore_errors=True)
    return tally


@contextlib.contextmanager
def reporting(tally: Tally, show: bool | None) -> Iterator[Callable[..., None]]:
    """A function that reports the progress of the session: a bar on a terminal, lines elsewhere."""
    begun, before = time.monotonic(), tally.done
    with progress_bar("sweep", show, lines=True) as show_share:

        def report(more: str = "") -> None:
            done, rate = tally.done, (tally.done - before) / max(time.monotonic() - begun, 1e-9)
            speed = f", {rate:.2f} runs/s" if rate > 0 else ""
            left = f", {duration((tally.total - done) / rate)} left" if done < tally.total and rate > 0 else ""
            line = f"{done} of {tally.total} runs done, {tally.failed} failed{speed}{left}{more}"
            show_share(done / tally.total, line)

        yield report


def take_stock(store: Store, asked: Sequence[int]) -> tuple[Tally, list[int]]:
    """The runs that are done, and those to compute: missing, damaged, or failed for a reason that may have passed."""
    tally, todo, listed = Tally(len(asked)), [], set(store.listed())
    for run in asked:
        record, wrong = store.damage(run) if run in listed else (None, None)
        if record is not None and wrong is None and not record.get("retry"):
            tally.ends[record["status"]] += 1
            continue
        if run in listed:
            store.forget(run)
        todo.append(run)
    return tally, todo


def tidy(store: Store) -> None:
    """Remove what a session that was killed left behind; we hold the lock, so no other session is running."""
    shutil.rmtree(store.path / WORK, ignore_errors=True)
    (store.path / RUNS).mkdir(exist_ok=True)
    for file in leftovers(store.path):
        file.unlink(missing_ok=True)


def work_through(store: Store, workers: Workers, todo: list[int], tally: Tally, report: Callable[..., None]) -> None:
    """Hand out the runs to compute, those on the same data together, and count how they end."""
    wanted, running = set(todo), 0
    groups = ([run for run in group if run in wanted] for group in store.grid.groups.values())
    waiting = ((run, group) for group in groups for run in group)
    upcoming = next(waiting, None)
    while upcoming is not None or running:
        while upcoming is not None and workers.has_room:
            workers.give(*upcoming)
            running, upcoming = running + 1, next(waiting, None)
        raise_if_stopped()
        ended = workers.next_done()
        if ended is None:
            report(workers.absence)
            continue
        running -= 1
        if "no_room" in ended:
            raise no_room(store.path, OSError(ended["no_room"], ""))
        if ended["status"] == "lost":
            ended = store.commit_failure(ended["run"], ended["why"], current_versions(), retry=True)
        tally.ends[ended["status"]] += 1
        report(workers.absence)
