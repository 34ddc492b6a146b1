"""iclflow: training dynamics of in-context learning in linear attention, simulation and theory on one clock.

The front door: records of what to run, and the verbs. Nothing is computed here, and nothing heavy is imported until a
verb is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iclflow.config import Task, Training
from iclflow.errors import BadInput, DamagedStore, IclflowError, NoRoom
from iclflow.models import MLP, Merged, Model, Separate

if TYPE_CHECKING:
    from iclflow import figures, theory
    from iclflow.comparison.compare import compare
    from iclflow.comparison.prediction import predict
    from iclflow.data.sequences import sample
    from iclflow.paper.runner import reproduce
    from iclflow.probing import probe
    from iclflow.results.run import Run
    from iclflow.sweeps.load import load
    from iclflow.sweeps.sweep import sweep
    from iclflow.training import resume, train
    from iclflow.versions import cite

__all__ = [
    "MLP",
    "BadInput",
    "DamagedStore",
    "IclflowError",
    "Merged",
    "Model",
    "NoRoom",
    "Run",
    "Separate",
    "Task",
    "Training",
    "cite",
    "compare",
    "figures",
    "load",
    "predict",
    "probe",
    "reproduce",
    "resume",
    "sample",
    "sweep",
    "theory",
    "train",
]

ROOMS = ("figures", "theory")
VERBS = {
    "Run": ("iclflow.results.run", "Run"),
    "cite": ("iclflow.versions", "cite"),
    "compare": ("iclflow.comparison.compare", "compare"),
    "load": ("iclflow.sweeps.load", "load"),
    "predict": ("iclflow.comparison.prediction", "predict"),
    "probe": ("iclflow.probing", "probe"),
    "reproduce": ("iclflow.paper.runner", "reproduce"),
    "resume": ("iclflow.training", "resume"),
    "sample": ("iclflow.data.sequences", "sample"),
    "sweep": ("iclflow.sweeps.sweep", "sweep"),
    "train": ("iclflow.training", "train"),
}


def __getattr__(name: str) -> Any:
    if name in VERBS:
        module, attribute = VERBS[name]
        return getattr(import_module(module), attribute)
    if name == "__version__":
        return import_module("importlib.metadata").version("iclflow")
    if name in ROOMS:
        return import_module(f"iclflow.{name}")
    raise AttributeError(f"module 'iclflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
