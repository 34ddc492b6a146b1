r"""The right-hand side of the flow, and the systems of equations with its Jacobian.

$$f(y) = -\tfrac1c\Big(\frac{\partial L}{\partial y} + \gamma y\Big).$$

The weights $y$ are stacked head by head. The Jacobian of a gradient is symmetric, and $\mu - f'(y)$ is positive where
$\mu$ exceeds the rate of the fastest growth, so that one triangular root serves as many right-hand sides as one likes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iclflow.data.moments import AnyArray, AnyScalar
from iclflow.engines.descent import Loss
from iclflow.models import Model, Weights
from iclflow.system.pytree import pytree

__all__ = ["Equation", "Field", "FlowLoss", "State", "field_of", "inverse_root", "largest", "sizes"]

State = Float[Array, "G p"]  # one row per head; a single row where the arrays name no heads
LEAF = 24  # a matrix of at most this side is factorised by LAPACK, which stays on one core below about 40
WHOLE = 700  # and one of more than this, for which it has use for more cores and by halves takes long to compile


@runtime_checkable
class FlowLoss(Loss, Protocol):
    """What the flow goes down: a loss whose value can also be had alone."""

    @property
    def model(self) -> Model: ...
    @property
    def light(self) -> bool: ...  # whether a Jacobian is cheap: a gradient then costs less than a call of LAPACK

    def loss(self, trained: Weights) -> AnyScalar: ...


@runtime_checkable
class Equation(Protocol):
    """An ordinary differential equation of the stacked weights."""

    def velocity(self, y: State) -> State: ...


@pytree
@dataclass(frozen=True)
class Field:
    """Velocity and losses of the flow as functions of the stacked weights."""

    loss: FlowLoss
    rate: AnyArray
    decay: AnyArray | None
    layout: tuple[tuple[str, tuple[int, ...], int | None], ...] = field(metadata={"static": True})

    def stack(self, weights: Weights) -> Float[AnyArray, "G p"]:
        """One row per head; an array of NumPy if the weights are."""
        plain = all(isinstance(weights[name], np.ndarray) for name, *_ in self.layout)
        rows = []
        for name, shape, axis in self.layout:
            array = weights[name]
            if axis is not None:
                array = array.transpose(axis, *(i for i in range(array.ndim) if i != axis))
            rows.append(array.reshape(-1, prod(shape)))
        return (np if plain else jnp).concatenate(rows, 1)

    def unstack(self, y: Float[AnyArray, "G p"]) -> Weights:
        """The arrays again, of NumPy or JAX as the rows are."""
        weights, first = {}, 0
        for name, shape, axis in self.layout:
            part = y[:, first : first + prod(shape)].reshape(shape if axis is None else (-1, *shape))
            weights[name] = (
                part if axis is None else part.transpose(*range(1, axis + 1), 0, *range(axis + 1, part.ndim))
            )
            first += prod(shape)
        return weights

    def velocity(self, y: State) -> State:
        """The right-hand side."""
        weights = self.unstack(y)
        gradient: Any = self.stack(self.loss.loss_and_gradient(weights)[1])
        if self.decay is not None:
            mask = self.loss.mask
            gradient = gradient + self.decay * (y if mask is None else self.stack(mask) * y)
        return -gradient / self.rate

    def losses(self, y: State) -> Float[Array, " columns"]:
        """Training loss, then test losses."""
        weights = self.unstack(y)
        return jnp.concatenate([jnp.asarray(self.loss.loss(weights))[None], self.loss.test_losses(weights)])

    def jacobian(self, y: State) -> Float[Array, "n n"]:
        """The derivative of the velocity by the weights that move."""
        jacobian = jax.jacfwd(lambda flat: self.velocity(flat.reshape(y.shape)).ravel())(y.ravel())
        return jacobian if self.loss.mask is None else jacobian * self.stack(self.loss.mask).ravel()

    def solver(self, y: State, mu: Float[Array, ""]) -> Callable[[State], State]:
        r"""How to solve $(\mu - f'(y))\,u = r$; what it gives is not a number where the matrix is not positive."""
        root = inverse_root(mu * np.eye(y.size) - self.jacobian(y))
        return lambda r: (root.T @ (root @ r.ravel())).reshape(y.shape)


def field_of(loss: FlowLoss, trained: Weights, rate: float, decay: float) -> Field:
    """The flow of a loss on weights of these shapes.

    Args:
        loss: the loss whose gradient is followed.
        trained: weights, of which only the shapes matter.
        rate: t/tau of a step of unit learning rate.
        decay: the weight decay.

    Returns:
        The field.
    """
    axes = {name: loss.model.head_axis(name) for name in sorted(trained)}
    if None in axes.values():
        axes = dict.fromkeys(axes)
    shapes = {name: np.shape(trained[name]) for name in axes}
    rest = lambda shape, axis: shape if axis is None else shape[:axis] + shape[axis + 1 :]
    layout = tuple((name, rest(shapes[name], axis), axis) for name, axis in axes.items())
    return Field(loss, np.asarray(rate), np.asarray(decay) if decay else None, layout)


def sizes(y: State) -> Float[Array, " G"]:
    """The size of every head."""
    return jnp.sqrt((y * y).sum(1))


def largest(part: State, whole: Float[Array, " G"]) -> Float[Array, ""]:
    """The largest size of a row relative to `whole`; rows that are all zero have none."""
    return jnp.where((whole == 0) & (sizes(part) == 0), 0.0, sizes(part) / whole).max()


def inverse_root(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """$L^{-1}$ for $A = LL'$, by halves, so that nearly all of the work is products of matrices."""
    n = len(A)
    if n <= LEAF or n > WHOLE:
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(A, symmetrize_input=False), np.eye(n), lower=True)
    k = n // 2
    upper = inverse_root(A[:k, :k])
    left = A[k:, :k] @ upper.T
    lower = inverse_root(A[k:, k:] - left @ left.T)
    return jnp.block([[upper, jnp.zeros((k, n - k))], [-lower @ (left @ upper), lower]])
