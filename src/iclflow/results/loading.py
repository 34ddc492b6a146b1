"""Reading a run back from its directory without loss. Opening a run never imports the user's code."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from iclflow.errors import BadInput, DamagedStore
from iclflow.experiment import Experiment
from iclflow.models import Model
from iclflow.results.run import Run
from iclflow.results.tensors import read_tensors
from iclflow.results.writing import GROUPS, SCHEMA
from iclflow.system.digest import file_digest

if TYPE_CHECKING:
    import xarray

__all__ = ["is_run", "load_run"]


def is_run(path: str | Path) -> bool:
    """Whether a directory holds a run."""
    return (Path(path) / "summary.json").is_file()


def load_run(path: str | Path, model: type[Model] | None = None) -> Run:
    """Read a run back; a file that is missing or differs from what was written raises an error.

    Args:
        path: the directory of the run.
        model: the class of your own model, if its module has not been imported; without it curves and weights can
            still be read.

    Returns:
        The run as it was saved.

    Raises:
        BadInput: the directory holds no run.
        DamagedStore: a file is missing or damaged, or was written in another schema.
    """
    path = Path(path)
    if not is_run(path):
        raise BadInput(f"path: {str(path)!r} must be a run directory with a summary.json")
    try:
        summary = json.loads((path / "summary.json").read_text())
        schema, files, config = summary.pop("schema"), summary.pop("files"), summary["config"]
    except (ValueError, KeyError, AttributeError, TypeError, OSError):
        raise DamagedStore(f"{path}/summary.json: is damaged") from None
    if schema != SCHEMA:
        raise DamagedStore(f"{path}: has schema {schema}, this version reads {SCHEMA}")
    for name, digest in files.items():
        if not (path / name).is_file() or file_digest(path / name) != digest:
            raise DamagedStore(f"{path}/{name}: is missing or damaged")
    curves, weights, moments = (open_group(path / "arrays.zarr", group) for group in GROUPS)
    if curves is None or weights is None:
        raise DamagedStore(f"{path}/arrays.zarr: is missing or damaged")
    tensors = read_tensors(str(path / "weights.safetensors"))
    initial = {name.removeprefix("weights."): array for name, array in tensors.items() if name.startswith("weights.")}
    state = path / "optimizer.safetensors"
    optimizer = read_tensors(str(state)) if state.is_file() else {}
    return Run(Experiment.from_file(config, model), curves, weights, initial, summary, optimizer, moments)


def open_group(store: Path, group: str) -> "xarray.Dataset | None":
    """One group of arrays, loaded into memory; `None` if there is no such group."""
    if not (store / group).is_dir():
        return None
    import xarray

    with xarray.open_zarr(store, group=group, consolidated=False, chunks=None) as dataset:
        return dataset.load()
