r"""The plateau, head by head: small weights in a constant force are integrable.

Near a saddle the force is constant, $G = \sum_d g_d\,\ell_d r_d'$ over the directions not yet learned, and
heads do not interact. With $\eta = \int v\,dt/\tau$ and $k_d, q_d \in R^R$ the parts of key and
query along $\ell_d, r_d$ [`early-phase`],

$$k_d = k_{d0}\cosh g_d\eta + q_{d0}\sinh g_d\eta,\qquad q_d = q_{d0}\cosh g_d\eta + k_{d0}\sinh g_d\eta,$$
$$v^2 = \Phi(\eta) := v_0^2 + \sum_d \big(|k_d(\eta)|^2 - |k_{d0}|^2\big),$$

and $\Phi$ is convex. The head diverges after [`blow-up`]

$$T^* = \int \frac{d\eta}{\sqrt{\Phi(\eta)}},$$

taken from 0 towards the sign of $v_0$; where $\Phi$ reaches zero first, the value weight changes sign and
the path turns back to the other infinity. Changing the signs of $v$ and $q$ together changes nothing, so
the code makes $v_0 \ge 0$ and lets $\eta$ rise.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import elliprf

from iclflow.errors import BadInput

__all__ = ["EarlyPhase", "blow_up_time", "early_phase", "grow", "one_direction_blow_up", "propagate"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]
EFOLDS = 42.0  # an integral counts as complete once its integrand has fallen by e^-42
OVERFLOW = 690.0
FAINT = 1e-120  # parts of key and query this much smaller than the rest count as zero

Parts = Float[np.ndarray, "R D"]
Drive = Float[np.ndarray, " D"]
Times = Float[np.ndarray, "*times"]
Numbers = Float[np.ndarray, "*numbers"] | float


def grow(k: Parts, q: Parts, drive: Drive, eta: float) -> tuple[Parts, Parts]:
    r"""Key and query after $\eta$ in the constant force [`early-phase`].

    Args:
        k: Key parts along the directions.
        q: Query parts along the directions.
        drive: Drive of every direction.
        eta: Integral of the value weight over t/tau.

    Returns:
        Key and query parts.
    """
    fold = np.clip(drive * eta, -OVERFLOW / 2, OVERFLOW / 2)
    plus, minus = (k + q) / 2 * np.exp(fold), (k - q) / 2 * np.exp(-fold)
    return plus + minus, plus - minus


@dataclass(frozen=True)
class Leg:
    r"""$\Phi(s)$ and the time $\int_0^s ds/\sqrt\Phi$ where $\Phi$ rises from `floor` at $s = 0$.

    A change of variable that would flatten the quadratic part of $\Phi$ removes the square root at a
    turning point and the near-singularity at a small minimum; panels of Gauss-Legendre points do the rest.
    """

    floor: float
    rising: Drive  # |k + q|^2 / 2, taken in the direction of the leg
    falling: Drive  # |k - q|^2 / 2
    drive: Drive

    def energy(self, s: Numbers) -> Numbers:
        power = np.minimum(2 * np.multiply.outer(s, self.drive), OVERFLOW)
        return self.floor + (np.expm1(power) @ self.rising + np.expm1(-power) @ self.falling) / 2

    @cached_property
    def chart(self) -> tuple[float, float, bool]:
        r"""(scale, $\theta_0$, cosh or sinh) of the map $s = $ scale $(\cosh\theta - \cosh\theta_0)$."""
        centre = max(float(self.drive @ (self.rising - self.falling)), 0.0)
        bend = float(self.drive**2 @ (self.rising + self.falling))
        centre, lift = centre / (2 * bend), self.floor / bend
        gap = centre**2 - lift
        size = np.sqrt(max(abs(gap), 1e-16 * (centre**2 + lift)))  # any nonzero scale will do
        size = min(size, 1 / self.drive.max())
        if gap > 0 and centre >= size:
            return size, float(np.arccosh(centre / size)), True
        return size, float(np.arcsinh(centre / size)), False

    def position(self, theta: Numbers) -> Numbers:
        size, start, cosine = self.chart
        middle, half = (theta + start) / 2, (theta - start) / 2
        return 2 * size * (np.sinh(middle) if cosine else np.cosh(middle)) * np.sinh(half)

    def angle(self, s: Numbers) -> Numbers:
        size, start, cosine = self.chart
        return np.arccosh(s / size + np.cosh(start)) if cosine else np.arcsinh(s / size + np.sinh(start))

    def pace(self, theta: Numbers) -> Numbers:
        r"""$dt/d\theta$, which is smooth; at a turning point itself it would be 0/0."""
        size, start, cosine = self.chart
        theta = np.maximum(theta, start + 1e-7)
        return size * (np.sinh(theta) if cosine else np.cosh(theta)) / np.sqrt(self.energy(self.position(theta)))

    def climb(self, end: float) -> "Climb":
        r"""The path up to $s = $ `end`, cut into panels.

        They are evenly spaced in $\theta$ where the quadratic part of $\Phi$ dominates, and in $s$ beyond.
        """
        bend = min(end, 1 / self.drive.max())
        start, stop = self.chart[1], float(self.angle(np.array(bend)))
        near = np.linspace(start, stop, int(np.ceil(1.25 * (stop - start))) + 2)
        far = bend + (end - bend) * np.linspace(0, 1, int(np.ceil((end - bend) / self.step)) + 1)[1:]
        edges = np.concatenate([near, self.angle(far)])
        width = edges[1:] - edges[:-1]
        inside = self.pace(edges[:-1, None] + width[:, None] * NODES) @ WEIGHTS * width
        return Climb(self, edges, np.concatenate([[0.0], np.cumsum(inside)]))

    @cached_property
    def ends(self) -> Drive:
        """Where each direction alone would have completed the integral; infinity if it does not grow."""
        size = np.sqrt(self.rising)
        scale = np.sqrt(self.floor + np.sum(self.rising + self.falling))
        grows = (size > FAINT * scale) & (self.drive > 0)
        folds = EFOLDS - np.log(np.where(grows, size, scale) / scale)
        return np.where(grows, folds / np.where(grows, self.drive, 1.0), np.inf)

    @property
    def reach(self) -> float:
        """Where the rest of the integral is negligible; infinity if nothing grows along this leg."""
        return float(self.ends.min())

    @property
    def step(self) -> float:
        return 2 / self.drive[np.argmin(self.ends)] if np.isfinite(self.reach) else 2 / self.drive.max()


@dataclass(frozen=True)
class Climb:
    r"""A leg cut into panels: their edges in $\theta$ and the time at each edge."""

    leg: Leg
    edges: Float[np.ndarray, " n"]
    times: Float[np.ndarray, " n"]

    @property
    def total(self) -> float:
        return float(self.times[-1])

    def position(self, time: Times) -> Times:
        """How far the leg is climbed after a time, by Newton's method inside the panel that holds it."""
        panel = np.clip(np.searchsorted(self.times, time, side="right") - 1, 0, len(self.edges) - 2)
        left, right, before = self.edges[panel], self.edges[panel + 1], self.times[panel]
        length = np.maximum(self.times[panel + 1] - before, 1e-300)
        theta = left + (right - left) * np.clip((time - before) / length, 0, 1)
        for _ in range(30):
            span = theta - left
            spent = before + span * (self.leg.pace(left[..., None] + span[..., None] * NODES) @ WEIGHTS)
            step = np.clip((time - spent) / self.leg.pace(theta), left - theta, right - theta)
            theta = theta + step
            if np.all(np.abs(step) <= 1e-13 * (1 + np.abs(theta))):
                break
        return np.asarray(self.leg.position(theta))


