r"""White tokens and tasks, merged attention: the entire training in closed form.

For $\Lambda = cI$, $\Omega = \omega I$ the effective matrix stays a multiple of the identity, $A(t) =
\sigma(t) I$. Let $a_i = v_i$ and $y_i = \operatorname{tr} U_i/\sqrt D$. Then $p = a\cdot y$ grows with $s =
\sqrt{OD}\, C_1$ against $m = b c$, where $C_1, b, c$ are the multiples of the identity that make up the
landscape, and $X = e^{2\int (s - m p)}$ obeys a Riccati equation [`white-riccati`]:

$$\tau\dot X = 2(sX - m\alpha X^2 + m\beta),\quad
  \alpha = \tfrac14|a_0+y_0|^2,\ \beta = \tfrac14|a_0-y_0|^2,\quad
  \sigma = \frac{\alpha X - \beta/X}{\sqrt{OD}} .$$

Exact when every $U_i$ is a multiple of the identity; other parts of $U_i$ matter only at the order of the
weights squared.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.theory.landscape import Landscape, landscape

__all__ = ["White", "gain", "loss", "paper_gain", "white_landscape"]


class White(NamedTuple):
    """The numbers that describe the training on a white task."""

    drive: float  # s, with the factor sqrt(O) of O outputs
    curvature: float  # m
    width: float  # sqrt(O D), the unit of the gain
    scene: Landscape

    @property
    def final(self) -> float:
        r"""$\sigma_\infty = s/(m\sqrt{OD})$, the gain at the minimum."""
        return self.drive / self.curvature / self.width


def white_landscape(task: Task) -> White:
    """The numbers that describe the training on a white task."""
    L = landscape(task)
    for field, matrix in (("spectrum", L.query), ("task_spectrum", L.cross)):
        if not is_white(matrix):
            given = getattr(task, field)
            raise BadInput(f"{field}: {given!r} must be white, with all eigenvalues equal, for the closed form")
    cross, context, query = (float(matrix[0, 0]) for matrix in (L.cross, L.context, L.query))
    width = float(np.sqrt(task.out_dim * task.dim))
    return White(width * cross, context * query, width, L)


def is_white(matrix: Float[np.ndarray, "D D"]) -> bool:
    return bool(np.abs(matrix - matrix[0, 0] * np.eye(len(matrix))).max() <= 1e-12 * matrix[0, 0])


def gain(task: Task, alpha: float, beta: float, time: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    r"""$\sigma(t)$ for any initial values of the heads [`white-riccati`].

    $$\frac{X - X_-}{X_+ - X} = \frac{1 - X_-}{X_+ - 1}\, e^{2\varrho t/\tau},\quad
      X_\pm = \frac{s\pm\varrho}{2m\alpha},\quad \varrho = \sqrt{s^2 + 4m^2\alpha\beta}$$

    `alpha` and `beta` come from `theory.merged.alignment`. With `alpha = 0` the weights decay to the zero function;
    with `beta = 0`, where all heads start on the growing line $v = y$, this is Eq. 10 for any white task
    [`white-balanced`]: $\sigma = e^{2st}/[(e^{2st} - 1)/\sigma_\infty + \sqrt{OD}/\alpha]$.
    """
    s, m, width, _ = white_landscape(task)
    if alpha < 0 or beta < 0:
        raise BadInput(f"alpha, beta: {alpha}, {beta} must be at least 0")
    time = np.asarray(time, dtype=float)
    if alpha == 0:
        decay = np.exp(-2 * s * time)
        return -beta * decay / (1 + m * beta / s * (1 - decay)) / width
    rho = np.sqrt(s**2 + 4 * m**2 * alpha * beta)
    upper = (s + rho) / (2 * m * alpha)
    lower = -beta / (alpha * upper)
    fading = np.exp(-2 * rho * time)
    X = (upper * (1 - lower) + lower * (upper - 1) * fading) / ((1 - lower) + (upper - 1) * fading)
    return (alpha * X - beta / X) / width


def loss(task: Task, gain: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    r"""The loss of $A = \sigma I$: $L_0 - 2\sigma \operatorname{tr} C_1 + \sigma^2 D m$ [`white-loss`]."""
    white = white_landscape(task)
    return white.scene.base - 2 * gain * np.trace(white.scene.cross) + gain**2 * task.dim * white.curvature


def paper_gain(dim: int, context: int, initial: float, time: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    r"""Eq. 10 as printed, for $\Lambda = \Omega = I$ and one output [`white-paper`].

    $$\sigma(t) = \frac{e^{2\sqrt D t/\tau}}{(1 + (1+D)/N)(e^{2\sqrt D t/\tau} - 1) + \sqrt D/w_{init}^2}$$

    Read $w_{init}^2$ as $\alpha$. A `white` spectrum has trace 1, so $\Lambda = I/D$: use
    `gain` with `beta = 0` for it.
    """
    fading = np.exp(-2 * np.sqrt(dim) * np.asarray(time, dtype=float))
    return 1 / ((1 + (1 + dim) / context) * (1 - fading) + np.sqrt(dim) / initial**2 * fading)
