"""The paper's figures and those beyond it, one file each: `draw(fast)` trains, draws theory and measures the gap.

The report prints the docstring of each file with its figure: the first line is the title, the rest says what to see.
Figures of the paper (`figures/`) come in its order. A file of `beyond/` is a figure of the chapter beyond the paper as
soon as it is there.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

from iclflow.errors import BadInput

__all__ = ["BEYOND", "CHAPTER", "NAMES", "figure_module", "figures_named"]

NAMES = (
    "abrupt-drop",
    "white-time-course",
    "saddle-to-saddle",
    "value-weights",
    "weight-maps",
    "ranks",
    "rank-weights",
    "softmax",
    "init-scale",
    "in-context-algorithm",
    "fixed-points",
    "conservation",
    "context-length",
    "icl-iwl",
    "noise-and-task-covariance",
)
CHAPTER = "beyond"  # names all figures beyond the paper at once
BEYOND = tuple(
    sorted(
        file.stem.replace("_", "-") for file in (Path(__file__).parent / CHAPTER).glob("*.py") if file.stem[0] != "_"
    )
)


def figures_named(names: Iterable[str]) -> tuple[str, ...]:
    """The figures that the user asks for: those of the paper by default, and for `beyond` its whole chapter."""
    wanted = list(names) or list(NAMES)
    for name in wanted:
        if name not in (*NAMES, CHAPTER, *BEYOND):
            raise BadInput(f"name: {name!r} must be one of {', '.join((*NAMES, CHAPTER, *BEYOND))}")
    every = [one for name in wanted for one in (BEYOND if name == CHAPTER else (name,))]
    return tuple(dict.fromkeys(every))


def figure_module(name: str) -> ModuleType:
    """The module that draws a figure; importing it imports JAX."""
    if name not in (*NAMES, *BEYOND):
        raise BadInput(f"name: {name!r} must be one of {', '.join((*NAMES, *BEYOND))}")
    room = "figures" if name in NAMES else CHAPTER
    return import_module(f"iclflow.paper.{room}.{name.replace('-', '_')}")
