"""Opens saved results: a run, or a sweep of many runs."""

from pathlib import Path
from typing import Any

from iclflow.models import Model
from iclflow.results.loading import load_run
from iclflow.sweeps.store.protocol import is_sweep

__all__ = ["load"]


def load(path: str | Path, model: type[Model] | None = None) -> Any:
    """Open the run or the sweep in a directory.

    A sweep may be unfinished, or still running: missing and damaged runs are NaN, and `status` says which they are.

    Args:
        path: the directory.
        model: the class of your own model, if its module has not been imported; opening a file imports nothing.

    Returns:
        A `Run` or a `Sweep`, exactly as it was written.

    Raises:
        BadInput: if the directory contains neither.
        DamagedStore: if a file has changed since it was written.
    """
    if is_sweep(Path(path)):
        from iclflow.sweeps.results import gather

        return gather(path)
    return load_run(path, model)
