"""The paper's figures, one file each: `draw(fast)` trains, lays theory over it and measures the gap.

The docstring of a file is what the report says of the figure: its first line the title, the rest what to see.
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
    """The file of a figure; loading it loads JAX."""
    if name not in NAMES:
        raise BadInput(f"name: {name!r} must be one of {', '.join(NAMES)}")
    return import_module(f"iclflow.paper.figures.{name.replace('-', '_')}")
