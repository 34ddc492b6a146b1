"""iclflow: training dynamics of in-context learning in linear attention, simulation and theory on one clock.

The front door: records of what to run, and the verbs. Nothing is computed here, and nothing is imported until a name is
used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iclflow import figures, theory
    from iclflow.comparison.compare import compare
    from iclflow.config import Task, Training
    from iclflow.data.sequences import sample
    from iclflow.errors import BadInput, DamagedStore, IclflowError, NoRoom
    from iclflow.inference.design import design
    from iclflow.inference.infer import infer
    from iclflow.models import MLP, Merged, Model, Separate
    from iclflow.prediction.predict import predict
    from iclflow.probing import probe
    from iclflow.results.run import Run
    from iclflow.studies.runner import reproduce
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
    "design",
    "figures",
    "infer",
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
NAMES = {
    "iclflow.comparison.compare": ("compare",),
    "iclflow.prediction.predict": ("predict",),
    "iclflow.config": ("Task", "Training"),
    "iclflow.data.sequences": ("sample",),
    "iclflow.errors": ("BadInput", "DamagedStore", "IclflowError", "NoRoom"),
    "iclflow.inference.design": ("design",),
    "iclflow.inference.infer": ("infer",),
    "iclflow.models": ("MLP", "Merged", "Model", "Separate"),
    "iclflow.probing": ("probe",),
    "iclflow.results.run": ("Run",),
    "iclflow.studies.runner": ("reproduce",),
    "iclflow.sweeps.load": ("load",),
    "iclflow.sweeps.sweep": ("sweep",),
    "iclflow.training": ("resume", "train"),
    "iclflow.versions": ("cite",),
}
HOMES = {name: module for module, names in NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("iclflow")
    if name in ROOMS:
        return import_module(f"iclflow.{name}")
    raise AttributeError(f"module 'iclflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
