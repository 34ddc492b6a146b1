"""Arrays of weights, whole and in part: what training moves, what it leaves alone, and whether they fit a model."""

import numpy as np

from iclflow.config import Task
from iclflow.data.features import Blocks
from iclflow.errors import BadInput
from iclflow.models.base import Model, Weights

__all__ = ["check_weights", "empty", "put_back", "take", "vector_mask", "vectors_are_zero"]


def take(model: Model, weights: Weights, task: Task, blocks: Blocks) -> Weights:
    """The part of the weights that training moves."""
    return {name: weights[name][where] for name, where in model.trained(task, blocks).items()}


def put_back(model: Model, weights: Weights, trained: Weights, task: Task, blocks: Blocks) -> Weights:
    """`weights` with its trained part replaced."""
    whole = {name: np.array(array) for name, array in weights.items()}
    for name, where in model.trained(task, blocks).items():
        whole[name][where] = np.asarray(trained[name])
    return whole


def empty(model: Model, task: Task) -> Weights:
    """All weights zero."""
    return {name: np.zeros(shape) for name, shape in model.shapes(task).items()}


def vector_mask(model: Model, task: Task, blocks: Blocks) -> Weights:
    """1 where a trained weight may move, 0 on the vector blocks."""
    ones = {name: np.ones(shape) for name, shape in model.shapes(task).items()}
    for name, where in model.vectors(task).items():
        ones[name][where] = 0.0
    return take(model, ones, task, blocks)


def vectors_are_zero(model: Model, weights: Weights, task: Task) -> bool:
    """Whether the blocks that theory keeps at zero are zero."""
    return all(not np.any(weights[name][where]) for name, where in model.vectors(task).items())


def check_weights(model: Model, task: Task, weights: Weights) -> Weights:
    """Float64 copies of the model's arrays, or one line on what does not fit."""
    expected = model.shapes(task)
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