@dataclass(frozen=True)
class EarlyPhase:
    """The path of one head: from its start back down `before` to the origin, then up `after` to infinity.

    The origin is the turning point, the minimum of the energy, or the start itself.
    """

    start: tuple[float, Parts, Parts]
    drive: Drive
    flip: int  # sign given to v and q to make v0 >= 0
    origin: float  # eta of the origin
    before: Leg | None
    after: Leg | None  # None where nothing grows
    turns: bool

    @property
    def sign(self) -> int:
        """Sign of the value weight at the end."""
        return -self.flip if self.turns else self.flip

    @cached_property
    def arrival(self) -> "Climb | None":
        """From the origin back to the start."""
        return self.before.climb(self.origin) if self.before and self.origin > 0 else None

    @cached_property
    def ascent(self) -> "Climb | None":
        """From the origin to infinity."""
        return self.after.climb(self.after.reach) if self.after and np.isfinite(self.after.reach) else None

    @property
    def time_to_origin(self) -> float:
        return self.arrival.total if self.arrival else 0.0

    @property
    def time(self) -> float:
        r"""$T^*/\tau$, infinite for the head that never grows [`blow-up`]."""
        return self.time_to_origin + self.ascent.total if self.ascent else np.inf

    def follow(self, time: Times) -> tuple[Times, Times]:
        r"""$\eta(t)$ and $v(t)$ for times before $T^*$, in the frame where $v_0 \ge 0$.

        Args:
            time: Times t/tau.

        Returns:
            Eta and value weight at every time.
        """
        time = np.asarray(time, dtype=float)
        if self.ascent is None:
            return self.coast(time)
        late = time >= self.time_to_origin
        eta, energy = np.empty(time.shape), np.empty(time.shape)
        ahead = self.ascent.position(time[late] - self.time_to_origin)
        eta[late] = self.origin + (-ahead if self.turns else ahead)
        energy[late] = self.ascent.leg.energy(ahead)
        if self.arrival is not None:
            behind = self.arrival.position(self.time_to_origin - time[~late])
            eta[~late], energy[~late] = self.origin - behind, self.arrival.leg.energy(behind)
        return eta, np.where(late & self.turns, -1, 1) * np.sqrt(energy)

    def coast(self, time: Times) -> tuple[Times, Times]:
        """A head whose key and query only decay keeps the value weight that remains."""
        v, k, q = self.start
        leg = Leg(v**2, *halves(k, self.flip * q), self.drive)
        eta = np.zeros(time.shape)
        for _ in range(200 if v else 0):  # Newton's method; the integrand is monotone, so it cannot cycle
            spent = eta * ((1 / np.sqrt(leg.energy(eta[..., None] * NODES))) @ WEIGHTS)
            step = (time - spent) * np.sqrt(leg.energy(eta))
            eta = eta + step
            if np.all(np.abs(step) <= 1e-12 * np.abs(eta)):
                break
        return eta, np.sqrt(leg.energy(eta))

    def value(self, time: Times) -> Times:
        r"""$v(t)$ for times before $T^*$ [`early-phase`].

        Args:
            time: Times t/tau.

        Returns:
            The value weight at every time.
        """
        return self.flip * self.follow(time)[1]

    def weights(self, time: float) -> tuple[float, Parts, Parts]:
        """Value, key and query after a time before $T^*$.

        Args:
            time: Time t/tau.

        Returns:
            Value weight, key parts and query parts.
        """
        eta, value = self.follow(np.array([time]))
        _, k, q = self.start
        k, q = grow(k, self.flip * q, self.drive, float(eta[0]))
        return float(self.flip * value[0]), k, self.flip * q


