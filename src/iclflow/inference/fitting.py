r"""The staircase of theory, fitted to a curve.

$$L(t) = \operatorname{tr}\Lambda - \sum_d T_d^2\,S\big(w_d(t - T_d^*)\big)$$

With $K$ drops on the curve it has $2K + 2$ numbers: $\lambda_d$, $T_d^*$, $1/N$, and the trace $r$ of directions that
have not dropped, $\operatorname{tr}\Lambda = \sum_d\lambda_d + r$. Height and pace of every drop follow from
$\lambda_d$, $N$ and the trace, so $K$ heights, $K$ slopes and $L(0)$ over-determine them [`curve-fit`].

Heads that are not quite alone bend a drop a little, so a point on a slope is known less well than one on a plateau: its
error is taken to be $\sigma^2 = \sigma_0^2 + (\eta\,T^2 dS/dz)^2$ beside its noise. Drops that overlap share the force
on the same heads, and what this adds is left in the residuals, which widen the intervals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from iclflow.inference.drop import drop_shape, pace_of, saved_by
from iclflow.inference.observing import Observed

__all__ = ["Fit", "Numbers", "Setting", "fit"]

FLOOR, TINY = 2e-4, 1e-6  # sigma_0, of the height of the nearest drop and of the fall
BEND = 0.02  # eta
LEAST_MISFIT = 1e-8  # rounding leaves something
SMALL = 0.05  # height, of the fall: smaller drops wait in the first round until the others stand where they belong
ROUNDS = 3  # of new errors for the points
LEAST, MOST = 1e-9, 10.0  # 1/N
LOWEST = -0.5  # r, of the sum of the eigenvalues
NUDGE = 1e-6
STEPS, STIFFEST, ENOUGH = 40, 1e8, 1e-4  # of the descent: how many, how damped, how exact
LONGEST, WIDTHS = 0.3, 3.0  # a step of logarithms, and of times in widths of the drop

Vector = Float[np.ndarray, " P"]


class Setting(NamedTuple):
    """What is known beside the curve."""

    outputs: int = 1
    noise: float = 0.0  # sigma^2 of the labels


class Drops(NamedTuple):
    """Trace, heights, paces and times of all drops, of one set of numbers or of many side by side."""

    trace: Float[np.ndarray, "*many one"]
    saved: Float[np.ndarray, "*many K"]
    pace: Float[np.ndarray, "*many K"]
    time: Float[np.ndarray, "*many K"]


def drops(packed: Float[np.ndarray, "*many P"], setting: Setting) -> Drops:
    r"""What $\ln\lambda_d$, $\ln T_d^*$, $1/N$ and $r/\sum\lambda$ make of a curve."""
    K = packed.shape[-1] // 2 - 1
    eigenvalue, time, per_context = np.exp(packed[..., :K]), np.exp(packed[..., K : 2 * K]), packed[..., -2:-1]
    trace = eigenvalue.sum(axis=-1, keepdims=True) * (1 + packed[..., -1:])
    saved = saved_by(eigenvalue, per_context, trace + setting.noise)
    return Drops(trace, saved, pace_of(eigenvalue, saved, setting.outputs), time)


class Numbers(NamedTuple):
    """What the curve consists of."""

    eigenvalue: Float[np.ndarray, " K"]
    per_context: float  # 1/N
    rest: float  # r
    time: Float[np.ndarray, " K"]  # T*
    setting: Setting

    @classmethod
    def of(cls, packed: Vector, setting: Setting) -> "Numbers":
        """The numbers from how a fit holds them."""
        K = len(packed) // 2 - 1
        eigenvalue = np.exp(packed[:K])
        rest = float(packed[-1] * eigenvalue.sum())
        return cls(eigenvalue, float(packed[-2]), rest, np.exp(packed[K : 2 * K]), setting)

    @property
    def packed(self) -> Vector:
        """As a fit holds them."""
        last = [self.per_context, self.rest / self.eigenvalue.sum()]
        return np.concatenate([np.log(self.eigenvalue), np.log(self.time), last])

    @property
    def trace(self) -> float:
        r"""$\operatorname{tr}\Lambda$."""
        return float(self.eigenvalue.sum() + self.rest)

    @property
    def sizes(self) -> Float[np.ndarray, " K"]:
        r"""$v_0 = 1/(gT^*)$, the size of a balanced head along each direction that drops at that time."""
        return 1 / (np.sqrt(self.setting.outputs) * self.eigenvalue**2 * self.time)

    @property
    def drops(self) -> Drops:
        """Heights, paces and times."""
        return drops(self.packed, self.setting)


@dataclass(frozen=True)
class Fit:
    """The numbers that fit best, how they covary, and what is left."""

    numbers: Numbers
    inverse: Float[np.ndarray, "P P"]  # of the curvature, in packed numbers
    residual: Float[np.ndarray, " n"]  # in units of the errors
    error: Float[np.ndarray, " n"]
    free_rest: bool
    doubt: "Fit | None" = None  # a fit with directions that have not dropped, where noise hides whether there are any

    @property
    def misfit(self) -> float:
        """The mean square of the residuals in units of the errors; 1 where all is as it was taken to be."""
        free = max(len(self.residual) - len(self.inverse), 1)
        squares = float(np.sum(self.residual**2) / free)
        return max(squares, LEAST_MISFIT) if np.isfinite(squares) else np.inf

    @property
    def independent(self) -> float:
        r"""How many residuals are independent: $n(1 - \rho)/(1 + \rho)$, $\rho$ the correlation of neighbours."""
        r = self.residual
        rho = float(np.clip(np.sum(r[1:] * r[:-1]) / max(np.sum(r * r), 1e-300), 0.0, 0.98))
        return len(r) * (1 - rho) / (1 + rho)

    @property
    def covariance(self) -> Float[np.ndarray, "P P"]:
        """Of the packed numbers, from curvature and residuals, of which neighbours are not independent."""
        size = len(self.numbers.packed)
        whole = np.zeros((size, size))  # a rest that is not free is known to be zero
        known = len(self.inverse)
        whole[:known, :known] = self.inverse * self.misfit * len(self.residual) / self.independent
        return whole

    def spread(self, of: Callable[[Numbers], Float[np.ndarray, " q"]]) -> Float[np.ndarray, " q"]:
        """The standard errors of quantities that follow from the numbers, by their slopes."""
        packed, nudge = self.numbers.packed, NUDGE * np.eye(len(self.numbers.packed))
        at = lambda moved: of(Numbers.of(moved, self.numbers.setting))
        slope = np.stack([(at(packed + n) - at(packed - n)) / (2 * NUDGE) for n in nudge], axis=1)
        return np.sqrt(np.maximum(np.einsum("qp,pr,qr->q", slope, self.covariance, slope), 0.0))

    def excess(self, other: "Fit") -> float:
        """By how much the squares of a fit with fewer numbers are larger, in units of one independent residual."""
        squares = max(float(np.sum(self.residual**2)), 1e-20)
        weighed = (other.residual * other.error / self.error) ** 2
        return (float(np.sum(weighed)) - squares) / squares * self.independent


def curve(packed: Vector, setting: Setting, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The loss [`curve-fit`]."""
    found = drops(packed, setting)
    return found.trace - drop_shape(found.pace * (time[:, None] - found.time))[0] @ found.saved


