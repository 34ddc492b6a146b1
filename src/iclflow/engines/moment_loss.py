r"""The loss of a linear model from moments, with its gradient written by hand.

$$\frac{\partial L}{\partial W} = \frac{\partial L}{\partial\Theta}\,\frac{\partial\Theta}{\partial W},\qquad
  \frac{\partial L}{\partial\theta_o} = \tfrac2O (C\theta_o - b_o).$$

One product with $C$ gives loss and gradient; automatic differentiation of `loss` is the oracle in the tests.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.data.moments import Moments
from iclflow.models import Model

__all__ = ["MomentLoss"]

Part = dict[str, Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MomentLoss:
    """Training loss, and test losses on moments of their own; `mask` is 0 on weights that must not move."""

    moments: Moments
    tests: tuple[Moments, ...]
    mask: Part | None
    model: Model = field(metadata={"static": True})

    def loss_and_gradient(self, part: Part, feed: None = None) -> tuple[Float[Array, ""], Part]:
        loss, slope = self.moments.loss_and_slope(self.model.theta(part))
        gradient = self.model.pull_back(part, slope)
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def loss(self, part: Part) -> Float[Array, ""]:
        return self.moments.loss_and_slope(self.model.theta(part))[0]

    def test_losses(self, part: Part) -> Float[Array, " tests"]:
        theta = self.model.theta(part)
        return jnp.array([moments.loss_and_slope(theta)[0] for moments in self.tests])
