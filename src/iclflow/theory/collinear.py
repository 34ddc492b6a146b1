r"""Merged attention: its equations (Eq. 8), and heads that have become collinear.

In a force $G$ on the product of values and key-query matrices every head follows [`merged-flow`] (Eq. 8)

$$\tau\dot v = \langle U, G\rangle,\qquad \tau\dot U = v\,G ,$$

or, if its value is a row, $\tau\dot v = GU$, $\tau\dot U = v'G$. After a short time all heads are multiples of one
with a value $a\,n$ and a matrix $a\,r$, $|n| = |r| = 1$. With drive $g$, curvature $m$ and weight decay $\gamma$ it
follows [`collinear`]

$$\tau\dot{\ln a} = n'Gr - \gamma,\qquad \tau\dot n = Gr - n\;n'Gr,\qquad \tau\dot r = G'n - r\;n'Gr,\qquad
  G = g - a^2\,m(n r') .$$

On the plateau $\ln a$ grows at a constant rate while $n$ and $r$ rest, so a long plateau costs nothing. A value that is
one number has $n = 1$, and in a basis in which its loss is diagonal the derivative of the right-hand side is diagonal
but for a few rows and columns, so an implicit step takes as many operations as there are modes.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.solve import Resolvent, Size, Solve, differenced_resolvent, solve

__all__ = ["Modes", "flow"]

UNFELT = 1e-12  # a share of the drive
States = Float[np.ndarray, "*T n"]  # ln a, n, r
Products = Float[np.ndarray, "*T p M"]
Vector = Float[np.ndarray, " all"]  # all states, one after the other


@no_type_check
def flow(
    value: Float[np.ndarray, "*heads p"], matrix: Float[np.ndarray, "*heads M"], force: Products
) -> tuple[Float[np.ndarray, "*heads p"], Float[np.ndarray, "*heads M"]]:
    r"""$(\tau\dot v, \tau\dot U)$ of heads in a force [`merged-flow`] (Eq. 8); a value may be a row of p numbers."""
    return (force @ matrix[..., None])[..., 0], (value[..., None, :] @ force)[..., 0, :]


class Modes(NamedTuple):
    """A quadratic loss of products of a value and a matrix, and the flow of the head that all others have joined."""

    base: float  # the loss at zero
    outputs: int
    drive: Float[np.ndarray, "*p M"]  # with p rows if the value is a row of p numbers
    curvature: Float[np.ndarray, " M"] | Float[np.ndarray, "pM pM"]  # of independent modes, or a form
    decay: float = 0.0  # of the weights, per t/tau

    @property
    def saved(self) -> Float[np.ndarray, " M"]:
        r"""$T_d^2 = g_d^2/m_d$ of independent modes, a mean over outputs."""
        return self.drive**2 / self.curvature / self.outputs

    @property
    def minimum(self) -> float:
        """The lowest loss of independent modes."""
        return float(self.base - self.saved.sum())

    @property
    def independent(self) -> bool:
        """Whether the value is one number and every mode has a curvature of its own."""
        return self.curvature.ndim == 1

    @no_type_check
    def curve(self, products: Products) -> Products:
        r"""$m(A)$, the part of the force that is linear in the product."""
        if self.independent:
            return self.curvature * products
        return (products.reshape(-1, self.drive.size) @ self.curvature).reshape(products.shape)

    @no_type_check
    def product_loss(self, products: Products) -> Float[np.ndarray, "*T"]:
        """The loss of products of value and matrix."""
        change = (self.curve(products) - 2 * self.drive) * products
        return np.asarray(self.base + change.sum((-2, -1)) / self.outputs)

    @no_type_check
    def split(self, states: States) -> tuple[Float[np.ndarray, "*T p"], Float[np.ndarray, "*T M"], Products]:
        r"""$n$, $r$ and $a^2nr'$."""
        behind = 1 + (1 if self.independent else len(self.drive))
        n, r = states[..., 1:behind], states[..., behind:]
        # A trial step may overshoot far beyond any strength; the cap keeps it finite until it is rejected.
        return n, r, np.exp(np.minimum(2 * states[..., :1, None], 100.0)) * n[..., :, None] * r[..., None, :]

    @no_type_check
    def loss(self, states: States) -> Float[np.ndarray, "*T"]:
        """The loss of the head."""
        return self.product_loss(self.split(states)[2])

    def start(self, alpha: float) -> Float[np.ndarray, " n"]:
        r"""The state with $a = \sqrt\alpha$ along the leading singular pair of the drive."""
        if not (alpha > 0 and np.isfinite(alpha)):
            raise BadInput(f"alpha: {alpha} must be a finite number greater than 0")
        left, _, right = np.linalg.svd(np.atleast_2d(self.drive), full_matrices=False)
        sign = np.copysign(1.0, left[-1, 0])
        return np.concatenate([[np.log(alpha) / 2], sign * left[:, 0], sign * right[0]])

    def rest(self) -> Float[np.ndarray, " n"]:
        r"""The state of independent modes at rest, $r_d = g_d/(\gamma + m_da^2)$ with $|r| = 1$ [`decay-merged`].

        Where all weights decay $\ln a$ is minus infinity.
        """
        g, m = self.drive, self.curvature
        reach = lambda square: float(np.sum((g / (self.decay + m * square)) ** 2)) - 1
        if self.decay > 0 and reach(0.0) <= 0:
            return np.concatenate([[-np.inf, 1.0], g / np.linalg.norm(g)])
        high = float(np.linalg.norm(g / m))  # without decay a^2 is the norm of g / m
        low = high if self.decay == 0 else 0.0
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if reach(middle) > 0 else (low, middle)
        return np.concatenate([[np.log(high) / 2, 1.0], g / (self.decay + m * high)])

    @no_type_check
    def velocity(self, states: States) -> States:
        """The right-hand side."""
        n, r, product = self.split(states)
        on_value, on_matrix = flow(n, r, self.drive - self.curve(product))
        growth = total(n * on_value)
        return np.concatenate([growth - self.decay, on_value - n * growth, on_matrix - r * growth], axis=-1)

    @no_type_check
    def resolvent(self, states: States) -> Resolvent:
        """The inverse of a shift minus the derivative of the right-hand side."""
        if not self.independent:
            return differenced_resolvent(self.velocity, states)
        r, bent = states[..., 2:], np.exp(np.minimum(2 * states[..., :1], 100.0)) * self.curvature
        pull = self.drive - bent * r
        growth, across, down = total(r * pull), pull - bent * r, -2 * total(bent * r * r)

        @no_type_check
        def at(shift: Size) -> Solve:
            share = 1 / (shift + growth + bent)
            tilt = share * (2 * bent + shift) * r
            pivot = shift - down + total(across * tilt)

            @no_type_check
            def solved(right: Vector) -> Vector:
                b = right.reshape(states.shape)
                rest = share * (b[..., 2:] + r * b[..., :1])
                first = (b[..., :1] + total(across * rest)) / pivot
                return np.concatenate([first, 0 * first, rest - tilt * first], axis=-1).ravel()  # n stays 1

            return solved

        return at

    def farthest(self, state: Float[np.ndarray, " n"]) -> float:
        """How long a step may be: until the value has grown by e, or until what it takes of the drive can be felt."""
        taken = float(np.linalg.norm(self.curve(self.split(state)[2])) / np.linalg.norm(self.drive))
        far = max(1.0, 0.5 * float(np.log(UNFELT / max(taken, 1e-300))))
        growth = float(self.velocity(state)[0])
        return far / growth if growth > 0 else np.inf

    def half_time(self, alpha: float, lowest: float) -> float:
        """The time at which half of the drop to the loss `lowest` is done, from a small start along the drive."""
        start, middle = self.start(alpha), (self.base + lowest) / 2
        if lowest >= self.base:
            return np.inf
        if not middle < self.loss(start) <= self.base:
            raise BadInput(f"alpha: {alpha} must be small enough to start above half of the drop")
        horizon = 1e6 * (abs(np.log(alpha)) + 1) / float(self.velocity(start)[0])
        return solve(self, start, horizon, stop=lambda state: bool(self.loss(state) <= middle)).crossing(
            self.loss, middle
        )


@no_type_check
def total(terms: Float[np.ndarray, "*T M"]) -> Float[np.ndarray, "*T 1"]:
    return terms.sum(axis=-1, keepdims=True)
