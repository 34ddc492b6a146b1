"""Make the missing pieces on all cores, then write the report.

A piece is a figure or the claims of a subject, made in a process of its own and written to disk before it is reported.
"""

import contextlib
import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, IclflowError
from iclflow.studies import BEYOND, CHAPTER, NAMES, SUBJECTS, every_claim, figure_named, figures_named
from iclflow.studies.folder import Piece, clear_folder, finished, keep, open_folder
from iclflow.studies.report import Outcome, Reproduction, write_report
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import progress_bar

__all__ = ["make", "reproduce"]

LONGEST = ("staircase", "ranks", "softmax", "regimes", "context-length", "forecasts", "depth")  # are started first
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


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
    wanted: list[Piece] = [("figures", name) for name in figures_named(names)]
    if workers is not None and workers < 1:
        raise BadInput(f"workers: {workers} must be at least 1")
    if claims or (claims is None and not names):
        wanted += [("claims", subject) for subject in SUBJECTS[CHAPTER if CHAPTER in names else "paper"]]
    wanted.sort(key=lambda piece: LONGEST.index(piece[1]) if piece[1] in LONGEST else len(LONGEST))
    every_piece = [("figures", name) for name in (*NAMES, *BEYOND)]
    every_piece += [("claims", subject) for subjects in SUBJECTS.values() for subject in subjects]
    begun, reproduction = time.perf_counter(), Reproduction(Path(out))
    open_folder(reproduction.out)
    with only_writer(reproduction.out), progress_bar("reproduce", progress) as report:
        clear_folder(reproduction.out)
        for done, outcome in enumerate(all_outcomes(wanted, reproduction.out, fast, workers or cores()), 1):
            reproduction.outcomes.append(outcome)
            report(done / len(wanted), f"{outcome.piece[1]}, {done} of {len(wanted)}")
            tell(outcome)
        for piece in every_piece:  # the report also shows pieces that were made earlier
            if piece not in wanted and (record := finished(reproduction.out, piece, fast)) is not None:
                reproduction.outcomes.append(Outcome(piece, record, reused=True))
        reproduction.seconds = time.perf_counter() - begun
        write_report(reproduction)
    return reproduction


def make(piece: Piece, out: Path, fast: bool) -> dict[str, Any]:
    """Make a figure or measure a subject's claims; returns what piece.json holds."""
    from iclflow.studies.handout import write_handout
    from iclflow.studies.study import check
    from iclflow.versions import versions

    (kind, name), begun = piece, time.perf_counter()
    if kind == "claims":
        outcomes = list(check(c for c in every_claim(name).values() if c.quick or not fast))
        facts = {"claims": outcomes, "seconds": round(time.perf_counter() - begun, 2)}
        return keep(out, piece, fast, facts, lambda where: None)
    study = figure_named(name)
    result = study.measure(fast=fast)
    facts = {
        "title": study.title,
        "see": study.text,
        "source": study.source,
        "gaps": [{"what": one.what, "measured": one.number} for one in result.measured],
        "runs": {label: experiment.flat() for label, experiment in result.runs.items()},
        "seconds": round(time.perf_counter() - begun, 2),
        "versions": versions(),
    }
    return keep(out, piece, fast, facts, lambda where: write_handout(where, study, result, facts, fast))


# --- processes --------------------------------------------------------------------------------------------------------


def all_outcomes(wanted: list[Piece], out: Path, fast: bool, workers: int) -> Iterator[Outcome]:
    """First the pieces that exist already, then the others as they are finished, made in parallel."""
    missing = []
    for piece in wanted:
        record = finished(out, piece, fast)
        if record is None:
            missing.append(piece)
        else:
            yield Outcome(piece, record, reused=True)
    if not missing:
        return
    fresh = multiprocessing.get_context("spawn")  # a forked JAX can hang
    pool = ProcessPoolExecutor(min(workers, len(missing)), mp_context=fresh, initializer=ready_worker)
    try:
        futures = {pool.submit(make, piece, out, fast): piece for piece in missing}
        for future in as_completed(futures):
            yield outcome_of(futures[future], future.result)
    finally:
        stop(pool)


def outcome_of(piece: Piece, made: Callable[[], dict[str, Any]]) -> Outcome:
    """The outcome of a finished piece; one that failed does not stop the others, but a full disk does."""
    try:
        return Outcome(piece, made())
    except BrokenProcessPool:
        return Outcome(piece, None, error="its process was killed")
    except IclflowError as error:
        if error.exit_code == 4:  # the disk is full, so the rest would fail as well
            raise
        return Outcome(piece, None, error=str(error))
    except Exception as error:
        return Outcome(piece, None, error=f"{type(error).__name__}: {error}".splitlines()[0])


def ready_worker() -> None:
    """Leave Ctrl-C to the parent process, and die with it however it ends."""
    import ctypes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def stop(pool: ProcessPoolExecutor) -> None:
    """Stop all workers at once; finished pieces are on disk already, so only unfinished ones are lost."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=5)
