"""The paper's figures, one file each: `draw(fast)` trains, draws theory over the simulation and measures the gap.

The report prints the docstring of each file with its figure: the first line is the title, the rest says what to see.
"""

from importlib import import_module
from types import ModuleType

from iclflow.errors import BadInput

__all__ = ["NAMES", "figure_module"]

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


def figure_module(name: str) -> ModuleType:
    """The module that draws a figure; importing it imports JAX."""
    if name not in NAMES:
        raise BadInput(f"name: {name!r} must be one of {', '.join(NAMES)}")
    return import_module(f"iclflow.paper.figures.{name.replace('-', '_')}")
