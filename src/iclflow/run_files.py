"""A run as a directory, written all or nothing and read back without loss.

    summary.json          status, config, versions, and a SHA-256 of every other file
    arrays.zarr/          groups `curves` and `weights`
    weights.safetensors   `weights.*` before the first step, `final_weights.*` after the last
    optimizer.safetensors what momentum and Adam remember (absent for plain descent and for the flow)

`whole_directory` sees to it that the directory appears at once or not at all.
"""

import hashlib
import json
from pathlib import Path

import xarray as xr

from iclflow.config import Experiment
from iclflow.errors import BadInput, DamagedStore
from iclflow.out_directory import refuse_existing
from iclflow.run import Run
from iclflow.weight_files import read_tensors, write_tensors
from iclflow.whole_directory import files_below, written_whole

__all__ = ["load_run", "save_run"]

SCHEMA = 1


def save_run(run: Run, path: Path, overwrite: bool) -> Path:
    refuse_existing(path, overwrite)
    with written_whole(path) as scratch:
        write_arrays(run, scratch)
        digests = {str(f.relative_to(scratch)): digest(f) for f in files_below(scratch)}
        summary = {"schema": SCHEMA, **run.summary, "files": digests}
        (scratch / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    return path


def write_arrays(run: Run, where: Path) -> None:
    for group in ("curves", "weights"):
        dataset: xr.Dataset = getattr(run, group)
        whole = {name: {"chunks": v.shape} for name, v in dataset.variables.items() if v.size}
        dataset.to_zarr(where / "arrays.zarr", group=group, mode="a", consolidated=False, encoding=whole)
    tensors = {f"weights.{name}": array for name, array in run.initial_weights.items()}
    tensors |= {f"final_weights.{name}": array for name, array in run.final_weights.items()}
    write_tensors(where / "weights.safetensors", tensors, {"model": run.model.kind})
    if run.optimizer_state:
        write_tensors(where / "optimizer.safetensors", run.optimizer_state)


def load_run(path: str | Path) -> Run:
    """Read a run back; any file that is missing or not what was written is an error, never numbers."""
    path = Path(path)
    if not (path / "summary.json").is_file():
        raise BadInput(f"path: {str(path)!r} must be a run directory with a summary.json")
    try:
        summary = json.loads((path / "summary.json").read_text())
        schema, files, config = summary.pop("schema"), summary.pop("files"), summary["config"]
    except (ValueError, KeyError, AttributeError, TypeError, OSError):
        raise DamagedStore(f"{path}/summary.json: is damaged") from None
    if schema != SCHEMA:
        raise DamagedStore(f"{path}: has schema {schema}, this version reads {SCHEMA}")
    for name, expected in files.items():
        if not (path / name).is_file() or digest(path / name) != expected:
            raise DamagedStore(f"{path}/{name}: is missing or damaged")
    curves, weights = (open_group(path / "arrays.zarr", group) for group in ("curves", "weights"))
    tensors = read_tensors(str(path / "weights.safetensors"))
    initial = {name[8:]: array for name, array in tensors.items() if name.startswith("weights.")}
    state = path / "optimizer.safetensors"
    optimizer = read_tensors(str(state)) if state.is_file() else {}
    return Run(Experiment.from_flat(config), curves, weights, initial, summary, optimizer)


def open_group(store: Path, group: str) -> xr.Dataset:
    with xr.open_zarr(store, group=group, consolidated=False, chunks=None) as dataset:
        return dataset.load()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