def halves(k: Parts, q: Parts) -> tuple[Drive, Drive]:
    r"""$|k_d + q_d|^2/2$ and $|k_d - q_d|^2/2$."""
    return np.sum((k + q) ** 2, axis=0) / 2, np.sum((k - q) ** 2, axis=0) / 2


def early_phase(v: float, k: Parts, q: Parts, drive: Drive) -> EarlyPhase:
    """The path of one head in a constant force; `k` and `q` in the basis in which the force is diagonal.

    Args:
        v: Value weight.
        k: Key parts along the directions.
        q: Query parts along the directions.
        drive: Drive of every direction.

    Returns:
        The path of the head.

    Raises:
        BadInput: If a drive is negative.
    """
    v, k, q, drive = float(v), np.asarray(k, float), np.asarray(q, float), np.asarray(drive, float)
    if np.any(drive < 0):
        raise BadInput(f"drive: {drive.tolist()} must not be negative; change the sign of one vector of the pair")
    slope = drive @ np.sum(k * q, axis=0)
    flip = -1 if v < 0 or (v == 0 and slope < 0) else 1
    rising, falling = halves(k, flip * q)

    def make(origin, before, after, turns):
        return EarlyPhase((v, k, q), drive, flip, origin, before, after, turns)

    if drive @ (rising - falling) >= 0:
        grows = np.any((rising > 0) & (drive > 0)) and (v != 0 or slope != 0)
        return make(0.0, None, Leg(v**2, rising, falling, drive) if grows else None, False)
    return descending(v, k, flip * q, drive, make)


