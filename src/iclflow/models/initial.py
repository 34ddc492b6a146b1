r"""Initial weights, by law.

| law | what is drawn |
| --- | --- |
| `entry` | every entry $N(0, \text{init}^2)$, vector blocks zero |
| `public` | as `entry`, but separate: std init / sqrt(size of the array); vectors zero for the last output only |
| `norm` | the trained blocks of every head scaled to Frobenius norm init (the paper's $w_{init}$), all else zero |
| `aligned` | the ansatz: head by head along the leading eigenvectors, balanced, all else zero |
| `random` | every entry $N(0, \text{init}^2)$, none set to zero |

With more than one layer the vector blocks include all that changes the tokens (`models.deep`).
"""

import numpy as np

from iclflow.config import Task
from iclflow.data.spectrum import Covariances
from iclflow.errors import BadInput
from iclflow.models.base import Model, Weights
from iclflow.models.parts import empty, put_back, take

__all__ = ["initial_weights"]

INITIAL = 201  # stream drawn from `seed`


def initial_weights(model: Model, task: Task, law: str, init: float, seed: int, covariances: Covariances) -> Weights:
    """Weights before the first step; only the law `aligned` looks at the covariances."""
    if law not in model.laws:
        raise BadInput(f"init_law: {law!r} must be one of {', '.join(model.laws)} for model {model.kind!r}")
    if law == "aligned":
        drive = covariances.token @ covariances.task @ covariances.token
        return model.aligned(task, init, covariances.basis, drive)
    rng = np.random.default_rng([INITIAL, seed])
    weights = {name: init * rng.standard_normal(shape) for name, shape in model.shapes(task).items()}
    if law == "random":
        return weights
    if law == "public":
        weights = {name: array / model.public_divisor(array.size) for name, array in weights.items()}
    for name, where in model.vectors(task, last_only=law == "public").items():
        weights[name][where] = 0.0
    return scaled_to_norm(model, weights, task, init) if law == "norm" else weights


def scaled_to_norm(model: Model, weights: Weights, task: Task, norm: float) -> Weights:
    """The trained part of every head at Frobenius norm `norm` in every layer; entries that never matter at zero."""
    trained = take(model, weights, task, "label")
    for name, array in trained.items():
        names = model.axis_names()[name]
        others = tuple(axis for axis, of in enumerate(names) if of not in ("layer", "head"))
        trained[name] = norm * array / np.sqrt(np.sum(array**2, axis=others, keepdims=True))
    return put_back(model, empty(model, task), trained, task, "label")
