"""What is trained. One file a model, the same names in each:

- `shapes`: the weights as they are saved, with every block;
- `trained`: which part of each array can reach the prediction (the rest has no gradient);
- `vectors`: the vector blocks among these, which theory keeps at zero;
- `theta` and `pull_back`: a linear model's coefficients $\\Theta$, and the gradient from them back to the weights;
- `predict`: the model itself, on one sequence.
"""

from types import ModuleType

import numpy as np

from iclflow.config import Model, Task
from iclflow.data.moments import Blocks
from iclflow.errors import BadInput
from iclflow.models import merged, mlp, separate

__all__ = ["check_weights", "kind", "put_back", "take", "vector_mask", "vectors_are_zero"]

Weights = dict[str, np.ndarray]
KINDS: dict[str, ModuleType] = {"merged": merged, "separate": separate, "mlp": mlp}


def kind(model: Model) -> ModuleType:
    """The file that defines a model."""
    return KINDS[model.kind]


def take(model: Model, weights: Weights, dim: int, blocks: Blocks) -> Weights:
    """The part of the weights that training moves."""
    return {name: weights[name][where] for name, where in kind(model).trained(dim, blocks).items()}


def put_back(model: Model, weights: Weights, part: Weights, dim: int, blocks: Blocks) -> Weights:
    """`weights` with its trained part replaced."""
    whole = {name: np.array(array) for name, array in weights.items()}
    for name, where in kind(model).trained(dim, blocks).items():
        whole[name][where] = np.asarray(part[name])
    return whole


def vector_mask(model: Model, weights: Weights, dim: int, blocks: Blocks) -> Weights:
    """1 where a trained weight may move, 0 on the vector blocks."""
    ones = {name: np.ones(np.shape(array)) for name, array in weights.items()}
    for name, where in kind(model).vectors(dim).items():
        ones[name][where] = 0.0
    return take(model, ones, dim, blocks)


def vectors_are_zero(model: Model, weights: Weights, dim: int) -> bool:
    return all(not np.any(weights[name][where]) for name, where in kind(model).vectors(dim).items())


def check_weights(model: Model, task: Task, weights: Weights) -> Weights:
    """Float64 copies of the model's arrays, or one line on what does not fit."""
    expected = kind(model).shapes(model, task.dim, task.out_dim)
    checked = {}
    for name, shape in expected.items():
        if name not in weights:
            raise BadInput(f"weights: {name!r} is missing; {model.kind} needs {', '.join(expected)}")
        array = np.asarray(weights[name])
        if array.shape != shape:
            raise BadInput(f"weights: {name!r} has shape {array.shape}, must be {shape}")
        if array.dtype.kind not in "fiu":
            raise BadInput(f"weights: {name!r} has type {array.dtype}, must be real numbers")
        if not np.isfinite(array).all():
            raise BadInput(f"weights: {name!r} holds NaN or infinity; every entry must be finite")
        checked[name] = np.array(array, dtype=np.float64)
    return checked
