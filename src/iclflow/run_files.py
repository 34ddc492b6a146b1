"""A run as a directory, written all or nothing and read back without loss.

    summary.json          status, config, versions, and a SHA-256 of every other file
    arrays.zarr/          groups `curves` and `weights`
    weights.safetensors   `weights.*` before the first step, `final_weights.*` after the last
    optimizer.safetensors what momentum and Adam remember (absent for plain descent and for the flow)

Everything goes to a hidden directory beside the target, is forced to the disk, and is renamed into place last.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from iclflow.config import Experiment
from iclflow.errors import BadInput, DamagedStore, NoRoom
from iclflow.out_directory import refuse_existing
from iclflow.run import Run
from iclflow.weight_files import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["load_run", "save_run"]

SCHEMA = 1


def save_run(run: Run, path: Path, overwrite: bool) -> Path:
    refuse_existing(path, overwrite)
    scratch = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        scratch.mkdir(parents=True)
        write_arrays(run, scratch)
        digests = {str(f.relative_to(scratch)): digest(f) for f in files_below(scratch)}
        summary = {"schema": SCHEMA, **run.summary, "files": digests}
        (scratch / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
        force_to_disk(scratch)
        move_into_place(scratch, path)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
            raise NoRoom(f"out: cannot write {str(path)!r}: {os.strerror(error.errno)}") from None
        raise BadInput(f"out: cannot write {str(path)!r}: {os.strerror(error.errno or 0)}") from None
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
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


def move_into_place(scratch: Path, path: Path) -> None:
    """A directory cannot be renamed over a full one, so an old run steps aside first."""
    if path.exists():
        aside = path.parent / f".{path.name}.{secrets.token_hex(4)}.old"
        path.rename(aside)
        scratch.rename(path)
        shutil.rmtree(aside)
    else:
        scratch.rename(path)
    sync_directory(path.parent)


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


def files_below(where: Path) -> "Iterator[Path]":
    return (f for f in sorted(where.rglob("*")) if f.is_file())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def force_to_disk(where: Path) -> None:
    for file in files_below(where):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    for directory in [where, *(d for d in where.rglob("*") if d.is_dir())]:
        sync_directory(directory)


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
