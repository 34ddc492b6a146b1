"""One piece of the reproduction, made in a process of its own and written to disk before it is reported."""

import contextlib
import inspect
import signal
import time
import warnings
from pathlib import Path
from typing import Any

from iclflow.paper.folder import Piece, keep

__all__ = ["make", "ready_worker"]

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def ready_worker() -> None:
    """Leave Ctrl-C to the parent process, and die with it however it ends."""
    import ctypes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def make(piece: Piece, out: Path, fast: bool) -> dict[str, Any]:
    """Make a figure or measure a subject's claims; returns what piece.json holds."""
    kind, name = piece
    return make_figure(name, out, fast) if kind == "figures" else make_claims(name, out, fast)


# --- figures ----------------------------------------------------------------------------------------------------------


def make_figure(name: str, out: Path, fast: bool) -> dict[str, Any]:
    from iclflow.paper import figure_module
    from iclflow.paper.handout import write_handout
    from iclflow.versions import versions

    begun = time.perf_counter()
    module = figure_module(name)
    drawn = module.draw(fast)
    title, _, see = (inspect.getdoc(module) or "").partition("\n")
    facts = {
        "title": title.rstrip("."),
        "see": " ".join(see.split()),
        "source": module.SOURCE,
        "gaps": [{"what": gap.what, "measured": gap.measured} for gap in drawn.gaps],
        "runs": {label: experiment.flat() for label, experiment in drawn.experiments.items()},
        "seconds": round(time.perf_counter() - begun, 2),
        "versions": versions(),
    }
    write = lambda where: write_handout(where, name, drawn, facts, inspect.getsource(module), fast)
    return keep(out, ("figures", name), fast, facts, write)


# --- claims -----------------------------------------------------------------------------------------------------------


def make_claims(subject: str, out: Path, fast: bool) -> dict[str, Any]:
    from iclflow.claims import every_claim
    from iclflow.claims.registry import check

    begun = time.perf_counter()
    mine = [c for c in every_claim().values() if c.measure.__module__.endswith(f".{subject}") and (c.quick or not fast)]
    outcomes = [outcome.to_dict() for outcome in check(mine)]
    facts = {"claims": outcomes, "seconds": round(time.perf_counter() - begun, 2)}
    return keep(out, ("claims", subject), fast, facts, lambda where: None)
