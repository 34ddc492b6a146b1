"""A session of a sweep: hands out the missing runs, counts them and reports progress; finished runs are never lost."""

import contextlib
import multiprocessing
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iclflow.errors import BadInput, NoRoom
from iclflow.experiment import Experiment
from iclflow.models.base import not_known
from iclflow.sweeps.estimate import duration, estimate, refuse_if_full
from iclflow.sweeps.grid import Grid
from iclflow.sweeps.store.protocol import OURS, RUNS, WORK, Store, is_sweep, leftovers, prepare_store
from iclflow.sweeps.sweep_file import grid_from, read_grid
from iclflow.sweeps.workers.blocks import is_huge, shares_moments
from iclflow.sweeps.workers.cluster import WorkersLost, scheduler_address
from iclflow.sweeps.workers.signals import Stopped, obey_signals, stopped_by_signals, tidying_when_stopped
from iclflow.sweeps.workers.tasks import current_versions
from iclflow.sweeps.workers.workers import Workers, workers_of
from iclflow.system.atomic import NO_ROOM, no_room
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import progress_bar
from iclflow.training.data_key import data_key

if TYPE_CHECKING:
    import iclflow.sweeps.results

__all__ = ["FAILED", "Tally", "refuse_early", "run_grid", "sweep"]

FAILED = ("unstable", "diverged", "failed")
MOST_STARTS = 5  # how often workers are started, if all of them are lost


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
    scheduler: str | None = None,
    resume: bool = False,
    summary: bool = False,
    progress: bool | None = False,
) -> "iclflow.sweeps.results.Sweep":
    """Run every point of a grid with every seed.

    Args:
        source: a TOML file, or the same as a dictionary with `base`, `axes`, `zip`, `seeds`, `points`.
        out: a directory for the results.
        workers: the number of processes on this machine, one per core by default; 0 computes in this process.
        scheduler: the address or the scheduler file of a dask cluster, whose workers compute instead.
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
    run_grid(grid, Path(out), workers=workers, scheduler=scheduler, resume=resume, progress=progress)
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
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = False,
) -> Tally:
    """Make or resume the store of a grid, and compute its missing runs."""
    refuse_early(path, resume, scheduler)
    if scheduler is not None or workers != 0:
        refuse_unreachable(grid)
    with writing(path), stopped_by_signals():
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            if not is_sweep(path):
                refuse_if_full(path, estimate(grid, 1).disk)
            store = prepare_store(path, grid, resume)
            return run_missing(store, workers=workers, scheduler=scheduler, progress=progress)


def refuse_early(path: Path, resume: bool, scheduler: str | None) -> None:
    """Raise the errors that can be detected before anything is written."""
    refuse_while_spawned()
    if scheduler is not None:
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
        others = sorted(entry.name for entry in path.iterdir() if entry.name not in OURS)
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


def run_missing(store: Store, *, workers: int | None, scheduler: str | None, progress: bool | None) -> Tally:
    """Compute every run without an intact manifest; the caller holds the lock."""
    count = cores() if workers is None else workers
    for _ in range(MOST_STARTS - 1):
        with contextlib.suppress(WorkersLost):
            return run_session(store, count, scheduler, progress)
    return run_session(store, count, scheduler, progress)


def run_session(store: Store, count: int, scheduler: str | None, progress: bool | None) -> Tally:
    """Start `count` workers and compute the missing runs, as long as these workers last."""
    tidy(store)
    tally, todo = take_stock(store)
    if not todo:
        return tally
    session = secrets.token_hex(4)
    try:
        (store.path / WORK / session).mkdir(parents=True, exist_ok=True)
        with (
            reporting(tally, progress) as report,
            workers_of(store, session, min(count, len(todo)), scheduler) as workers,
            tidying_when_stopped(),
        ):
            work_through(store, workers, todo, tally, report)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: {tally}") from None
    except NoRoom as error:
        raise NoRoom(f"{error}; {tally}") from None
    finally:
        shutil.rmtree(store.path / WORK / session, ignore_errors=True)
    return tally


@contextlib.contextmanager
def reporting(tally: Tally, show: bool | None) -> Iterator[Callable[[], None]]:
    """A function that reports the progress of the session: a bar on a terminal, lines elsewhere."""
    begun, before = time.monotonic(), tally.done
    with progress_bar("sweep", show, lines=True) as show_share:

        def report() -> None:
            done, rate = tally.done, (tally.done - before) / max(time.monotonic() - begun, 1e-9)
            left = f", {duration((tally.total - done) / rate)} left" if done < tally.total and rate > 0 else ""
            line = f"{done} of {tally.total} runs done, {tally.failed} failed, {rate:.2f} runs/s{left}"
            show_share(done / tally.total, line)

        yield report


def take_stock(store: Store) -> tuple[Tally, list[int]]:
    """The runs that are done, and those to compute: missing, damaged, or failed for a reason that may have passed."""
    tally, todo = Tally(store.grid.count), store.missing()
    for run in store.listed():
        record, wrong = store.damage(run)
        if record is None or wrong is not None or record.get("retry"):
            store.forget(run)
            todo.append(run)
        else:
            tally.ends[record["status"]] += 1
    return tally, todo


def tidy(store: Store) -> None:
    """Remove what a session that was killed left behind; we hold the lock, so no other session is running."""
    shutil.rmtree(store.path / WORK, ignore_errors=True)
    (store.path / RUNS).mkdir(exist_ok=True)
    for file in leftovers(store.path):
        file.unlink(missing_ok=True)


def work_through(store: Store, workers: Workers, todo: list[int], tally: Tally, report: Callable[[], None]) -> None:
    """Hand out the runs to compute, and count how they end."""
    waiting, running = grouped(store.grid, todo), 0
    upcoming = next(waiting, None)
    while upcoming is not None or running:
        while upcoming is not None and workers.takes(*upcoming[1:]):
            workers.give(*upcoming)
            running, upcoming = running + 1, next(waiting, None)
        obey_signals()
        ended = workers.next_done()
        if ended is None:
            report()
            continue
        running -= 1
        if "no_room" in ended:
            raise no_room(store.path, OSError(ended["no_room"], ""))
        if ended["status"] == "lost":
            ended = store.commit_failure(ended["run"], ended["why"], current_versions(), retry=True)
        tally.ends[ended["status"]] += 1
        report()


def grouped(grid: Grid, todo: list[int]) -> Iterator[tuple[int, Any, Experiment | None]]:
    """Every run with the key of its data, in groups that share data, and the experiment whose moments they share."""
    groups: dict[Any, list[int]] = {}
    for run in sorted(todo):
        groups.setdefault(data_key(grid.experiment(run)), []).append(run)
    for key, runs in groups.items():
        first = grid.experiment(runs[0])
        worth = is_huge(first) or (len(runs) > 1 and shares_moments(first))
        for run in runs:
            yield run, key, first if worth else None
