"""Make what is missing, piece by piece on all cores, then write the page."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, IclflowError
from iclflow.paper import NAMES
from iclflow.paper.folder import Piece, finished, open_folder
from iclflow.paper.work import make, ready_worker, subjects
from iclflow.system.cores import cores
from iclflow.system.lock import only_writer
from iclflow.system.progress import progress_bar

__all__ = ["Outcome", "Reproduction", "reproduce"]

LONGEST = ("softmax", "ranks")  # begun first, so that nobody waits for them at the end


@dataclass(frozen=True)
class Outcome:
    """How a piece came about; `error` is None where it is there."""

    piece: Piece
    record: dict[str, Any] | None
    reused: bool = False
    error: str | None = None

    def __str__(self) -> str:
        name = f"{self.piece[1]}" if self.piece[0] == "figures" else f"claims: {self.piece[1]}"
        if self.record is None:
            return f"{name:28s} FAILED  {self.error}"
        how = "  as before" if self.reused else f"{self.record['seconds']:9.1f} s"
        return f"{name:28s}{how}   {headline(self.record)}"


def headline(record: dict[str, Any]) -> str:
    if "claims" in record:
        held = sum(claim["status"] == "pass" for claim in record["claims"])
        return f"{held} of {len(record['claims'])} claims hold"
    gap = record["gaps"][0]
    return f"{gap['what']}: {gap['measured']:.2g}"


@dataclass
class Reproduction:
    """Everything that is in the directory now."""

    out: Path
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        made = {o.piece[1]: o.record for o in self.outcomes if o.piece[0] == "figures" and o.record}
        return {name: made[name] for name in NAMES if name in made}

    @property
    def claims(self) -> list[dict[str, Any]]:
        ours = (o for o in self.outcomes if o.piece[0] == "claims" and o.record)
        return [claim for o in sorted(ours, key=lambda o: o.piece) for claim in o.record["claims"]]  # type: ignore[index]

    @property
    def failed(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.error is not None]

    @property
    def broken_claims(self) -> list[str]:
        return [claim["id"] for claim in self.claims if claim["status"] != "pass"]


def reproduce(
    *names: str,
    out: str | Path = "results",
    fast: bool = False,
    claims: bool | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Reproduction:
    """Reproduce figures by name, or all of the paper, into a directory; what is there and still true is used again.

    Args:
        fast: smaller runs, to see whether everything works.
        claims: measure the claims as well; by default when all figures are made.
        workers: processes, by default one a core.
        tell: called with every piece as it is done.
    """
    for name in names:
        if name not in NAMES:
            raise BadInput(f"name: {name!r} must be one of {', '.join(NAMES)}")
    if workers is not None and workers < 1:
        raise BadInput(f"workers: {workers} must be at least 1")
    begun, whole = time.perf_counter(), Reproduction(Path(out))
    wanted: list[Piece] = [("figures", name) for name in sorted(names or NAMES, key=lambda n: n not in LONGEST)]
    if claims or (claims is None and not names):
        wanted[len(LONGEST) : len(LONGEST)] = [("claims", subject) for subject in subjects()]
    open_folder(whole.out)
    with only_writer(whole.out), progress_bar("reproduce", progress) as report:
        for outcome in all_outcomes(wanted, whole.out, fast, workers or cores()):
            whole.outcomes.append(outcome)
            report(len(whole.outcomes) / len(wanted), f"{outcome.piece[1]}, {len(whole.outcomes)} of {len(wanted)}")
            tell(outcome)
        others = [("figures", name) for name in NAMES] + [("claims", subject) for subject in subjects()]
        asked = set(wanted)
        for piece in others:  # made earlier, not asked for now: the page shows them too
            record = None if piece in asked else finished(whole.out, piece, fast)
            if record is not None:
                whole.outcomes.append(Outcome(piece, record, reused=True))
        whole.seconds = time.perf_counter() - begun
        from iclflow.paper.report import write_report

        write_report(whole)
    return whole


def all_outcomes(wanted: list[Piece], out: Path, fast: bool, workers: int) -> Iterator[Outcome]:
    """First what is there already, then the rest as it gets done."""
    missing = []
    for piece in wanted:
        record = finished(out, piece, fast)
        if record is None:
            missing.append(piece)
        else:
            yield Outcome(piece, record, reused=True)
    yield from make_all(missing, out, fast, min(workers, max(len(missing), 1)))


def make_all(missing: list[Piece], out: Path, fast: bool, workers: int) -> Iterator[Outcome]:
    if not missing:
        return
    fresh = multiprocessing.get_context("spawn")  # a forked JAX can hang
    pool = ProcessPoolExecutor(workers, mp_context=fresh, initializer=ready_worker)
    try:
        futures = {pool.submit(make, piece, out, fast): piece for piece in missing}
        yield from collected(futures, as_completed(futures))
    finally:
        stop(pool)


def collected(
    futures: dict[Future[dict[str, Any]], Piece], done: Iterable[Future[dict[str, Any]]]
) -> Iterator[Outcome]:
    for future in done:
        try:
            yield Outcome(futures[future], future.result())
        except BrokenProcessPool:
            yield Outcome(futures[future], None, error="its process was killed")
        except IclflowError as error:
            if error.exit_code == 4:  # no room: the rest would fail as well
                raise
            yield Outcome(futures[future], None, error=str(error))
        except Exception as error:
            yield Outcome(futures[future], None, error=f"{type(error).__name__}: {error}".splitlines()[0])


def stop(pool: ProcessPoolExecutor) -> None:
    """At once: pieces are written whole, so nothing is lost by killing those who work on others."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=5)
