r"""Times along the paths of many heads at once: $\int_0^s ds'/\sqrt{\Phi(s')}$ where $\Phi$ rises from $s = 0$.

One leg is what a head climbs in a constant force (`theory.early_phase`),

$$\Phi(s) = \Phi_0 + \tfrac12\sum_d\big[\uparrow_d(e^{2g_ds} - 1) + \downarrow_d(e^{-2g_ds} - 1)\big] .$$

A change of variable that would flatten the quadratic part of $\Phi$ removes the square root at a turning point and the
near-singularity at a small minimum; panels of Gauss-Legendre points do the rest. All heads share the drives $g_d$, so
arrays have one row per leg, and legs with fewer panels end in panels of width zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

__all__ = ["Climbs", "Legs", "join_climbs", "join_legs"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]
EFOLDS = 42.0  # an integral counts as complete once its integrand has fallen by e^-42
OVERFLOW = 690.0
FAINT = 1e-120  # parts of key and query this much smaller than the rest count as zero

Numbers = Float[np.ndarray, " n"]  # one per leg
Parts = Float[np.ndarray, "n D"]
Points = Float[np.ndarray, "n *points"]  # any number per leg
Some = slice | Bool[np.ndarray, " n"]


def beside(per_leg: np.ndarray, points: np.ndarray) -> np.ndarray:
    """One number per leg, shaped to meet several points per leg."""
    return per_leg.reshape(-1, *[1] * (points.ndim - 1))


@dataclass(frozen=True)
class Legs:
    r"""$\Phi$ of n legs: its value at $s = 0$, the parts that rise and fall, and the drives."""

    floor: Numbers
    rising: Parts  # |k + q|^2 / 2, taken in the direction of the leg
    falling: Parts  # |k - q|^2 / 2
    drive: Float[np.ndarray, " D"]

    def __getitem__(self, some: Some) -> "Legs":
        """Some of the legs."""
        return Legs(self.floor[some], self.rising[some], self.falling[some], self.drive)

    def energy(self, s: Points) -> Points:
        r"""$\Phi(s)$."""
        grown = np.expm1(np.minimum(np.multiply.outer(s.reshape(len(s), -1), 2 * self.drive), OVERFLOW))
        gain = grown @ self.rising[:, :, None] - (grown / (1 + grown)) @ self.falling[:, :, None]
        return beside(self.floor, s) + gain.reshape(s.shape) / 2

    @cached_property
    def chart(self) -> tuple[Numbers, Numbers, Bool[np.ndarray, " n"]]:
        r"""(scale, $\theta_0$, cosh or sinh) of the map $s = $ scale $(\cosh\theta - \cosh\theta_0)$."""
        centre = np.maximum((self.rising - self.falling) @ self.drive, 0.0)
        bend = (self.rising + self.falling) @ self.drive**2
        centre, lift = centre / (2 * bend), self.floor / bend
        gap = centre**2 - lift
        size = np.sqrt(np.maximum(np.abs(gap), 1e-16 * (centre**2 + lift)))  # any nonzero scale will do
        size = np.minimum(size, 1 / self.drive.max())
        cosine = (gap > 0) & (centre >= size)
        ratio = centre / size
        return size, np.where(cosine, np.arccosh(np.maximum(ratio, 1.0)), np.arcsinh(ratio)), cosine

    def position(self, theta: Points) -> Points:
        r"""$s$ at $\theta$."""
        size, start, cosine = (beside(part, theta) for part in self.chart)
        middle, half = (theta + start) / 2, (theta - start) / 2
        return 2 * size * np.where(cosine, np.sinh(middle), np.cosh(middle)) * np.sinh(half)

    def angle(self, s: Points) -> Points:
        r"""$\theta$ at $s$."""
        size, start, cosine = (beside(part, s) for part in self.chart)
        far = s / size
        wide = np.arccosh(np.maximum(far + np.cosh(start), 1.0))
        return np.where(cosine, wide, np.arcsinh(far + np.sinh(start)))

    def pace(self, theta: Points) -> Points:
        r"""$dt/d\theta$, which is smooth; at a turning point itself it would be 0/0."""
        size, start, cosine = (beside(part, theta) for part in self.chart)
        theta = np.maximum(theta, start + 1e-7)
        return size * np.where(cosine, np.sinh(theta), np.cosh(theta)) / np.sqrt(self.energy(self.position(theta)))

    def climb(self, end: Numbers) -> "Climbs":
        r"""The paths up to $s = $ `end`, cut into panels.

        They are evenly spaced in $\theta$ where the quadratic part of $\Phi$ dominates, and in $s$ beyond.
        """
        bend = np.minimum(end, 1 / self.drive.max())
        start, stop = self.chart[1], self.angle(bend)
        near = start[:, None] + (stop - start)[:, None] * shares(np.ceil(1.25 * (stop - start)) + 1)
        width = near[:, 1:] - near[:, :-1]
        inside = self.pace(near[:, :-1, None] + width[:, :, None] * NODES) @ WEIGHTS * width
        count = np.ceil((end - bend) / self.step)
        far = bend[:, None] + (end - bend)[:, None] * shares(count)
        width = far[:, 1:] - far[:, :-1]
        beyond = self.inverse_roots(far[:, :-1], (end - bend) / np.maximum(count, 1)) @ WEIGHTS * width
        edges = np.concatenate([near, self.angle(far[:, 1:])], axis=1)
        return Climbs(self, edges, np.cumsum(np.concatenate([0 * edges[:, :1], inside, beyond], axis=1), axis=1))

    def inverse_roots(self, left: Float[np.ndarray, "n panels"], width: Numbers) -> Float[np.ndarray, "n panels nodes"]:
        r"""$1/\sqrt\Phi$ at the nodes of panels of one width per leg; $e^{a+b} = e^ae^b$ saves most exponentials."""
        to_panel = np.minimum(2 * left[:, :, None] * self.drive, OVERFLOW)
        to_node = np.minimum(2 * width[:, None, None] * NODES[:, None] * self.drive, OVERFLOW)
        gain = np.zeros((*left.shape, len(NODES)))
        with np.errstate(over="ignore"):  # what overflows is an energy whose inverse is zero
            for sign, part in ((1, self.rising), (-1, self.falling)):
                panel, node = np.expm1(sign * to_panel), np.expm1(sign * to_node)  # expm1(a+b) = p + (1 + p) n
                gain += (part[:, None] * (1 + panel)) @ np.swapaxes(node, 1, 2) + panel @ part[:, :, None]
            return 1 / np.sqrt(self.floor[:, None, None] + gain / 2)

    @cached_property
    def ends(self) -> Parts:
        """Where each direction alone would have completed the integral; infinity if it does not grow."""
        size = np.sqrt(self.rising)
        scale = np.sqrt(self.floor + np.sum(self.rising + self.falling, axis=1))[:, None]
        grows = (size > FAINT * scale) & (self.drive > 0)
        folds = EFOLDS - np.log(np.where(grows, size, scale) / scale)
        return np.where(grows, folds / np.where(grows, self.drive, 1.0), np.inf)

    @property
    def reach(self) -> Numbers:
        """Where the rest of the integral is negligible; infinity if nothing grows along this leg."""
        return self.ends.min(axis=1)

    @property
    def step(self) -> Numbers:
        return 2 / np.where(np.isfinite(self.reach), self.drive[np.argmin(self.ends, axis=1)], self.drive.max())


@dataclass(frozen=True)
class Climbs:
    r"""Legs cut into panels: their edges in $\theta$ and the time at each edge."""

    legs: Legs
    edges: Float[np.ndarray, "n panels"]
    times: Float[np.ndarray, "n panels"]

    def __getitem__(self, some: Some) -> "Climbs":
        """Some of the climbs."""
        return Climbs(self.legs[some], self.edges[some], self.times[some])

    @property
    def total(self) -> Numbers:
        return self.times[:, -1]

    def position(self, time: Float[np.ndarray, "n T"]) -> Float[np.ndarray, "n T"]:
        """How far each leg is climbed after its times, by Newton's method inside the panel that holds them."""
        passed = np.sum(self.times[:, None, :] <= time[:, :, None], axis=2) - 1
        panel = np.clip(passed, 0, self.edges.shape[1] - 2)
        left, right = (np.take_along_axis(self.edges, panel + side, axis=1) for side in (0, 1))
        before, behind = (np.take_along_axis(self.times, panel + side, axis=1) for side in (0, 1))
        theta = left + (right - left) * np.clip((time - before) / np.maximum(behind - before, 1e-300), 0, 1)
        for _ in range(30):
            span = theta - left
            spent = before + span * (self.legs.pace(left[..., None] + span[..., None] * NODES) @ WEIGHTS)
            step = np.clip((time - spent) / self.legs.pace(theta), left - theta, right - theta)
            theta = theta + step
            if np.all(np.abs(step) <= 1e-13 * (1 + np.abs(theta))):
                break
        return self.legs.position(theta)


def shares(counts: Numbers) -> Float[np.ndarray, "n edges"]:
    """0, 1/count, .., 1 in every row; shorter rows are filled with ones."""
    return np.minimum(np.arange(int(counts.max()) + 1) / np.maximum(counts, 1)[:, None], 1.0)


def join_legs(legs: Sequence[Legs]) -> Legs:
    """Several legs in the same force as one record."""
    floor, rising, falling = (
        np.concatenate([getattr(leg, name) for leg in legs]) for name in ("floor", "rising", "falling")
    )
    return Legs(floor, rising, falling, legs[0].drive)


def join_climbs(climbs: Sequence[Climbs]) -> Climbs:
    """Several parts of the same record of climbs as one again."""
    edges, times = (np.concatenate([getattr(climb, name) for climb in climbs]) for name in ("edges", "times"))
    return Climbs(join_legs([climb.legs for climb in climbs]), edges, times)
