"""Room to spare: the same training in a larger, fixed shape, so that few programs have to be compiled.

A direction without variance, a head and a rank that start at zero stay exactly zero: their gradient has a zero factor.
So a run on the population's label blocks is the same run with zeros around it, up to the order of summation. A page
that lets people turn the knobs then compiles a handful of shapes once instead of one for every dim, heads and rank.
"""

from collections.abc import Callable

import numpy as np

from iclflow.config import Separate
from iclflow.data.moments import Moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models import Weights

__all__ = ["DIMS", "HEADS", "can_be_padded", "padded"]

DIMS = (8, 16)
HEADS = 20


def can_be_padded(loss: MomentLoss) -> bool:
    moments = loss.moments
    fits = moments.dim <= DIMS[-1] and loss.model.heads <= HEADS and moments.out_dim == 1
    plain = moments.blocks == "label" and moments.right is not None and not loss.tests and loss.mask is None
    return fits and plain and loss.model.kind in ("merged", "separate")


def padded(loss: MomentLoss, part: Weights) -> tuple[MomentLoss, Weights, Callable[[Weights], Weights]]:
    """The loss and weights with zeros around them, and how to take the zeros off again."""
    dim = next(d for d in DIMS if loss.moments.dim <= d)
    model = loss.model.replace(heads=HEADS)
    if isinstance(model, Separate):
        model = model.replace(rank=1 if model.rank == 1 else dim)
    moments = loss.moments
    square = lambda array: filled(array, (*np.shape(array)[:-2], dim, dim))
    roomy = Moments(
        square(moments.left), square(moments.right), square(moments.cross), np.asarray(moments.power),
        dim=dim, blocks="label",
    )  # fmt: skip
    shapes = {name: np.shape(array) for name, array in part.items()}
    large = {name: filled(array, larger(name, model, dim)) for name, array in part.items()}
    crop = lambda weights: {n: np.asarray(weights[n])[tuple(map(slice, shape))] for n, shape in shapes.items()}
    return MomentLoss(roomy, (), None, model), large, crop


def larger(name: str, model: object, dim: int) -> tuple[int, ...]:
    if name == "value":
        return (HEADS, 1, 1)
    return (HEADS, model.rank if isinstance(model, Separate) else dim, dim)


def filled(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros behind the end of every axis."""
    array = np.asarray(array)
    return np.pad(array, [(0, large - small) for small, large in zip(array.shape, shape, strict=True)])
