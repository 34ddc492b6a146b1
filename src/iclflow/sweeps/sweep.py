"""The session of a sweep: what is missing is handed out, counted and told; whatever stops it, what is done stays."""

import contextlib
import multiprocessing
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from iclflow.sweeps.workers.cluster import CrewLost, scheduler_address
from iclflow.sweeps.workers.signals import Stopped, obey_signals, stopped_by_signals, tidying_when_stopped
from iclflow.sweeps.workers.tasks import current_versions
from iclflow.sweeps.workers.workers import assembled
from iclflow.system.atomic import NO_ROOM, no_room
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import progress_bar
from iclflow.training.data_key import data_key

if TYPE_CHECKING:
    from iclflow.sweeps.results import Sweep

__all__ = ["FAILED", "Tally", "refuse_early", "run_grid", "sweep"]

FAILED = ("unstable", "diverged", "failed")
MOST_CREWS = 5  # times that lost workers are replaced by new ones


@dataclass
class Tally:
    """How many runs there are, and how those that are done have ended."""

    total: int
    ends: Counter = field(default_factory=Counter)

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
) -> "Sweep":
    """Run every point of a grid, each with every seed, and gather the results.

    Args:
        source: a TOML file, or the same as a dictionary with `base`, `axes`, `zip`, `seeds`, `points`.
        out: a directory for the results; an existing sweep there is only continued with `resume`.
        workers: processes on this machine, one a core by default; 0 computes in this process.
        scheduler: the address of a dask scheduler, or its scheduler file, whose workers compute instead.
        summary: keep drop times, plateau losses and the like, but no curves.
        progress: None shows a bar on a terminal and lines elsewhere.
    """
    from iclflow.sweeps.results import gather

    grid = grid_of(source, summary)
    run_grid(grid, Path(out), workers=workers, scheduler=scheduler, resume=resume, progress=progress)
    return gather(Path(out))


def grid_of(source: str | Path | dict[str, Any], summary: bool = False) -> Grid:
    grid = grid_from(source) if isinstance(source, dict) else read_grid(Path(source))
    return Grid(grid.base, grid.axes, grid.seeds, grid.points, True) if summary else grid


def run_grid(
    grid: Grid,
    path: Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    resume: bool = False,
    progress: bool | None = False,
) -> Tally:
    """Make or resume the store of a grid, and run what is missing in it."""
    refuse_early(path, resume, scheduler)
    refuse_unreachable(grid, 0 if scheduler is None and workers == 0 else 1)
    with writing(path), stopped_by_signals():
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            if not is_sweep(path):
                refuse_if_full(path, estimate(grid, 1).disk)
            store = prepare_store(path, grid, resume)
            return run_missing(store, workers=workers, scheduler=scheduler, progress=progress)


def refuse_early(path: Path, resume: bool, scheduler: str | None) -> None:
    """What can be refused before anything is touched."""
    refuse_while_spawned()
    if scheduler is not None:
        scheduler_address(scheduler)
    try:
        refuse_place(path, resume)
    except OSError as error:
        raise BadInput(f"out: {str(path)[:80]!r} cannot be used ({error.strerror})") from None


def refuse_unreachable(grid: Grid, others: int) -> None:
    """A class of a script or notebook exists in this process only; other processes cannot import it."""
    for name in grid.own_models if others else ():
        if name.startswith("__main__:"):
            raise BadInput(f"{not_known(name)}, or compute in this process with workers=0")


def refuse_while_spawned() -> None:
    """A process that somebody's script spawns loads the script first, and must not run its sweep once more."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadInput("sweep: is started while a process is being spawned; put it below `if __name__ == '__main__':`")


def refuse_place(path: Path, resume: bool) -> None:
    if path.exists() and not path.is_dir():
        raise BadInput(f"out: {str(path)!r} is a file, must be a directory")
    if path.is_dir() and not is_sweep(path):
        strangers = sorted(entry.name for entry in path.iterdir() if entry.name not in OURS)
        if strangers:
            raise BadInput(f"out: {str(path)!r} holds {strangers[0]!r} and is not a sweep; choose another directory")
    if path.is_dir() and is_sweep(path) and not resume:
        raise BadInput(f"out: {str(path)!r} is a sweep already; give --resume to go on with it, or another directory")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full or read-only disk is one line with an exit code of its own."""
    try:
        yield
    except NotADirectoryError:
        raise BadInput(f"out: {str(path)!r} lies below a file, must lie in a directory") from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise no_room(path, error) from None


