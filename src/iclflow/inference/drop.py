r"""One drop and the three numbers that made it.

A direction with drive $g$ and curvature $m$ that one head learns takes away $T^2 = g^2/m$ of the loss. With
$X = x^3$ and $c = (g/m)^{1/3}$ its course is one function of $z = w\,(t - T^*)$, $w = gc$ [`drop-shape`]:

$$L(t) = L_{before} - T^2 S(z),\qquad S = 2X - X^2,\qquad dx/dz = x^2 - x^5 .$$

So a drop shows its height $T^2$, its slope, which is $.583535\,w\,T^2$ at half height, and its time, and back
[`drop-inverse`]

$g = w^{3/2}/T,\qquad m = g^2/T^2,\qquad v_0 = 1/(g T^*).$

With task covariance $I$ and label noise $\sigma^2$ the eigenvalue of $O = 1$ output is $\lambda = \sqrt g$, and

$$T^2 = \frac{\lambda^2}{\lambda(1 + 1/N) + (\operatorname{tr}\Lambda + \sigma^2)/N} .$$
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.theory.single_mode import MIDPOINT, Growth

__all__ = ["HALF_SLOPE", "context_of", "drop_shape", "eigenvalue_of", "pace_of", "saved_by"]

HALF_SLOPE = 6 * (1 - MIDPOINT) * (MIDPOINT ** (4 / 3) - MIDPOINT ** (7 / 3))  # dS/dz where S = 1/2
LATEST, PLACES = 60.0, 6001  # of the table, in ln X/(1 - X)

Values = Float[np.ndarray, "..."]  # of one curve, or of many side by side


class Table(NamedTuple):
    """Scaled ages and the share of its strength that a direction has reached by then."""

    age: Float[np.ndarray, " n"]
    fraction: Float[np.ndarray, " n"]


@cache
def table() -> Table:
    """The solution of the scalar equation, from its closed form."""
    logit = np.sinh(np.linspace(-np.arcsinh(LATEST), np.arcsinh(LATEST), PLACES))
    return Table(np.asarray(Growth(1.0, 1.0).age_at(logit)), 1 / (1 + np.exp(-logit)))


def drop_shape(z: Float[np.ndarray, "..."]) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    r"""$S(z)$ and $dS/dz$ [`drop-shape`]."""
    age, fraction = table()
    early = np.minimum(-1 / np.minimum(z, age[0]), 1.0) ** 3  # x = -1/z as long as nothing saturates
    X = np.where(z < age[0], early, np.interp(z, age, fraction))
    return X * (2 - X), 6 * (1 - X) * (X ** (4 / 3) - X ** (7 / 3))


def saved_by(eigenvalue: Values, per_context: Values | float, power: Values | float) -> Values:
    r"""$T^2$ of directions, `per_context` $= 1/N$ and `power` $= \operatorname{tr}\Lambda + \sigma^2$."""
    return eigenvalue**2 / (eigenvalue * (1 + per_context) + power * per_context)


def eigenvalue_of(saved: Values, per_context: Values | float, power: Values | float) -> Values:
    r"""The inverse of `saved_by` [`level-inverse`].

    $$\lambda = \tfrac12\Big[T^2(1 + 1/N) + \sqrt{T^4(1 + 1/N)^2 + 4T^2(\operatorname{tr}\Lambda + \sigma^2)/N}\Big]$$
    """
    linear = saved * (1 + per_context)
    return (linear + np.sqrt(linear**2 + 4 * saved * power * per_context)) / 2


def context_of(eigenvalue: Values, saved: Values, power: Values | float) -> Values:
    r"""The context length that each drop tells, $N = (\lambda + \operatorname{tr}\Lambda + \sigma^2)/(\lambda^2/T^2
    - \lambda)$ [`context-inverse`]."""
    return (eigenvalue + power) / (eigenvalue**2 / saved - eigenvalue)


def pace_of(eigenvalue: Values, saved: Values, outputs: int) -> Values:
    r"""$w = gc = (O\lambda^2 T)^{2/3}$, because $O$ outputs share the drive $g = \sqrt O\lambda^2$ of one head."""
    return (outputs * eigenvalue**2 * np.sqrt(saved)) ** (2 / 3)
