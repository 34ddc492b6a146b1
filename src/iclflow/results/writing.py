"""A run as a directory, written completely or not at all.

summary.json          status, config, versions, and a SHA-256 of every other file
arrays.safetensors    `curves/*`, `weights/*` along training, `moments/*` where training saw a sample, and `optimizer/*`
weights.safetensors   `weights.*` before the first step, `final_weights.*` after the last
"""

import json
import os
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.results.labelled import to_tensors
from iclflow.results.tensors import write_tensors
from iclflow.system.atomic import files_below, written_whole
from iclflow.system.digest import file_digest, json_digest

__all__ = ["SCHEMA", "default_directory", "refuse_existing", "save_run"]

SCHEMA = 2


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
    """Write all arrays of a run; attributes and names of axes are metadata of the file."""
    arrays, metadata = to_tensors(run.groups)
    arrays |= {f"optimizer/{name}": array for name, array in run.optimizer_state.items()}
    write_tensors(where / "arrays.safetensors", arrays, metadata)
    tensors = {f"weights.{name}": array for name, array in run.initial_weights.items()}
    tensors |= {f"final_weights.{name}": array for name, array in run.final_weights.items()}
    write_tensors(where / "weights.safetensors", tensors, {"model": run.config["model"]})


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
