"""Theory: pure functions of the task and the initial weights; nothing here knows the engines.

Start at `landscape`: the population loss and the drive and curvature of its directions, which all the rest builds on.
The other modules are imported when they are asked for. One verb that draws initial weights of a model,
`drop_time_distribution`, is reached here and lives in `comparison`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iclflow.theory.landscape import Directions, Landscape, directions, landscape, minimum, plateau_losses

if TYPE_CHECKING:
    from iclflow.theory import algorithm, decay, depth, in_weight, merged, separate, single_mode
    from iclflow.theory.laws import lazy, scaling, softmax, task_sets, white

__all__ = [
    "Directions",
    "Landscape",
    "algorithm",
    "decay",
    "depth",
    "directions",
    "drop_time_distribution",
    "in_weight",
    "landscape",
    "lazy",
    "merged",
    "minimum",
    "plateau_losses",
    "scaling",
    "separate",
    "single_mode",
    "softmax",
    "task_sets",
    "white",
]

LAWS = ("lazy", "scaling", "softmax", "task_sets", "white")


def __getattr__(name: str) -> Any:
    if name == "drop_time_distribution":
        return import_module("iclflow.comparison.distribution").drop_time_distribution
    if name in __all__:
        return import_module(f"iclflow.theory.{'laws.' if name in LAWS else ''}{name}")
    raise AttributeError(f"module 'iclflow.theory' has no attribute {name!r}")
