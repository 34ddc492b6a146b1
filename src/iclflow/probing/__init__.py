"""Which algorithm do weights implement in context?

A `subject` is probed in a `setting`, and its predictions are its `outputs`. They are compared with `candidates`, and
`naming` turns the distances into a name; `gains`, `fixed_points`, `heads` and `off_distribution` measure further
properties. Heavy modules are imported on first use, so that a bad file is refused at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iclflow.probing.result import Probe
    from iclflow.probing.verb import probe

__all__ = ["Probe", "probe"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"iclflow.probing.{'verb' if name == 'probe' else 'result'}"), name)
    raise AttributeError(f"module 'iclflow.probing' has no attribute {name!r}")
