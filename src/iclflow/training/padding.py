"""Room to spare: the same training in a larger, fixed shape, so that few programs have to be compiled.

A direction without variance, a head and a rank that start at zero stay exactly zero: their gradient has a zero factor.
So a run on the population's label blocks is the same run with zeros around it, up to the order of summation. A page
that lets people turn the knobs then compiles a handful of shapes once instead of one for every dim, heads and rank.
"""

from collections.abc import Callable

import numpy as np

from iclflow.config import Task
from iclflow.data.moments import Moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models import Model, Weights
from iclflow.models.parts import empty, take

__all__ = ["DIMS", "HEADS", "padded"]

DIMS = (8, 16)
HEADS = 20


def larger_model(loss: MomentLoss) -> Model | None:
    """The model with room to spare; `None` where the zeros around it would not stay zero, or it does not fit."""
    moments = loss.moments
    plain = moments.blocks == "label" and moments.right is not None and not loss.tests and loss.mask is None
    if not plain or moments.dim > DIMS[-1] or moments.out_dim > 1:
        return None
    model = loss.model.enlarged(HEADS, larger_dim(moments))
    return model if loss.model.head_count(Task(dim=moments.dim)) <= HEADS else None


def larger_dim(moments: Moments) -> int:
    return next(d for d in DIMS if moments.dim <= d)


def padded(loss: MomentLoss, trained: Weights) -> tuple[MomentLoss, Weights, Callable[[Weights], Weights]]:
    """The loss and weights with zeros around them where that is possible, and how to take the zeros off again."""
    model, moments = larger_model(loss), loss.moments
    if model is None:
        return loss, trained, dict
    dim = larger_dim(moments)
    square = lambda array: filled(array, (*np.shape(array)[:-2], dim, dim))
    roomy = Moments(
        square(moments.left), square(moments.right), square(moments.cross), np.asarray(moments.power),
        dim=dim, blocks="label",
    )  # fmt: skip
    task = Task(dim=dim)
    large = take(model, empty(model, task), task, "label")
    shapes = {name: np.shape(array) for name, array in trained.items()}
    begin = {name: filled(array, large[name].shape) for name, array in trained.items()}
    crop = lambda weights: {n: np.asarray(weights[n])[tuple(map(slice, shape))] for n, shape in shapes.items()}
    return MomentLoss(roomy, (), None, model), begin, crop


def filled(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros behind the end of every axis."""
    array = np.asarray(array)
    return np.pad(array, [(0, large - small) for small, large in zip(array.shape, shape, strict=True)])