def descending(v: float, k: Parts, q: Parts, drive: Drive, make) -> EarlyPhase:
    """The path whose energy falls at first: to zero, where it turns, or to a minimum, which it passes."""
    rising, falling = halves(k, q)
    start = Leg(v**2, rising, falling, drive)
    bottom = minimum_of(rising, falling, drive)
    far = bottom if np.isfinite(bottom) else EFOLDS / drive[drive > 0].min()
    if start.energy(np.array(far)) < 0:
        origin = brentq(lambda s: float(start.energy(np.array(s))), 0.0, far, xtol=1e-300, rtol=1e-15)
        k, q = grow(k, q, drive, origin)
        leg = Leg(0.0, *halves(k, -q), drive)
        return make(origin, leg, leg, True)
    if not np.isfinite(bottom):
        return make(0.0, None, None, False)
    k, q = grow(k, q, drive, bottom)
    floor = float(start.energy(np.array(bottom)))
    return make(bottom, Leg(floor, *halves(k, -q), drive), Leg(floor, *halves(k, q), drive), False)


def minimum_of(rising: Drive, falling: Drive, drive: Drive) -> float:
    r"""The $\eta > 0$ with $\Phi' = 0$, infinite if $\Phi$ never stops falling."""
    if not np.any((rising > 0) & (drive > 0)):
        return np.inf

    def slope(s):
        return drive @ (rising * np.exp(2 * drive * s)) - drive @ (falling * np.exp(-2 * drive * s))

    high, limit = 1 / drive.max(), OVERFLOW / 2 / drive.max()
    while slope(high) < 0:
        high *= 2
        if high > limit:
            return np.inf
    return brentq(slope, 0.0, high, xtol=1e-300, rtol=1e-15)


def blow_up_time(v: float, k: Parts, q: Parts, drive: Drive) -> float:
    r"""$T^*/\tau$ of one head [`blow-up`].

    Args:
        v: Value weight.
        k: Key parts along the directions.
        q: Query parts along the directions.
        drive: Drive of every direction.

    Returns:
        The time t/tau, infinite if the head never grows.

    Raises:
        BadInput: If a drive is negative.
    """
    return early_phase(v, k, q, drive).time


def propagate(v: float, k: Parts, q: Parts, drive: Drive, time: float) -> tuple[float, Parts, Parts]:
    """One head's value, key and query after `time` in the constant force [`early-phase`].

    Args:
        v: Value weight.
        k: Key parts along the directions.
        q: Query parts along the directions.
        drive: Drive of every direction.
        time: Time t/tau.

    Returns:
        Value weight, key parts and query parts.

    Raises:
        BadInput: If `time` is not between 0 and the blow-up, or a drive is negative.
    """
    path = early_phase(v, k, q, drive)
    if not 0 <= time < path.time:
        raise BadInput(f"time: {time} must lie between 0 and the blow-up at {path.time:.6g}")
    return path.weights(time)


def one_direction_blow_up(v: float, k: float, q: float, drive: float) -> float:
    r"""$T^*/\tau$ with one direction and rank one, by Carlson's integral [`carlson`].

    $R_F(v^2, k^2, q^2)/g$ if $vkq > 0$; otherwise the smallest of the three changes sign first, $[2R_F(0, y
    - x, z - x) - R_F(x, y, z)]/g$ with $x \le y \le z$ the sorted squares. Equal weights: $1/(g|v|)$.

    Args:
        v: Value weight.
        k: Key part.
        q: Query part.
        drive: Drive of the direction.

    Returns:
        The time t/tau.
    """
    x, y, z = sorted((v**2, k**2, q**2))
    if v * k * q > 0 or x == 0:
        return float(elliprf(x, y, z)) / drive
    if x == y:
        return np.inf
    return float(2 * elliprf(0.0, y - x, z - x) - elliprf(x, y, z)) / drive
