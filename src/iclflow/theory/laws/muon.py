r"""Muon, $W \leftarrow W - \eta\,UV'$ from the singular vectors of the gradient, on the clock $s = \eta\,n$.

All singular values of an update are one, so a direction grows at a speed that knows neither its drive nor the initial
weights. From weights small enough to be forgotten [`muon`], with $g_d, m_d$ and $\alpha_d = g_d/m_d$ as everywhere:

* **separate, heads stacked** into one matrix of keys and one of queries: all directions grow at once, $k_d = q_d = s$,
  each in a head of its own, while the value weights share one unit speed, $\dot v = p/|p|$, $p_d =
  k_dq_d(g_d - m_dA_d)$, $A_d = v_dk_dq_d$. Half of the leading direction is learned at $(\alpha_1|g|/2g_1)^{1/3}$.
* **separate, one head at a time**: every head has unit speed and turns to $e_1$, $A_1 = Hs^3$, half of it at
  $(\alpha_1/2H)^{1/3}$. What comes after has no theory here.
* **merged**: $v = s$ and $U = s\,I$, for all heads together or for each, so $A = s^2I$ or $Hs^2I$ until $A_d =
  \alpha_d$. Of heads one at a time, one whose $v$ and $\operatorname{tr}UC_1$ differ in sign is flipped to and fro by
  steps larger than its weights, and does not grow.

With $O$ outputs the value block is $O$ times as wide and $v$ grows $\sqrt O$ times as fast. Decoupled decay takes
$\lambda W$ from every speed. There are no plateaus: fixed points stay where they are, but nothing waits at them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions
from iclflow.theory.separate import check_commuting

__all__ = ["MuonCourse", "muon_heads", "muon_merged", "muon_stacked"]

GRID = 4000  # steps of the integration, over three times the time that the slowest direction needs


class MuonCourse(NamedTuple):
    """Strengths of all directions along the clock learning rate x step, in the paper's units."""

    time: Float[np.ndarray, " n"]
    strength: Float[np.ndarray, "n D"]

    def loss(self, d: Directions) -> Float[np.ndarray, " n"]:
        r"""$L_0 - \sum_d(2g_dA_d - m_dA_d^2)/O$ along the course."""
        A = self.strength
        return d.base - np.sum(2 * d.drive * A - d.curvature * A**2, axis=1) / d.outputs


def muon_stacked(d: Directions, decay: float = 0.0) -> MuonCourse:
    """Separate attention with all heads stacked: all directions grow together [`muon`]."""
    check_commuting(d, "Muon's theory")
    largest = 3 * float(np.cbrt(d.strength.max() * np.linalg.norm(d.drive) / d.drive.min()))
    time = np.linspace(0, largest, GRID)
    ds, v, A = time[1], np.zeros(len(d.drive)), np.zeros((GRID, len(d.drive)))
    k, middle = unit_speed(time, decay), unit_speed(time - ds / 2, decay)
    for n in range(1, GRID):
        growing = A[n - 1] < d.strength
        p = np.where(growing, middle[n] ** 2 * (d.drive - d.curvature * A[n - 1]), 0.0)
        size = np.linalg.norm(p)
        v = v + ds * ((np.sqrt(d.outputs) * p / size if size > 0 else 0.0) - decay * v)
        A[n] = np.where(growing, np.minimum(v * k[n] ** 2, d.strength), d.strength)
    return MuonCourse(time, A)


def muon_heads(d: Directions, heads: int, decay: float = 0.0) -> MuonCourse:
    r"""Separate attention, one head at a time: all heads learn the leading direction together [`muon`]."""
    check_commuting(d, "Muon's theory")
    first = int(np.argmax(d.drive))
    time = np.linspace(0, 3 * float(np.cbrt(d.strength[first] / (heads * np.sqrt(d.outputs)))), GRID)
    strength = np.zeros((GRID, len(d.drive)))
    grown = heads * np.sqrt(d.outputs) * unit_speed(time, decay) ** 3
    strength[:, first] = np.minimum(grown, d.strength[first])
    return MuonCourse(time, strength)


def muon_merged(d: Directions, copies: int, decay: float = 0.0) -> MuonCourse:
    r"""Merged attention: all directions have the same strength until each is learned [`muon`]."""
    check_commuting(d, "Muon's theory")
    speed = copies * np.sqrt(d.outputs)
    time = np.linspace(0, 3 * float(np.sqrt(d.strength.max() / speed)), GRID)
    return MuonCourse(time, np.minimum(speed * unit_speed(time, decay)[:, None] ** 2, d.strength))


def unit_speed(time: Float[np.ndarray, " n"], decay: float) -> Float[np.ndarray, " n"]:
    """What grows from zero at unit speed, less what decay takes."""
    if decay < 0:
        raise BadInput(f"decay: {decay} must be at least 0")
    return time if decay == 0 else -np.expm1(-decay * time) / decay
