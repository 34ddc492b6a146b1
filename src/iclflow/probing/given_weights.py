"""Weights from files that anyone may have written: safetensors or npz, ours or under public names; never a pickle.

A file is measured before it is read, so that neither a long header nor an archive that unpacks to more than it weighs
costs memory. What it holds must be real floating-point numbers: a damaged type shows as whole numbers.
"""

import json
import math
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iclflow.config import Model, Task
from iclflow.errors import BadInput
from iclflow.probing.public_names import from_public_names, has_public_names
from iclflow.weight_files import infer_model, read_tensors, split_prefix

__all__ = ["GivenFile", "checkpoint_files", "read_file", "with_sizes"]

PREFIXES = ("final_weights.", "")
MARKS = ("value", "first", "value.weight")  # one of these names is in every set of weights
MOST_BYTES = 512 * 2**20
LONGEST_HEADER = 10_000  # bytes, of an array in an npz file
FROM_META = ("out_dim", "context", "normalize", "prefix_loss")
SUFFIXES = (".safetensors", ".npz")


class GivenFile(NamedTuple):
    """The weights of a file, what it says about their task, and the sequences it may hold beside them."""

    weights: dict[str, np.ndarray]
    meta: dict[str, Any]
    data: dict[str, np.ndarray] | None


def read_file(source: str) -> GivenFile:
    """Weights from `FILE` or `FILE:PREFIX`; without a prefix `final_weights.` is tried, then bare names."""
    path, prefix = split_prefix(source)
    if not path.endswith(SUFFIXES):
        raise BadInput(f"weights: {path!r} must be a run directory, a folder of checkpoints, .safetensors or .npz")
    refuse_oversized(Path(path))
    tensors = read_tensors(path)
    for candidate in (prefix,) if prefix is not None else PREFIXES:
        picked = {name[len(candidate) :]: array for name, array in tensors.items() if name.startswith(candidate)}
        if any(mark in picked for mark in MARKS):
            meta = read_meta(tensors)
            if has_public_names(picked):  # that code has no 1/N in front of attention
                picked, meta = from_public_names(picked), {"normalize": "none", **meta}
            return GivenFile(floats_only(picked), meta, own_sequences(tensors))
    looked = repr(prefix) if prefix is not None else " or ".join(map(repr, PREFIXES))
    raise BadInput(f"weights: {source!r} holds no {', '.join(MARKS)} under the prefix {looked}")


def refuse_oversized(path: Path) -> None:
    """Compare what the file says it unpacks to with what weights may weigh, before unpacking."""
    if not path.is_file():
        raise BadInput(f"weights: {str(path)!r} must be an existing file")
    size = path.stat().st_size
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(entry.file_size for entry in archive.infolist()))
                if size <= MOST_BYTES:
                    for entry in archive.infolist():
                        refuse_false_header(archive, entry)
        except BadInput as error:
            raise BadInput(f"weights: {str(path)!r} {error}") from None
        except Exception as error:  # a damaged archive can raise almost anything
            raise BadInput(f"weights: cannot read {str(path)!r} as npz ({type(error).__name__})") from None
    if size > MOST_BYTES:
        raise BadInput(f"weights: {str(path)!r} holds {size / 2**20:.0f} MiB, must be at most {MOST_BYTES // 2**20}")


def refuse_false_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """An array must be as large as its header says; the header is short, and names no Python objects."""
    with archive.open(entry) as member:
        start = member.read(12)
        major, length = start[6:7], int.from_bytes(start[8:10] if start[6:7] == b"\x01" else start[8:12], "little")
    if start[:6] != b"\x93NUMPY" or major not in (b"\x01", b"\x02") or length > LONGEST_HEADER:
        raise BadInput(f"has {entry.filename!r}, which is not an array")
    with archive.open(entry) as member:
        np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if major == b"\x01" else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        if dtype.hasobject:
            raise BadInput(f"has {entry.filename!r} of Python objects, which are never loaded")
        if member.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise BadInput(f"has {entry.filename!r}, whose size is not that of its shape {shape}")


def floats_only(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name, array in weights.items():
        if name in ("value", "key_query", "key", "query", "first", "second") and array.dtype.kind != "f":
            raise BadInput(f"weights: {name!r} has type {array.dtype}, must be floating-point numbers")
    return weights


def read_meta(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a JSON string `meta` beside the weights says of their task; nothing if there is none."""
    try:
        meta = json.loads(str(np.asarray(tensors["meta"])))
    except (KeyError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def own_sequences(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    if "sequences" not in tensors:
        return None
    return {name: tensors[name] for name in ("sequences", "out_dim", "meta") if name in tensors}


def with_sizes(
    weights: dict[str, np.ndarray], model: Model | None, task: Task | None, meta: dict[str, Any]
) -> tuple[Model, Task]:
    """Model and task of the weights: what was given stands, then what the file says, then what the shapes say."""
    softmax = {"softmax": True} if meta.get("softmax") is True else {}
    kind = infer_model(weights, None)
    if model is None and softmax and kind.kind != "mlp":
        kind = kind.replace(**softmax)
    model = infer_model(weights, model) if model is not None else kind
    task = task or Task()
    said = {name: meta[name] for name in FROM_META if name in meta and name not in task.model_fields_set}
    task = task.replace(**said)
    dim = weight_dim(weights, model, task.out_dim)
    if "dim" in task.model_fields_set and task.dim != dim:
        raise BadInput(f"dim: {task.dim} contradicts the weights, which have {dim} with out_dim {task.out_dim}")
    return model, task.replace(dim=dim)


def weight_dim(weights: dict[str, np.ndarray], model: Model, out_dim: int) -> int:
    if model.kind == "mlp":
        shape = np.shape(weights["first"])
        side = round(shape[1] ** 0.5) if len(shape) == 2 else 0
        if not side or side * side != shape[1]:
            raise BadInput(f"weights: 'first' has shape {shape}, must be (H, D*D)")
        return side
    shape = np.shape(weights["value"])
    if len(shape) != 3 or shape[1] != shape[2] or shape[2] <= out_dim:
        raise BadInput(f"weights: 'value' has shape {shape}, must be (H, E, E) with E > out_dim = {out_dim}")
    return shape[2] - out_dim


def checkpoint_files(folder: Path) -> tuple[list[Path], list[int] | None]:
    """The weight files of a folder in the order of the last number in their names, and these numbers."""
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise BadInput(f"weights: {str(folder)!r} must hold a run or {' or '.join(SUFFIXES)} files")
    numbers = [re.findall(r"\d+", path.stem) for path in files]
    if not all(numbers):
        return files, None
    steps = [int(found[-1]) for found in numbers]
    order = sorted(range(len(files)), key=lambda i: steps[i])
    return [files[i] for i in order], [steps[i] for i in order]
