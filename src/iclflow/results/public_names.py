"""Weights under the names of the public PyTorch code, converted to ours.

| public | shape | ours |
| --- | --- | --- |
| `value.weight` | (H E, E) | `value[h]`: rows hE .. (h+1)E |
| `kq.weight` | (H E, E) | `key_query[h]`: those rows, transposed |
| `key.weight`, `query.weight` | (H R, E) | `key[h]`, `query[h]`: rows hR .. (h+1)R |
| `fc1.weight`, `fc2.weight` | (H, D*D), (O, H) | `first`, `second` |

The number of heads follows from the value matrix, the rank from the keys.
"""

import numpy as np
from jaxtyping import Shaped

from iclflow.errors import BadInput

__all__ = ["from_public_names", "has_public_names"]

MERGED, SEPARATE = {"value.weight", "kq.weight"}, {"value.weight", "key.weight", "query.weight"}
NETWORK = {"fc1.weight", "fc2.weight"}


def has_public_names(tensors: dict[str, np.ndarray]) -> bool:
    """Whether the weights carry the names of the public code."""
    return "value.weight" in tensors or bool(NETWORK & set(tensors))


def from_public_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`value` with `key_query`, or `value`, `key` and `query`, with one matrix per head; or `first` and `second`."""
    known = {name for name in tensors if name in MERGED | SEPARATE | NETWORK}
    if known not in (MERGED, SEPARATE, NETWORK):
        names = ", ".join(sorted(known))
        raise BadInput(
            f"weights: {names} must be value.weight with kq.weight, or with key.weight and query.weight, or fc1.weight"
            " with fc2.weight"
        )
    for name, array in tensors.items():
        if name.endswith(".bias") and np.any(array):
            raise BadInput(f"weights: {name!r} must be zero or absent; these models have no bias")
    if known == NETWORK:
        return {"first": tensors["fc1.weight"], "second": tensors["fc2.weight"]}
    width = columns(tensors, "value.weight")
    value = by_head(tensors, "value.weight", width, width)
    if known == MERGED:
        blocks = by_head(tensors, "kq.weight", width, width)
        if len(blocks) != len(value):
            raise BadInput(f"weights: 'kq.weight' has {len(blocks)} heads, 'value.weight' has {len(value)}")
        return {"value": value, "key_query": blocks.transpose(0, 2, 1)}
    rows = {tensors[name].shape[:1] for name in ("key.weight", "query.weight")}
    if len(rows) != 1 or not (total := rows.pop()) or total[0] == 0 or total[0] % len(value):
        shapes = " and ".join(str(tensors[name].shape) for name in ("key.weight", "query.weight"))
        raise BadInput(
            f"weights: key.weight and query.weight have shapes {shapes}, must be (H R, E) with H = {len(value)}"
        )
    rank = total[0] // len(value)
    return {"value": value, **{name: by_head(tensors, f"{name}.weight", rank, width) for name in ("key", "query")}}


def columns(tensors: dict[str, np.ndarray], name: str) -> int:
    """The number of columns of a matrix."""
    shape = tensors[name].shape
    if len(shape) != 2 or 0 in shape:
        raise BadInput(f"weights: {name!r} has shape {shape}, must be a matrix (rows of all heads, E)")
    return shape[1]


def by_head(tensors: dict[str, np.ndarray], name: str, rows: int, width: int) -> Shaped[np.ndarray, "H R E"]:
    """The matrices of all heads, with `rows` rows and `width` columns each."""
    array = tensors[name]
    if columns(tensors, name) != width or array.shape[0] % rows:
        raise BadInput(f"weights: {name!r} has shape {array.shape}, must be (H * {rows}, {width})")
    return array.reshape(-1, rows, width)
