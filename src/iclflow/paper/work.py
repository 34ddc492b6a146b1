"""One piece of the reproduction, made in a process of its own and written to disk before it is reported."""

import contextlib
import inspect
import json
import signal
import time
import warnings
from pathlib import Path
from typing import Any

from iclflow.experiment import Experiment
from iclflow.paper.folder import Piece, keep

__all__ = ["make", "ready_worker", "subjects"]

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

    def write(where: Path) -> None:
        for kind in ("pdf", "png", "svg"):
            drawn.figure.savefig(where / f"{name}.{kind}", metadata={} if kind == "png" else {"Creator": "iclflow"})
        for table, numbers in drawn.numbers.items():
            numbers.to_csv(where / f"{'-'.join(filter(None, (name, table)))}.csv", index=False, float_format="%.8g")
        for label, experiment in drawn.experiments.items():
            (where / f"{file_name(label)}.toml").write_text(as_toml(name, label, experiment))

    return keep(out, ("figures", name), fast, facts, write)


def file_name(label: str) -> str:
    """A label with hyphens in place of all but letters, digits and dots."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in label).split())


def as_toml(name: str, label: str, experiment: Experiment) -> str:
    """Settings for `iclflow train --config FILE`; numbers, strings and lists are written alike in JSON and TOML."""
    rows = [f"{key} = {json.dumps(value)}" for key, value in experiment.flat().items() if value is not None]
    return "\n".join([f"# {name}: {label}", *rows, ""])


# --- claims -----------------------------------------------------------------------------------------------------------


def subjects() -> tuple[str, ...]:
    """The subjects of the claims, one per file of `claims`, without importing them."""
    folder = Path(__file__).parents[1] / "claims"
    return tuple(sorted(f.stem for f in folder.glob("*.py") if f.stem not in ("__init__", "registry")))


def make_claims(subject: str, out: Path, fast: bool) -> dict[str, Any]:
    from iclflow.claims import every_claim
    from iclflow.claims.registry import check

    begun = time.perf_counter()
    mine = [c for c in every_claim().values() if c.measure.__module__.endswith(f".{subject}") and (c.quick or not fast)]
    outcomes = [outcome.to_dict() for outcome in check(mine)]
    facts = {"claims": outcomes, "seconds": round(time.perf_counter() - begun, 2)}
    return keep(out, ("claims", subject), fast, facts, lambda where: None)
