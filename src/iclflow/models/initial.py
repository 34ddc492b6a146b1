r"""Initial weights, by law.

| law | what is drawn |
| --- | --- |
| `entry` | every entry $N(0, \text{init}^2)$, vector blocks zero |
| `public` | as `entry`, but separate: std init / sqrt(size of the array); vectors zero for the last output only |
| `norm` | every head's trained blocks scaled to Frobenius norm init (the paper's $w_{init}$), all else zero |
| `aligned` | the ansatz: head by head along the leading eigenvectors, balanced, all else zero |
| `random` | every entry $N(0, \text{init}^2)$, none set to zero |
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Model
from iclflow.models import Weights, kind, put_back, take

__all__ = ["initial_weights"]

INITIAL = 201  # stream drawn from `seed`


def initial_weights(
    model: Model,
    dim: int,
    out_dim: int,
    law: str,
    init: float,
    seed: int,
    basis: Float[np.ndarray, "D D"],
    drive: Float[np.ndarray, "D D"],
) -> Weights:
    """Weights before the first step; `basis` and `drive` ($\\Lambda\\Omega\\Lambda$) only matter to `aligned`."""
    shapes = kind(model).shapes(model, dim, out_dim)
    if law == "aligned":
        return aligned(model, shapes, dim, out_dim, init, basis, drive)
    rng = np.random.default_rng([INITIAL, seed])
    weights = {name: init * rng.standard_normal(shape) for name, shape in shapes.items()}
    if law == "random":
        return weights
    if law == "public" and model.kind == "separate":
        weights = {name: array / np.sqrt(array.size) for name, array in weights.items()}
    zero_vectors(model, weights, dim, last_only=law == "public")
    return scaled_to_norm(model, weights, dim, init) if law == "norm" else weights


def zero_vectors(model: Model, weights: Weights, dim: int, last_only: bool) -> None:
    """Set the vector blocks to zero in place; `last_only` spares those of all outputs but the last."""
    for name, where in kind(model).vectors(dim).items():
        if not last_only:
            weights[name][where] = 0.0
        elif name == "key":
            weights[name][:, :, -1] = 0.0
        else:
            weights[name][:, -1, :dim] = 0.0


def scaled_to_norm(model: Model, weights: Weights, dim: int, norm: float) -> Weights:
    """Every head's trained part of every layer at Frobenius norm `norm`; entries that never matter at zero."""
    part = take(model, weights, dim, "label")
    heads_axis = {name: 1 if name == "second" else 0 for name in part}
    for name, array in part.items():
        others = tuple(axis for axis in range(array.ndim) if axis != heads_axis[name])
        part[name] = norm * array / np.sqrt(np.sum(array**2, axis=others, keepdims=True))
    empty = {name: np.zeros_like(array) for name, array in weights.items()}
    return put_back(model, empty, part, dim, "label")


def aligned(
    model: Model,
    shapes: dict[str, tuple[int, ...]],
    dim: int,
    out_dim: int,
    init: float,
    basis: Float[np.ndarray, "D D"],
    drive: Float[np.ndarray, "D D"],
) -> Weights:
    """Balanced weights on the invariant manifold: value blocks are multiples of the identity over outputs."""
    weights = {name: np.zeros(shape) for name, shape in shapes.items()}
    direction = drive / np.linalg.norm(drive)
    if model.kind == "mlp":
        weights["first"][:] = init * direction.reshape(-1)
        weights["second"][:] = init
    elif model.kind == "merged":
        weights["key_query"][:, :dim, :dim] = init * direction
        weights["value"][:, dim:, dim:] = init * np.eye(out_dim) / np.sqrt(out_dim)
    else:
        heads, rank = shapes["key"][:2]
        slots = [(d // rank, d % rank, d) for d in range(min(dim, heads * rank))]
        for head, row, d in slots:
            weights["key"][head, row, :dim] = weights["query"][head, row, :dim] = init * basis[:, d]
        for head in {head for head, _, _ in slots}:
            used = sum(1 for h, _, _ in slots if h == head)
            weights["value"][head, dim:, dim:] = init * np.sqrt(used / out_dim) * np.eye(out_dim)
    return weights
