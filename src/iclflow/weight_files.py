"""Weights on disk: safetensors to write, safetensors or npz to read; never a pickle.

`FILE:PREFIX` picks tensors by prefix. With none named, `weights.` is tried for training and `final_weights.` for
probing, then bare names.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from iclflow.config import MODELS, Model
from iclflow.data.own import first_line, open_npz
from iclflow.errors import BadInput

__all__ = ["infer_model", "read_weights", "write_tensors"]

LONGEST_HEADER = 16 * 2**20  # bytes; a header with thousands of tensors stays far below


def write_tensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Save arrays; the library silently mangles arrays that are not contiguous, so make them so first."""
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    safetensors.numpy.save_file(contiguous, str(path), metadata)


def read_weights(source: Any, prefixes: tuple[str, ...] = ("weights.", "")) -> dict[str, np.ndarray]:
    """Named arrays from a dictionary, or from `FILE` or `FILE:PREFIX`."""
    if isinstance(source, dict):
        return {str(name): np.asarray(array) for name, array in source.items()}
    path, prefix = split_prefix(str(source))
    tensors = read_tensors(path)
    for candidate in (prefix,) if prefix is not None else prefixes:
        picked = {name[len(candidate) :]: array for name, array in tensors.items() if name.startswith(candidate)}
        if any(name in picked for name in ("value", "first")) or (prefix is not None and picked):
            return picked
    raise BadInput(f"weights: {str(source)!r} holds no weights under {prefix or ' or '.join(map(repr, prefixes))}")


def split_prefix(source: str) -> tuple[str, str | None]:
    path, colon, prefix = source.rpartition(":")
    if colon and not Path(source).exists():
        return path, prefix
    return source, None


def read_tensors(path: str) -> dict[str, np.ndarray]:
    if path.endswith(".npz"):
        return open_npz(path, "weights")
    if not Path(path).is_file():
        raise BadInput(f"weights: {path!r} must be an existing .safetensors or .npz file")
    check_header(Path(path))
    try:
        return safetensors.numpy.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"weights: cannot read {path!r} as safetensors ({first_line(error)})") from None


def check_header(path: Path) -> None:
    """The header's length is the file's first eight bytes: refuse it before anyone allocates it."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(LONGEST_HEADER, path.stat().st_size - 8):
            raise BadInput(f"weights: {str(path)!r} is not a safetensors file (header of {length} bytes)")
        try:
            json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise BadInput(f"weights: {str(path)!r} is not a safetensors file (unreadable header)") from None


def infer_model(weights: dict[str, np.ndarray], model: Model | None) -> Model:
    """The model that the arrays belong to; a model that was named, and what was said of it, must agree."""
    kind = (
        "separate"
        if "key" in weights
        else "merged"
        if "key_query" in weights
        else "mlp"
        if "first" in weights
        else None
    )
    if kind is None:
        raise BadInput(f"weights: {', '.join(sorted(weights))} must be those of {', '.join(MODELS)}")
    if model is not None and model.kind != kind:
        raise BadInput(f"model: {model.kind!r} contradicts the weights, which are {kind!r}")
    sizes = {"heads": np.shape(weights["first" if kind == "mlp" else "value"])[:1]}
    if kind == "separate":
        sizes["rank"] = np.shape(weights["key"])[1:2]
    for field, size in sizes.items():
        if len(size) != 1 or size[0] < 1:
            raise BadInput(f"weights: cannot tell {field} from the shapes of {', '.join(sorted(weights))}")
        if model is not None and field in model.model_fields_set and getattr(model, field) != size[0]:
            raise BadInput(f"{field}: {getattr(model, field)} contradicts the weights, which have {size[0]}")
    found = {field: size[0] for field, size in sizes.items()}
    if model is not None:
        return model.replace(**found)
    return MODELS[kind](**found)