def run_missing(store: Store, *, workers: int | None, scheduler: str | None, progress: bool | None) -> Tally:
    """Everything that has no sound manifest yet; the caller holds the lock."""
    for chance in range(1, MOST_CREWS + 1):
        try:
            return run_session(store, cores() if workers is None else workers, scheduler, progress)
        except CrewLost:
            if chance == MOST_CREWS:
                raise
    raise AssertionError("unreachable")


def run_session(store: Store, workers: int, scheduler: str | None, progress: bool | None) -> Tally:
    """As much as one crew gets done."""
    tidy(store)
    tally, todo = take_stock(store)
    if not todo:
        return tally
    session = secrets.token_hex(4)
    try:
        (store.path / WORK / session).mkdir(parents=True, exist_ok=True)
        with (
            reporting(tally, progress) as tell,
            assembled(store, session, min(workers, len(todo)), scheduler) as crew,
            tidying_when_stopped(),
        ):
            work_through(store, crew, todo, tally, tell)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: {tally}") from None
    except NoRoom as error:
        raise NoRoom(f"{error}; {tally}") from None
    finally:
        shutil.rmtree(store.path / WORK / session, ignore_errors=True)
    return tally


@contextlib.contextmanager
def reporting(tally: Tally, show: bool | None) -> Iterator[Callable[[], None]]:
    """A function that reports how far the session is: a bar on a terminal, lines elsewhere."""
    begun, before = time.monotonic(), tally.done
    with progress_bar("sweep", show, lines=True) as report:

        def tell() -> None:
            done, rate = tally.done, (tally.done - before) / max(time.monotonic() - begun, 1e-9)
            left = f", {duration((tally.total - done) / rate)} left" if done < tally.total and rate > 0 else ""
            words = f"{done} of {tally.total} runs done, {tally.failed} failed, {rate:.2f} runs/s{left}"
            report(done / tally.total, words)

        yield tell


def take_stock(store: Store) -> tuple[Tally, list[int]]:
    """What is done, and what is to do: also what is damaged, and what was given up because of its worker."""
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
    """Remove what a session that died has left; the lock says that it is not at work any more."""
    shutil.rmtree(store.path / WORK, ignore_errors=True)
    (store.path / RUNS).mkdir(exist_ok=True)
    for file in leftovers(store.path):
        file.unlink(missing_ok=True)


def work_through(store: Store, crew: Any, todo: list[int], tally: Tally, tell: Any) -> None:
    waiting, out = grouped(store.grid, todo), 0
    upcoming = next(waiting, None)
    while upcoming is not None or out:
        while upcoming is not None and crew.takes(*upcoming[1:]):
            crew.give(*upcoming)
            out, upcoming = out + 1, next(waiting, None)
        obey_signals()
        ended = crew.next_done()
        if ended is None:
            tell()
            continue
        out -= 1
        if "no_room" in ended:
            raise no_room(store.path, OSError(ended["no_room"], ""))
        if ended["status"] == "lost":
            ended = store.commit_failure(ended["run"], ended["why"], current_versions(), retry=True)
        tally.ends[ended["status"]] += 1
        tell()


def grouped(grid: Grid, todo: list[int]) -> Iterator[tuple[int, Any, Experiment | None]]:
    """Runs in an order that keeps together those that share their data, and whose moments to make for them."""
    groups: dict[Any, list[int]] = {}
    for run in sorted(todo):
        groups.setdefault(data_key(grid.experiment(run)), []).append(run)
    for key, runs in groups.items():
        first = grid.experiment(runs[0])
        worth = is_huge(first) or (len(runs) > 1 and shares_moments(first))
        for run in runs:
            yield run, key, first if worth else None
