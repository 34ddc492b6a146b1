"""The user's own sequences that a run was trained on, read again."""

from typing import Any

from iclflow.config import Task
from iclflow.data.own import OwnData, read_own_data
from iclflow.errors import BadInput
from iclflow.results.run import Run

__all__ = ["same_data"]


def same_data(run: Run, given: Any = None) -> OwnData | None:
    """The data of a run, from `given`, from memory or from the file, checked by digest; `None` if they were sampled."""
    if run.experiment.data is None:
        return None
    if given is None and run.own is not None:
        return run.own
    source = run.experiment.data if given is None else given
    if isinstance(source, str) and source == "array":
        raise BadInput("data: this run was trained on an array in memory; give the same array again")
    own = read_own_data(source, Task(out_dim=run.task.out_dim))[0]
    if own.digest != run.summary["data_sha256"]:
        raise BadInput("data: is not what this run was trained on")
    return own
