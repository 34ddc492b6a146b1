"""Make the missing pieces on all cores, then write the report."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from iclflow import claims as all_claims
from iclflow.errors import BadInput, IclflowError
from iclflow.paper import BEYOND, NAMES, figures_named
from iclflow.paper.folder import Piece, clear_folder, finished, open_folder
from iclflow.paper.outcomes import Outcome, Reproduction
from iclflow.paper.report import write_report
from iclflow.paper.work import make, ready_worker
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import progress_bar

__all__ = ["reproduce"]

LONGEST = ("staircase", "ranks", "softmax", "regimes", "context-length", "forecasts", "depth")  # are started first


def reproduce(
    *names: str,
    out: str | Path = "results",
    fast: bool = False,
    claims: bool | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Reproduction:
    """Reproduce the paper's figures and claims in a directory, with a report; pieces that are up to date are kept.

    Args:
        names: the figures to make, `beyond` for the whole chapter beyond the paper; by default all of the paper.
        out: the output directory, a new one or that of an earlier reproduction.
        fast: use smaller runs, to check that everything works.
        claims: whether to measure the claims as well, with `beyond` those beyond the paper; by default only when no
            figure is named.
        workers: the number of processes; by default one per core.
        progress: whether to show a progress bar; by default only on a terminal.
        tell: a function that is called with the outcome of every piece as soon as it is done.

    Returns:
        The records of all figures and claims in the directory, and the pieces that failed.

    Raises:
        BadInput: a name is unknown, `workers` is not positive, or `out` cannot be used as output directory.
        NoRoom: the disk is full.
    """
    asked = figures_named(names)
    if workers is not None and workers < 1:
        raise BadInput(f"workers: {workers} must be at least 1")
    begun, reproduction = time.perf_counter(), Reproduction(Path(out))
    wanted: list[Piece] = [("figures", name) for name in asked]
    if claims or (claims is None and not names):
        subjects = all_claims.BEYOND if "beyond" in names else all_claims.PAPER
        wanted += [("claims", subject) for subject in subjects]
    wanted.sort(key=lambda piece: LONGEST.index(piece[1]) if piece[1] in LONGEST else len(LONGEST))
    open_folder(reproduction.out)
    with only_writer(reproduction.out), progress_bar("reproduce", progress) as report:
        clear_folder(reproduction.out)
        for done, outcome in enumerate(all_outcomes(wanted, reproduction.out, fast, workers or cores()), 1):
            reproduction.outcomes.append(outcome)
            report(done / len(wanted), f"{outcome.piece[1]}, {done} of {len(wanted)}")
            tell(outcome)
        every_piece = [("figures", name) for name in (*NAMES, *BEYOND)] + [
            ("claims", subject) for subject in all_claims.SUBJECTS
        ]
        for piece in every_piece:  # the report also shows pieces that were made earlier
            if piece not in wanted and (record := finished(reproduction.out, piece, fast)) is not None:
                reproduction.outcomes.append(Outcome(piece, record, reused=True))
        reproduction.seconds = time.perf_counter() - begun
        write_report(reproduction)
    return reproduction


def all_outcomes(wanted: list[Piece], out: Path, fast: bool, workers: int) -> Iterator[Outcome]:
    """First the pieces that exist already, then the others as they are finished."""
    missing = []
    for piece in wanted:
        record = finished(out, piece, fast)
        if record is None:
            missing.append(piece)
        else:
            yield Outcome(piece, record, reused=True)
    yield from make_all(missing, out, fast, workers)


def make_all(missing: list[Piece], out: Path, fast: bool, workers: int) -> Iterator[Outcome]:
    """The missing pieces, made in parallel, in the order in which they are finished."""
    if not missing:
        return
    fresh = multiprocessing.get_context("spawn")  # a forked JAX can hang
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=fresh, initializer=ready_worker)
    try:
        futures = {pool.submit(make, piece, out, fast): piece for piece in missing}
        yield from collected(futures, as_completed(futures))
    finally:
        stop(pool)


def collected(
    futures: dict[Future[dict[str, Any]], Piece], done: Iterable[Future[dict[str, Any]]]
) -> Iterator[Outcome]:
    """The outcomes of finished pieces; one that failed does not stop the others, but a full disk does."""
    for future in done:
        try:
            yield Outcome(futures[future], future.result())
        except BrokenProcessPool:
            yield Outcome(futures[future], None, error="its process was killed")
        except IclflowError as error:
            if error.exit_code == 4:  # the disk is full, so the rest would fail as well
                raise
            yield Outcome(futures[future], None, error=str(error))
        except Exception as error:
            yield Outcome(futures[future], None, error=f"{type(error).__name__}: {error}".splitlines()[0])


def stop(pool: ProcessPoolExecutor) -> None:
    """Stop all workers at once; finished pieces are on disk already, so only unfinished ones are lost."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=5)
