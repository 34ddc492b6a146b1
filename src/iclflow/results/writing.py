"""A run as a directory, written completely or not at all.

summary.json          status, config, versions, and a SHA-256 of every other file
arrays.zarr/          groups `curves` and `weights`, and `moments` where training saw a sample
weights.safetensors   `weights.*` before the first step, `final_weights.*` after the last
optimizer.safetensors the state of momentum and Adam (absent for plain descent and for the flow)
"""

import json
import os
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.results.tensors import write_tensors
from iclflow.system.atomic import files_below, written_whole
from iclflow.system.digest import file_digest, json_digest

__all__ = ["GROUPS", "SCHEMA", "default_directory", "refuse_existing", "save_run"]

SCHEMA = 1
GROUPS = ("curves", "weights", "moments")


def save_run(run: Any, path: Path, overwrite: bool) -> Path:
    """Write a `Run` to a directory that appears at once or not at all."""
    refuse_existing(path, overwrite)
    with written_whole(path) as scratch:
        write_arrays(run, scratch)
        digests = {str(f.relative_to(scratch)): file_digest(f) for f in files_below(scratch)}
        summary = {"schema": SCHEMA, **run.summary, "files": digests}
        (scratch / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    return path


def write_arrays(run: Any, where: Path) -> None:
    """Write all arrays of a run, each as one chunk."""
    from iclflow.results.zarr_group import write_group

    for group in GROUPS:
        arrays = run.arrays(group)
        if arrays is not None:
            write_group(where / "arrays.zarr", group, arrays)
    tensors = {f"weights.{name}": array for name, array in run.initial_weights.items()}
    tensors |= {f"final_weights.{name}": array for name, array in run.final_weights.items()}
    write_tensors(where / "weights.safetensors", tensors, {"model": run.config["model"]})
    if run.optimizer_state:
        write_tensors(where / "optimizer.safetensors", run.optimizer_state)


def default_directory(experiment: Experiment) -> Path:
    """`runs/<model>-<short hash of all settings>`."""
    name = experiment.model.kind.rpartition(":")[2]
    return Path("runs") / f"{name}-{json_digest(experiment.flat())[:8]}"


def refuse_existing(path: Path, overwrite: bool, how: str = "overwrite=True") -> None:
    """Raise `BadInput` if `path` cannot be written to, or exists and is not a run that may be overwritten."""
    if not path.exists():
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise BadInput(
                f"out: {str(path)!r} cannot be made: {str(parent)!r} must be a directory that you can write to"
            )
        return
    if not overwrite:
        raise BadInput(f"out: {str(path)!r} exists; choose another directory, or give {how}")
    if not (path / "summary.json").is_file() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"out: {str(path)!r} is not a run; only runs are overwritten")
