"""Reading a run back from its directory without loss. Opening a run never imports the user's code."""

import json
from pathlib import Path

import numpy as np

from iclflow.errors import BadInput, DamagedStore
from iclflow.experiment import Experiment
from iclflow.models import Model
from iclflow.results.earlier import earlier_arrays
from iclflow.results.labelled import labelled_tensors
from iclflow.results.run import Run
from iclflow.results.tensors import read_metadata, read_tensors
from iclflow.results.writing import SCHEMA
from iclflow.system.digest import file_digest

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
    if schema not in (1, SCHEMA):
        raise DamagedStore(f"{path}: has schema {schema}, this version reads 1 and {SCHEMA}")
    for name, digest in files.items():
        if not (path / name).is_file() or file_digest(path / name) != digest:
            raise DamagedStore(f"{path}/{name}: is missing or damaged")
    initial = starting_with("weights.", read_tensors(str(path / "weights.safetensors")))
    if schema == SCHEMA:
        file = path / "arrays.safetensors"
        tensors = read_tensors(str(file))
        groups, state = labelled_tensors(tensors, read_metadata(file)), starting_with("optimizer/", tensors)
    else:
        groups, state = earlier_arrays(path)
    return Run(
        Experiment.from_file(config, model),
        groups["curves"],
        groups["weights"],
        initial,
        summary,
        state,
        groups.get("moments"),
    )


def starting_with(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
