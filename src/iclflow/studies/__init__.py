"""What is measured: every claim and every figure of the paper, and ours beyond it, one file per subject.

A study is a function, described by its docstring. A claim measures one number against a bound that it can exceed, a
figure draws theory over simulation and measures how far apart they are. `iclflow verify` measures the claims,
`iclflow reproduce` keeps figures and claims in a folder, with a report.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from iclflow.errors import BadInput

if TYPE_CHECKING:
    from iclflow.studies.study import Study

__all__ = ["BEYOND", "CHAPTER", "NAMES", "SUBJECTS", "every_claim", "figure_named", "figures_named"]

CHAPTER = "beyond"  # names all figures beyond the paper at once
SUBJECTS = {  # the files of either chapter that have claims
    "paper": (
        "equivalence", "merged", "fixed_points", "staircase", "ranks", "algorithm", "variants", "in_weight", "regimes",
    ),
    CHAPTER: (
        "tasks", "distribution", "scaling", "decay", "optimisers", "edge", "minibatches", "depth", "forecasts",
        "inference",
    ),
}  # fmt: skip
FILES = {  # the file that draws each figure; those of the paper in its order
    "abrupt-drop": "paper.merged",
    "white-time-course": "paper.merged",
    "saddle-to-saddle": "paper.staircase",
    "value-weights": "paper.staircase",
    "weight-maps": "paper.staircase",
    "ranks": "paper.ranks",
    "rank-weights": "paper.ranks",
    "softmax": "paper.regimes",
    "init-scale": "paper.regimes",
    "in-context-algorithm": "paper.algorithm",
    "fixed-points": "paper.fixed_points",
    "conservation": "paper.fixed_points",
    "context-length": "paper.variants",
    "icl-iwl": "paper.in_weight",
    "noise-and-task-covariance": "paper.variants",
    "decay": "beyond.decay",
    "depth": "beyond.layers",
    "depth-context": "beyond.layers",
    "depth-weights": "beyond.layers",
    "drop-time-distribution": "beyond.distribution",
    "edge": "beyond.edge",
    "minibatches": "beyond.minibatches",
    "optimisers": "beyond.optimisers",
    "scaling-laws": "beyond.scaling",
    "spectra-from-curves": "beyond.inference",
    "task-diversity": "beyond.tasks",
}
NAMES = tuple(name for name, file in FILES.items() if file.startswith("paper."))
BEYOND = tuple(name for name in FILES if name not in NAMES)


def figures_named(names: Iterable[str]) -> tuple[str, ...]:
    """The figures that the user asks for: those of the paper by default, and for `beyond` its whole chapter."""
    wanted, known = list(names) or list(NAMES), (*NAMES, CHAPTER, *BEYOND)
    for name in wanted:
        if name not in known:
            raise BadInput(f"name: {name!r} must be one of {', '.join(known)}")
    every = [one for name in wanted for one in (BEYOND if name == CHAPTER else (name,))]
    return tuple(dict.fromkeys(every))


def figure_named(name: str) -> "Study":
    """The study that draws a figure; this imports JAX."""
    from iclflow.studies.study import STUDIES

    if name not in FILES:
        raise BadInput(f"name: {name!r} must be one of {', '.join(FILES)}")
    import_module(f"iclflow.studies.{FILES[name]}")
    return STUDIES[name]


def every_claim(*subjects: str) -> dict[str, "Study"]:
    """The claims of some subjects, or all of them, by their names and in the order of the subjects."""
    from iclflow.studies.study import STUDIES

    files = {subject: chapter for chapter, those in SUBJECTS.items() for subject in those}
    found: dict[str, Study] = {}
    for subject in subjects or files:
        module = import_module(f"iclflow.studies.{files[subject]}.{subject}").__name__
        found |= {s.name: s for s in STUDIES.values() if s.bound is not None and s.function.__module__ == module}
    return found
