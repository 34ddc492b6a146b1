"""`iclflow reproduce`: the figures and claims of the paper, in a directory with a web page."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from iclflow.cli.parameters import named, switch
from iclflow.errors import BadInput
from iclflow.studies import BEYOND, NAMES

__all__ = ["reproduce"]


def reproduce(
    *names: Annotated[str, Parameter(help="figures, or beyond for the chapter beyond it (default: all of the paper)")],
    out: Annotated[str, named("DIR", "directory for the results")] = "results",
    fast: Annotated[bool, switch("smaller runs, to check that everything works")] = False,
    claims: Annotated[
        bool | None, switch("measure the claims too (default: if no figure is named)", off="--no-claims")
    ] = None,
    workers: Annotated[str | None, named("INT", "processes (default: one per core)")] = None,
    list_: Annotated[bool, switch("list the figures", name="--list")] = False,
) -> int:
    """Reproduce the paper: figures with theory over every simulation, and the error of each claim.

    Example: iclflow reproduce saddle-to-saddle ranks --out results

    `iclflow reproduce beyond` adds the chapter beyond the paper to the same report, with --claims its claims too.

    Results are cached: what this version of the program has made is used again, and an interrupted call resumes.
    """
    if list_:
        print("\n".join((*NAMES, *BEYOND)))
        return 0
    if workers is not None and not (workers.isdigit() and int(workers) > 0):
        raise BadInput(f"workers: {workers!r} must be a whole number of at least 1")
    from iclflow.studies.runner import reproduce as reproduce_paper

    count = None if workers is None else int(workers)
    tell = lambda outcome: print(outcome, flush=True)
    results = reproduce_paper(*names, out=out, fast=fast, claims=claims, workers=count, tell=tell)
    total, broken = len(results.claims), results.broken_claims
    held = f", {total - len(broken)} of {total} claims hold" if total else ""
    print(f"{Path(out) / 'index.html'}: {len(results.figures)} figures{held}, {results.seconds:.0f} s")
    for outcome in results.failed:
        print(f"failed: {outcome.piece[1]}: {outcome.error}")
    if broken:
        print(f"claims that do not hold: {', '.join(broken)}")
    return 1 if results.failed or broken else 0
