"""`iclflow verify`: measure every claim against its bound."""

import json as json_text
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from iclflow.cli.parameters import named, switch
from iclflow.errors import BadInput
from iclflow.studies import every_claim
from iclflow.system.atomic import write_file
from iclflow.system.progress import progress_bar

if TYPE_CHECKING:
    from iclflow.studies.study import Study

__all__ = ["verify"]


def verify(
    *,
    only: Annotated[list[str] | None, named("ID..", "measure only these claims (ids, or the start of one)")] = None,
    quick: Annotated[bool, switch("only the claims that take a second or two")] = False,
    list_: Annotated[bool, switch("list the claims without measuring", name="--list")] = False,
    offset: Annotated[int, named("INT", "add this to every seed: a claim is about any seeds")] = 0,
    json: Annotated[str | None, named("FILE", "also write the outcomes to FILE")] = None,
) -> int:
    """Measure every claim of the paper, and ours beyond it, against its bound.

    Example: iclflow verify --only staircase --json claims.json
    """
    if json is not None and not Path(json).resolve().parent.is_dir():
        raise BadInput(f"json: {json!r} must be a file in an existing directory")
    if offset < 0:
        raise BadInput(f"offset: {offset} must be at least 0")
    from iclflow.studies.study import check

    claims = selected(every_claim(), only, quick)
    if list_:
        for c in claims:
            print(f"{c.name:28s} {c.source:24s} {c.title}")
        return 0
    begun, outcomes = time.perf_counter(), []
    print(f"{'claim':28s} {'measured':>10s} {'bound':>10s} {'margin':>8s}  {'':4s} {'s':>6s}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with progress_bar("verify") as report:
            for number, outcome in enumerate(check(claims, offset), 1):
                outcomes.append(outcome)
                print(line(outcome), flush=True)
                report(number / len(claims), f"{number} of {len(claims)}")
    failed = [o["id"] for o in outcomes if o["status"] != "pass"]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} claims hold, {time.perf_counter() - begun:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)}")
    if json is not None:
        results = {"offset": offset, "claims": outcomes}
        write_file(Path(json), json_text.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


def selected(claims: dict[str, "Study"], only: list[str] | None, quick: bool) -> list["Study"]:
    """The claims that `--only` and `--quick` leave."""
    chosen = [c for c in claims.values() if c.quick or not quick]
    for wanted in only or ():
        if not any(c.name.startswith(wanted) for c in claims.values()):
            raise BadInput(f"only: {wanted!r} must be the start of a claim's id; see iclflow verify --list")
    return [c for c in chosen if only is None or any(c.name.startswith(wanted) for wanted in only)]


def line(outcome: dict[str, Any]) -> str:
    """One row of the printed table."""
    bound, measured = outcome["bound"], outcome["measured"]
    margin = "exact" if bound == 0 and measured == 0 else f"{bound / measured:.1f}x" if measured > 0 else "-"
    status = "pass" if outcome["status"] == "pass" else "FAIL"
    return f"{outcome['id']:28s} {measured:10.2e} {bound:10.2e} {margin:>8s}  {status:4s} {outcome['seconds']:6.1f}"
