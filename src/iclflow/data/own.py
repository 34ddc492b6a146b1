"""The user's own sequences, from memory or an `.npz` file, checked before anything is computed.

`sequences` (P, N+1, D+O): one token per row with its labels, the query last, with its true labels. Optional are test
sets `sequences_icl` and `sequences_iwl`, and `out_dim`, as an array of that name or inside a JSON string `meta`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.config.spectra import HUGE
from iclflow.data.sequences import Given
from iclflow.data.spectrum import Covariances
from iclflow.errors import BadInput
from iclflow.system.arrays import as_array
from iclflow.system.digest import digest
from iclflow.system.files import read_npz

__all__ = ["OwnData", "agreed_task", "read_own_data"]

TESTS = ("sequences_icl", "sequences_iwl")
SAMPLED = (
    "spectrum", "basis", "task_spectrum", "tasks", "mirror_tasks", "label_noise", "query_noise", "icl_fraction",
    "task_seed",
)  # fmt: skip


class OwnData(NamedTuple):
    """Training and test sequences, and a digest of everything that was read."""

    training: Given
    tests: dict[str, Given]
    digest: str

    @property
    def sizes(self) -> dict[str, int]:
        """The settings of the task that the data determine."""
        return {"dim": self.training.dim, "context": self.training.context, "out_dim": self.training.out_dim}

    @property
    def covariances(self) -> Covariances:
        """Of the tokens; of the tasks nothing is assumed."""
        dim = self.training.dim
        token = np.cov(self.training.sequences[:, :, :dim].reshape(-1, dim).T).reshape(dim, dim)
        values, vectors = np.linalg.eigh(token)
        return Covariances(token, np.eye(dim), values[::-1], vectors[:, ::-1])


def read_own_data(source: Any, task: Task | None) -> tuple[OwnData, Task]:
    """The data, and the task with their sizes; sizes that the caller gave explicitly must agree."""
    arrays = read_npz(source, "data") if isinstance(source, str | Path) else source
    if not isinstance(arrays, dict):
        arrays = {"sequences": arrays}
    if "sequences" not in arrays:
        raise BadInput(f"data: has {', '.join(sorted(arrays)) or 'no arrays'}, must have 'sequences'")
    given = set() if task is None else task.model_fields_set
    out_dim = own_out_dim(arrays, task.out_dim if task is not None and "out_dim" in given else None)
    training = Given(checked(arrays["sequences"], "sequences", out_dim), out_dim)
    tests = {name: Given(checked(arrays[name], name, out_dim), out_dim) for name in TESTS if name in arrays}
    for name, test in tests.items():
        if (test.context, test.dim) != (training.context, training.dim):
            raise BadInput(f"data: {name!r} has shape {test.sequences.shape}, must match 'sequences'")
    own = OwnData(training, tests, content_digest(own_out_dim(arrays, None), training, tests))
    return own, agreed_task(task, own.sizes)


def agreed_task(task: Task | None, sizes: dict[str, int]) -> Task:
    """The task with the sizes of the data; refuses settings that contradict them or that describe sampled sequences."""
    given = set() if task is None else task.model_fields_set
    for field, size in sizes.items():
        if field in given and getattr(task, field) != size:
            raise BadInput(f"{field}: {getattr(task, field)} contradicts the data file, which has {size}")
    for field in SAMPLED:
        if field in given and task is not None and getattr(task, field) != Task.model_fields[field].default:
            raise BadInput(f"{field}: describes sampled sequences; do not give it together with data")
    return (task or Task()).replace(**sizes)


def content_digest(out_dim: int, training: Given, tests: dict[str, Given]) -> str:
    """A digest of everything that is used of a file, so that any change shows; `out_dim` as the file states it."""
    parts: list[str | memoryview] = [f"out_dim {out_dim}"]
    for name, given in {"sequences": training, **tests}.items():
        parts += [f" {name} {given.sequences.shape} ", given.sequences.reshape(-1).data]
    return digest(*parts)


def own_out_dim(arrays: dict[str, Any], asked: int | None) -> int:
    """The number of outputs: from the array, else as asked for, else from `meta`, else 1."""
    if "out_dim" in arrays:
        value = np.asarray(arrays["out_dim"])
        if value.size != 1 or value.dtype.kind not in "iu" or int(value.reshape(())) < 1:
            raise BadInput(f"data: out_dim {value.tolist()!r} must be one whole number of at least 1")
        stated = int(value.reshape(()))
        if asked is not None and asked != stated:
            raise BadInput(f"out_dim: {asked} contradicts the data file, which has {stated}")
        return stated
    if asked is not None:
        return asked
    try:
        stated = json.loads(str(np.asarray(arrays["meta"]))).get("out_dim")
    except (KeyError, ValueError, AttributeError, RecursionError):
        return 1
    return stated if isinstance(stated, int) and stated >= 1 else 1


def checked(array: Any, name: str, out_dim: int) -> Float[np.ndarray, "P tokens E"]:
    """The array as contiguous doubles, or an error that says what is wrong with it."""
    array = as_array(array)
    if array.ndim != 3 or array.dtype.kind not in "fiu":
        raise BadInput(f"data: {name!r} has shape {array.shape} of {array.dtype}, must be numbers (P, N+1, D+O)")
    count, tokens, width = array.shape
    if count < 2 or tokens < 2 or width <= out_dim:
        raise BadInput(
            f"data: {name!r} has shape {array.shape}, must have at least 2 sequences, 2 tokens and more than"
            f" out_dim = {out_dim} columns"
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise BadInput(f"data: {name!r} holds NaN or infinity, first at {where}; every entry must be finite")
    if np.abs(array).max() > HUGE:
        raise BadInput(
            f"data: {name!r} holds {np.abs(array).max():.3g}; every entry must be at most {HUGE:.0e} in size"
        )
    return array
