"""Runs that versions 0.1 and 0.2 wrote: arrays in a Zarr store, the optimiser's state in a file, NaN behind the end."""

from pathlib import Path
from typing import Any

import numpy as np

from iclflow.results.labelled import Labelled, Variable, last_steps, stack_held
from iclflow.results.tensors import read_tensors

__all__ = ["earlier_arrays", "with_its_seed"]


def earlier_arrays(path: Path) -> tuple[dict[str, Labelled], dict[str, np.ndarray]]:
    """The groups of arrays of a run, and the state of its optimiser."""
    import xarray

    groups, state = {}, path / "optimizer.safetensors"
    for group in sorted(folder.name for folder in (path / "arrays.zarr").iterdir() if folder.is_dir()):
        with xarray.open_zarr(path / "arrays.zarr", group=group, consolidated=False, chunks=None) as dataset:
            arrays = dataset.load().variables.items()
        kept = {str(n): Variable(tuple(map(str, a.dims)), a.values, a.attrs) for n, a in arrays}
        groups[group] = Labelled(held(kept) if group != "moments" and "seed" in kept else kept)
    return groups, read_tensors(str(state)) if state.is_file() else {}


def held(arrays: dict[str, Variable]) -> dict[str, Variable]:
    """The arrays of several seeds with the last entry of a shorter one in place of NaN."""
    times = arrays["time"].values
    ends = np.broadcast_to((~np.isnan(times)).sum(axis=-1), arrays["seed"].values.shape)
    hold = lambda v: stack_held([one[:end] for one, end in zip(v.values, ends, strict=True)])
    padded = {name: v._replace(values=hold(v)) for name, v in arrays.items() if v.dims[0] == "seed" != v.dims[-1]}
    return {**arrays, **padded, **({"last_step": last_steps(ends.tolist())} if "loss" in arrays else {})}


def with_its_seed(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with settings of its one seed where it was saved as one of several, and kept the settings of all."""
    config, (seed, *others) = summary["config"], summary["seeds"]
    if others or seed not in range(config["seed"], config["seed"] + config["seeds"]):
        return summary
    return {**summary, "config": {**config, "seed": seed, "seeds": 1}}
