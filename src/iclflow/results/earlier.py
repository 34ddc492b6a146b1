"""Arrays of runs that versions 0.1 and 0.2 wrote: a Zarr store, and a file for the state of the optimiser."""

from pathlib import Path
from typing import Any

import numpy as np

from iclflow.results.labelled import Labelled, Variable
from iclflow.results.tensors import read_tensors

__all__ = ["earlier_arrays", "with_its_seed"]


def earlier_arrays(path: Path) -> tuple[dict[str, Labelled], dict[str, np.ndarray]]:
    """The groups of arrays of a run, and the state of its optimiser."""
    import xarray

    groups, state = {}, path / "optimizer.safetensors"
    for group in sorted(folder.name for folder in (path / "arrays.zarr").iterdir() if folder.is_dir()):
        with xarray.open_zarr(path / "arrays.zarr", group=group, consolidated=False, chunks=None) as dataset:
            arrays = dataset.load().variables.items()
        groups[group] = Labelled({str(n): Variable(tuple(map(str, a.dims)), a.values, a.attrs) for n, a in arrays})
    return groups, read_tensors(str(state)) if state.is_file() else {}


def with_its_seed(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with settings of its one seed where it was saved as one of several, and kept the settings of all."""
    config, (seed, *others) = summary["config"], summary["seeds"]
    if others or seed not in range(config["seed"], config["seed"] + config["seeds"]):
        return summary
    return {**summary, "config": {**config, "seed": seed, "seeds": 1}}
