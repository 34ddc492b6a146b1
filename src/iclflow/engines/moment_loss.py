r"""The loss of a linear model from moments, with its gradient written by hand.

$$\frac{\partial L}{\partial W} = \frac{\partial L}{\partial\Theta}\,\frac{\partial\Theta}{\partial W},\qquad
  \frac{\partial L}{\partial\theta_o} = \tfrac2O (C\theta_o - b_o).$$

One product with $C$ gives loss and gradient; automatic differentiation of `loss` is the oracle in the tests.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.data.moments import AnyScalar, Moments
from iclflow.models import Model, Weights
from iclflow.system.pytree import pytree

__all__ = ["MomentLoss"]


@pytree
@dataclass(frozen=True)
class MomentLoss:
    """Training loss, and test losses on moments of their own; `mask` is 0 on weights that must not move."""

    moments: Moments
    tests: tuple[Moments, ...]
    mask: Weights | None
    model: Model = field(metadata={"static": True})

    light: ClassVar[bool] = True  # a gradient costs a few small products, whatever the data

    def loss_and_gradient(self, trained: Weights, batch: Any = None) -> tuple[AnyScalar, Weights]:
        loss, slope = self.moments.loss_and_slope(self.model.theta(trained))
        gradient = self.model.pull_back(trained, slope)
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def loss(self, trained: Weights) -> AnyScalar:
        return self.moments.loss_and_slope(self.model.theta(trained))[0]

    def test_losses(self, trained: Weights) -> Float[Array, " tests"]:
        theta = self.model.theta(trained)
        return jnp.array([moments.loss_and_slope(theta)[0] for moments in self.tests])
