"""Opening results, whatever they are: a run, or a sweep of many."""

from pathlib import Path
from typing import Any

from iclflow.models import Model
from iclflow.results.loading import load_run
from iclflow.sweeps.store.protocol import is_sweep

__all__ = ["load"]


def load(path: str | Path, model: type[Model] | None = None) -> Any:
    """The run or the sweep in a directory, exactly as it was written; damage is an error or marked, never numbers.

    A sweep may be unfinished, or even running: what is missing is NaN and says so in `status`.

    Args:
        path: the directory.
        model: the class of a model of your own, if its module has not been imported; opening a file imports nothing.

    Returns:
        A `Run`, or a `Sweep` of many.

    Raises:
        BadInput: if the directory holds neither.
        DamagedStore: if a file is not what was written.
    """
    if is_sweep(Path(path)):
        from iclflow.sweeps.results import gather

        return gather(path)
    return load_run(path, model)