def slopes(packed: Vector, setting: Setting, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n P"]:
    """The slope of the curve against the numbers as a fit holds them."""
    now, nudge = drops(packed, setting), NUDGE * np.eye(len(packed))
    up, down = drops(packed + nudge, setting), drops(packed - nudge, setting)
    trace, saved, pace, moved = ((a - b) / (2 * NUDGE) for a, b in zip(up, down, strict=True))
    age = time[:, None] - now.time
    shape, steep = drop_shape(now.pace * age)
    return trace.T - shape @ saved.T - (steep * age) @ (now.saved * pace).T + steep @ (now.saved * now.pace * moved).T


def fit(seen: Observed, start: Numbers, free_rest: bool = True, rounds: int = ROUNDS) -> Fit:
    """The numbers that fit a curve best, from a start."""
    packed, setting = start.packed, start.setting
    K = len(start.time)
    packed[:K] = np.clip(packed[:K], *np.log(np.array([1e-7, 10.0]) * seen.fall))
    free = np.ones(len(packed), dtype=bool)
    if not free_rest:
        packed[-1], free[-1] = 0.0, False
    for last in range(rounds - 1, -1, -1):
        now = drops(packed, setting)
        error = errors(seen, now)
        large = now.saved > (SMALL * seen.fall if last == rounds - 1 > 0 else 0)
        moving = free & np.concatenate([large, large, [True, True]])
        packed, residual, slope = descended(seen, packed, setting, moving, error)
    inverse = scaled_inverse(slope.T @ slope)
    return Fit(Numbers.of(packed, setting), inverse, residual, error, free_rest)


def errors(seen: Observed, drops: Drops) -> Float[np.ndarray, " n"]:
    r"""How well the points are known: $\sigma_0$ goes with the height of the drop that is nearest in $\ln t$."""
    age = seen.time[:, None] - drops.time
    bent = drop_shape(drops.pace * age)[1] @ drops.saved
    apart = np.abs(np.log(np.maximum(seen.time, TINY * seen.time[-1]))[:, None] - np.log(drops.time))
    floor = FLOOR * drops.saved[np.argmin(apart, axis=1)] + TINY * seen.fall
    return np.sqrt(floor**2 + (BEND * bent) ** 2 + seen.error**2)


def scaled_inverse(curvature: Float[np.ndarray, "F F"]) -> Float[np.ndarray, "F F"]:
    """The inverse, or what stands for it where the curve does not tell all numbers; those have a large variance."""
    if not np.isfinite(curvature).all():
        return np.diag(np.full(len(curvature), np.inf))
    size = np.sqrt(np.diag(curvature) + 1e-12)
    values, vectors = np.linalg.eigh(curvature / np.outer(size, size))
    return (vectors / np.maximum(values, 1e-12)) @ vectors.T / np.outer(size, size)


def descended(
    seen: Observed, packed: Vector, setting: Setting, free: Bool[np.ndarray, " P"], error: Float[np.ndarray, " n"]
) -> tuple[Vector, Float[np.ndarray, " n"], Float[np.ndarray, "n F"]]:
    """The best numbers for given errors, with residuals and slopes there: damped steps of Levenberg and Marquardt."""
    residual, damping, K = (curve(packed, setting, seen.time) - seen.loss) / error, 1e-3, len(packed) // 2 - 1
    slope = slopes(packed, setting, seen.time)[:, free] / error[:, None]
    for _ in range(STEPS if np.isfinite(slope).all() and np.isfinite(residual).all() else 0):
        now, squares = drops(packed, setting), float(residual @ residual)
        curvature, downhill = slope.T @ slope, -slope.T @ residual
        weight = np.diag(np.diag(curvature) + 1e-30)
        longest = np.concatenate([np.full(K, LONGEST), WIDTHS / (now.pace * now.time), [LONGEST, LONGEST]])
        while damping < STIFFEST:
            step = np.zeros(len(packed))
            step[free] = np.linalg.solve(curvature + damping * weight, downhill)
            nearer = packed + np.clip(step, -longest, longest)
            nearer[:K] = np.clip(nearer[:K], *np.log(np.array([1e-7, 10.0]) * seen.fall))
            nearer[-2], nearer[-1] = np.clip(nearer[-2], LEAST, MOST), max(nearer[-1], LOWEST)
            trial = (curve(nearer, setting, seen.time) - seen.loss) / error
            later = slopes(nearer, setting, seen.time)[:, free] / error[:, None]
            if trial @ trial < squares and np.isfinite(later).all():
                break
            damping *= 5
        else:
            break
        packed, residual, slope, damping = nearer, trial, later, max(damping / 10, 1e-12)
        if squares - float(residual @ residual) < ENOUGH * squares:
            break
    return packed, residual, slope
