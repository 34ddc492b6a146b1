"""Which algorithm do weights run in context?

`subject` is what is probed, `scene` where, `outputs` what it answers. `candidates` are the algorithms it is compared
with, `naming` turns distances into a name; `gains`, `fixed_points`, `heads` and `off_distribution` look at the rest.
Nothing heavy is imported until it is asked for, so that a bad file is refused at once.
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
