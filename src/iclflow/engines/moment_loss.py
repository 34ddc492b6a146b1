r"""The loss of a linear model from moments, with its gradient written by hand.

$$\Theta_o[a,b,c] = \sum_h V_h[o,a] M_h[b,c],\quad
  \frac{\partial L}{\partial V_h[o,a]} = \sum_{bc} \dot\Theta_o[a,b,c] M_h[b,c],\quad
  \frac{\partial L}{\partial M_h[b,c]} = \sum_{oa} \dot\Theta_o[a,b,c] V_h[o,a].$$

One product with $C$ gives loss and gradient; automatic differentiation of `loss` is the oracle in the tests.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.config import Model
from iclflow.data.moments import Moments
from iclflow.models import kind

__all__ = ["MomentLoss"]

Part = dict[str, Array]


class MomentLoss(eqx.Module):
    """Training loss, and test losses on moments of their own; `mask` is 0 on weights that must not move."""

    moments: Moments
    tests: tuple[Moments, ...]
    mask: Part | None
    model: Model = eqx.field(static=True)

    def loss_and_gradient(self, part: Part, feed: None = None) -> tuple[Float[Array, ""], Part]:
        value, key_query = kind(self.model).factors(part)
        loss, slope = self.moments.loss_and_slope(combine(value, key_query))
        outputs, rows, cols, dim = slope.shape
        heads = value.shape[0]
        flat_value = value.reshape(heads, outputs * rows)
        flat_slope = slope.reshape(outputs * rows, cols * dim)
        value_slope = (key_query.reshape(heads, cols * dim) @ flat_slope.T).reshape(value.shape)
        key_query_slope = (flat_value @ flat_slope).reshape(key_query.shape)
        gradient = kind(self.model).pull_back(part, value_slope, key_query_slope)
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def loss(self, part: Part) -> Float[Array, ""]:
        return self.moments.loss_and_slope(combine(*kind(self.model).factors(part)))[0]

    def test_losses(self, part: Part) -> Float[Array, " tests"]:
        theta = combine(*kind(self.model).factors(part))
        return jnp.array([moments.loss_and_slope(theta)[0] for moments in self.tests])


def combine(value: Float[Array, "H O A"], key_query: Float[Array, "H B D"]) -> Float[Array, "O A B D"]:
    heads, outputs, rows = value.shape
    cols, dim = key_query.shape[1:]
    theta = value.reshape(heads, outputs * rows).T @ key_query.reshape(heads, cols * dim)
    return theta.reshape(outputs, rows, cols, dim)
