"""`iclflow reproduce`: the figures and claims of the paper into a directory with a page."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from iclflow.errors import BadInput
from iclflow.paper import NAMES

__all__ = ["reproduce"]


def reproduce(
    *names: Annotated[str, Parameter(help="figures to make; none: all of the paper, and its claims")],
    out: Annotated[str, Parameter(help="directory of the results")] = "results",
    fast: Annotated[bool, Parameter(help="smaller runs, to see that everything works", negative=())] = False,
    claims: Annotated[bool | None, Parameter(help="measure the claims too (default: with all figures)")] = None,
    workers: Annotated[str | None, Parameter(help="processes (default: one a core)")] = None,
    list_: Annotated[bool, Parameter(name="--list", help="list the figures", negative=())] = False,
) -> int:
    """Reproduce the paper: figures with theory over every simulation, and the error of each claim.

    Example: iclflow reproduce saddle-to-saddle ranks --out results

    What is there already and made by the same program is used again; after an interruption the next call goes on.
    """
    if list_:
        print("\n".join(NAMES))
        return 0
    if workers is not None and not (workers.isdigit() and int(workers) > 0):
        raise BadInput(f"workers: {workers!r} must be a whole number of at least 1")
    from iclflow.paper.runner import reproduce as verb

    count = None if workers is None else int(workers)
    whole = verb(*names, out=out, fast=fast, claims=claims, workers=count, tell=lambda o: print(o, flush=True))
    held = (
        f", {len(whole.claims) - len(whole.broken_claims)} of {len(whole.claims)} claims hold" if whole.claims else ""
    )
    print(f"{Path(out) / 'index.html'}: {len(whole.figures)} figures{held}, {whole.seconds:.0f} s")
    for outcome in whole.failed:
        print(f"failed: {outcome.piece[1]}: {outcome.error}")
    if whole.broken_claims:
        print(f"claims that do not hold: {', '.join(whole.broken_claims)}")
    return 1 if whole.failed or whole.broken_claims else 0
