"""Opening results, whatever they are: a run, or a sweep of many."""

from pathlib import Path
from typing import Any

__all__ = ["load"]


def load(path: str | Path) -> Any:
    """The run or the sweep in a directory, exactly as it was written; damage is an error or marked, never numbers.

    A sweep may be unfinished, or even at work: what is missing is NaN and says so in `status`.
    """
    from iclflow.sweeps.store import is_sweep

    if is_sweep(Path(path)):
        from iclflow.sweeps.gathered import gather

        return gather(path)
    from iclflow.run_files import load_run

    return load_run(path)
