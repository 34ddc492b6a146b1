"""Weights from the user: from memory or files, under our names or those of the public code.

`FILE:PREFIX` selects tensors by prefix. Without a prefix, `weights.` is tried for training and `final_weights.` for
probing, then no prefix.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.models.base import KNOWN
from iclflow.results.public_names import from_public_names, has_public_names
from iclflow.results.tensors import SUFFIXES, read_tensors
from iclflow.system.arrays import as_array

__all__ = [
    "TO_PROBE",
    "TO_TRAIN",
    "GivenWeights",
    "checkpoint_files",
    "fitted",
    "infer_model",
    "read_weights",
    "with_sizes",
]

TO_TRAIN, TO_PROBE = ("weights.", ""), ("final_weights.", "")  # prefixes that are tried
FROM_META = ("out_dim", "context", "normalize", "prefix_loss")


class GivenWeights(NamedTuple):
    """Weights, what their file states about the task, and the sequences in the same file, if there are any."""

    weights: Weights
    meta: dict[str, Any]
    data: dict[str, np.ndarray] | None
    public: bool = False  # whether they had the names of the public code


def read_weights(source: Any, prefixes: tuple[str, ...] = TO_TRAIN) -> GivenWeights:
    """Weights from a mapping of arrays or tensors (a `state_dict`), from `FILE` or from `FILE:PREFIX`."""
    if isinstance(source, Mapping):
        arrays = {str(name): as_array(array) for name, array in source.items()}
        return GivenWeights(*ours(arrays, {}), None, has_public_names(arrays))
    if not isinstance(source, str | Path):
        what = type(source).__name__
        hint = "; give its state_dict()" if hasattr(source, "state_dict") else ""
        raise BadInput(f"weights: {what} must be named arrays, a file or FILE:PREFIX{hint}")
    path, prefix = split_prefix(str(source))
    if not path.endswith(SUFFIXES):
        hint = "; give the state_dict itself, torch.load(FILE)" if path.endswith((".pt", ".pth", ".bin")) else ""
        raise BadInput(
            f"weights: {path!r} must be a run directory, a folder of checkpoints, .safetensors or .npz{hint}"
        )
    tensors = read_tensors(path)
    for candidate in (prefix,) if prefix is not None else prefixes:
        picked = {name[len(candidate) :]: array for name, array in tensors.items() if name.startswith(candidate)}
        if any(name in picked for name in marks()) or (prefix is not None and picked):
            weights, meta = ours(picked, read_meta(tensors))
            return GivenWeights(floats_only(weights), meta, own_sequences(tensors), has_public_names(picked))
    tried = repr(prefix) if prefix is not None else " or ".join(map(repr, prefixes))
    raise BadInput(f"weights: {str(source)!r} holds no weights ({', '.join(marks())}) under the prefix {tried}")


def marks() -> tuple[str, ...]:
    """Names of arrays, at least one of which is in every set of weights."""
    return (
        *dict.fromkeys(next(iter(model.axes)) for model in KNOWN.values() if model.axes),
        "value.weight",
        "fc1.weight",
    )


def ours(picked: Weights, meta: dict[str, Any]) -> tuple[Weights, dict[str, Any]]:
    """Weights under our names; the public code has no 1/N in front of attention, so its `normalize` is none."""
    if has_public_names(picked):
        return from_public_names(picked), {"normalize": "none", **meta}
    return picked, meta


def split_prefix(source: str) -> tuple[str, str | None]:
    """`FILE:PREFIX` as its two parts; the prefix is `None` if there is none, or if a file has this very name."""
    path, colon, prefix = source.rpartition(":")
    if colon and not Path(source).exists():
        return path, prefix
    return source, None


def floats_only(weights: Weights) -> Weights:
    """The weights; refuses integers, which are a sign of a damaged type."""
    known = {name for model in KNOWN.values() for name in model.axes}
    for name, array in weights.items():
        if name in known and array.dtype.kind != "f":
            raise BadInput(f"weights: {name!r} has type {array.dtype}, must be floating-point numbers")
    return weights


def read_meta(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a JSON string `meta` beside the weights states about their task; empty if there is none."""
    try:
        meta = json.loads(str(np.asarray(tensors["meta"])))
    except (KeyError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def own_sequences(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The sequences in the same file as the weights, with what belongs to them."""
    if "sequences" not in tensors:
        return None
    return {name: tensors[name] for name in ("sequences", "out_dim", "meta") if name in tensors}


def infer_model(weights: Weights, model: Model | None = None) -> Model:
    """The model that the arrays belong to; a model that was given, and its explicit settings, must agree."""
    if model is not None and ":" in model.kind:
        return model  # a user's own class, whose shapes are compared later
    common = {kind: len(set(record.axes) & set(weights)) for kind, record in KNOWN.items() if ":" not in kind}
    best = [kind for kind, count in common.items() if count == max(common.values()) > 0]
    if len(best) != 1:
        raise BadInput(
            f"weights: {', '.join(sorted(weights))[:120]} must be those of {', '.join(common)}: value with key_query,"
            " value with key and query, or first and second (docs/how-to/pytorch.md)"
        )
    record = KNOWN[best[0]]
    if model is not None and type(model) is not record:
        raise BadInput(f"model: {model.kind!r} contradicts the weights, which are {record.kind!r}")
    try:
        sizes = record.fields_of({name: np.asarray(array) for name, array in weights.items()})
    except (KeyError, IndexError, TypeError, ValueError):
        sizes = {"heads": 0}
    for field, size in sizes.items():
        if size is not False and size < 1:
            raise BadInput(f"weights: cannot tell {field} from the shapes of {', '.join(sorted(weights))}")
        if model is not None and field in model.model_fields_set and getattr(model, field) != size:
            raise BadInput(f"{field}: {getattr(model, field)} contradicts the weights, which have {size}")
    return record(**sizes) if model is None else model.replace(**sizes)


def with_sizes(given: GivenWeights, model: Model | None, task: Task | None) -> tuple[Model, Task]:
    """Model and task of the weights: from what was given, then from the file, then from the shapes."""
    weights, meta = given.weights, given.meta
    inferred = infer_model(weights, model)
    if model is None and meta.get("softmax") is True and "softmax" in type(inferred).model_fields:
        inferred = inferred.replace(softmax=True)
    if model is None and meta.get("looped") is True and getattr(inferred, "looped", False):
        inferred = inferred.replace(layers=meta.get("layers", 1))  # their shapes do not tell how many layers they serve
    if getattr(inferred, "looped", False) and getattr(inferred, "layers", 2) < 2:
        raise BadInput("layers: 1 must be at least 2 for looped weights, whose shapes do not tell how many they serve")
    task = task or Task()
    task = task.replace(
        **{name: meta[name] for name in FROM_META if name in meta and name not in task.model_fields_set}
    )
    dim = type(inferred).dim_of(weights, task.out_dim)
    if dim is None:
        return inferred, task
    if "dim" in task.model_fields_set and task.dim != dim:
        raise BadInput(f"dim: {task.dim} contradicts the weights, which have {dim} with out_dim {task.out_dim}")
    return inferred, task.replace(dim=dim)


def fitted(given: GivenWeights, model: Model | None, task: Task | None) -> tuple[Model, Task]:
    """Model and task of the weights, from what was given and the shapes; those of the public code have no 1/N."""
    return with_sizes(given._replace(meta={"normalize": "none"} if given.public else {}), model, task)


def checkpoint_files(folder: Path) -> tuple[list[Path], list[int] | None]:
    """The weight files of a folder in the order of the last number in their names, and these numbers."""
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise BadInput(f"weights: {str(folder)!r} must hold a run or {' or '.join(SUFFIXES)} files")
    numbers = [re.findall(r"\d+", path.stem) for path in files]
    if not all(numbers):
        return files, None
    steps = [int(digits[-1]) for digits in numbers]
    order = sorted(range(len(files)), key=lambda i: steps[i])
    return [files[i] for i in order], [steps[i] for i in order]
