r"""Moments: all that full-batch training of a linear model needs of its data.

The output of a linear model is linear in $\Theta_o[a,b,c] = \sum_h V_h[o,a]\, M_h[b,c]$ (value row times key-query):

$$\hat y_o = \nu \sum_{abc} \Theta_o[a,b,c]\, S_{ab}\, x_c, \qquad S = XX',$$

so its mean squared error is a quadratic form in $\Theta$ whose coefficients are averages over the data [`moments`]:

$$L = \tfrac1O\Big(\textstyle\sum_o E y_o^2 - 2\,\theta_o\!\cdot\! b_o + \theta_o' C\, \theta_o\Big), \qquad
  C = E[\psi\psi'],\; b_o = E[y_o\psi].$$

$S$ is symmetric, so $\psi$ keeps one half of it. Once $C$ and $b$ are known, a step costs nothing that grows with the
number or the length of the sequences. Which weight blocks the features cover:

- `all`: $a, b$ run over all $E = D + O$ rows, $a \le b$ (dense $C$, side $D E(E+1)/2$);
- `label`: $a$ over labels and $b$ over tokens, $\psi = \beta \otimes x_q$: enough while the vector blocks are zero.
  In the population $C = E[\beta\beta'] \otimes \Lambda$ and is kept as its two factors.

Only operators that NumPy and JAX share are used, so the same lines serve a compiled loop and plain arrays.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from jaxtyping import Array, Float, Int

from iclflow.data.features import Blocks
from iclflow.system.pytree import pytree

__all__ = ["AnyArray", "AnyScalar", "Moments"]

AnyArray = Array | np.ndarray
AnyScalar = Float[Array | np.ndarray | np.generic, ""]  # arithmetic on NumPy arrays without axes returns NumPy scalars


@pytree
@dataclass(frozen=True)
class Moments:
    r"""$C = $ `left` $\otimes$ `right` (or `left` alone when dense), `cross` $= b$, `power` $= \sum_o E y_o^2$."""

    left: Float[AnyArray, "J J"]
    right: Float[AnyArray, "K K"] | None
    cross: Float[AnyArray, "O J"] | Float[AnyArray, "O J K"]
    power: Float[AnyArray, ""]
    dim: int = field(metadata={"static": True})
    blocks: Blocks = field(metadata={"static": True})

    @property
    def out_dim(self) -> int:
        """The number of outputs."""
        return self.cross.shape[0]

    @property
    def zero_loss(self) -> AnyScalar:
        """The loss of a model that always predicts zero."""
        return self.power / self.out_dim

    def fold(self, theta: Float[AnyArray, "O A B D"]) -> Float[AnyArray, "O J"] | Float[AnyArray, "O J K"]:
        r"""$\Theta$ as coefficients of the features: symmetric partners are added up."""
        outputs = theta.shape[0]
        if self.blocks == "label":
            return theta.reshape(self.cross.shape)
        rows, cols = pairs(theta.shape[1])
        partner = (rows != cols).astype(theta.dtype)[:, None]
        return (theta[:, rows, cols] + partner * theta[:, cols, rows]).reshape(outputs, -1)

    def unfold(self, slope: Float[AnyArray, "O J"] | Float[AnyArray, "O J K"]) -> Float[AnyArray, "O A B D"]:
        r"""The transpose of `fold`: a slope over features as a slope over $\Theta$."""
        outputs, dim = slope.shape[0], self.dim
        if self.blocks == "label":
            return slope.reshape(outputs, outputs, dim, dim)
        return slope.reshape(outputs, -1, dim)[:, half_index(dim + outputs)]

    def residual(
        self, theta: Float[AnyArray, "O J"] | Float[AnyArray, "O J K"]
    ) -> Float[AnyArray, "O J"] | Float[AnyArray, "O J K"]:
        r"""$C\theta - b$."""
        if self.right is None:
            return (self.left @ theta.T).T - self.cross
        return self.left @ theta @ self.right - self.cross

    def loss_and_slope(self, theta: Float[AnyArray, "O A B D"]) -> tuple[AnyScalar, Float[AnyArray, "O A B D"]]:
        r"""$L(\Theta)$ and $\partial L/\partial\Theta$, one product with $C$ for both."""
        folded = self.fold(theta)
        residual = self.residual(folded)
        loss = (self.power + (folded * (residual - self.cross)).sum()) / self.out_dim
        return loss, self.unfold(residual) * (2 / self.out_dim)

    def label_part(self) -> "Moments":
        """The moments of the label blocks alone."""
        if self.blocks == "label":
            return self
        dim, outputs = self.dim, self.out_dim
        kept = half_index(dim + outputs)[dim:, :dim]
        keep = (kept[..., None] * dim + np.arange(dim)).reshape(-1)
        return Moments(self.left[np.ix_(keep, keep)], None, self.cross[:, keep], self.power, dim=dim, blocks="label")


@cache
def pairs(width: int) -> tuple[Int[np.ndarray, " J"], Int[np.ndarray, " J"]]:
    """The pairs a <= b."""
    rows, cols = np.triu_indices(width)
    return rows, cols


@cache
def half_index(width: int) -> Int[np.ndarray, "width width"]:
    """The position of the pair (a, b), in either order, among the pairs a <= b."""
    index = np.zeros((width, width), dtype=int)
    rows, cols = pairs(width)
    index[rows, cols] = index[cols, rows] = np.arange(len(rows))
    return index
