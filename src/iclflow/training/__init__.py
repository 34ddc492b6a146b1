"""The verb: from a task, a model and a few settings to a `Run`.

`inputs` reads what the user gave, `plan` holds what all seeds share, `by_descent` and `by_flow` walk one seed down,
`resuming` continues a run from where it stopped. JAX is imported when a verb is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iclflow.training.resuming import resume
    from iclflow.training.start import train

__all__ = ["resume", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"iclflow.training.{'start' if name == 'train' else 'resuming'}"), name)
    raise AttributeError(f"module 'iclflow.training' has no attribute {name!r}")
