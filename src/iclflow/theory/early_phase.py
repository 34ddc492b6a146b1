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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.legs import EFOLDS, NODES, OVERFLOW, WEIGHTS, Climbs, Legs, join_climbs, join_legs

__all__ = [
    "EarlyPhase",
    "blow_up_time",
    "early_phase",
    "early_phases",
    "grow",
    "one_direction_blow_up",
    "propagate",
    "weights_after",
]

Parts = Float[np.ndarray, "R D"]
Drive = Float[np.ndarray, " D"]
Times = Float[np.ndarray, "*times"]


def grow(k: Parts, q: Parts, drive: Drive, eta: float) -> tuple[Parts, Parts]:
    r"""Key and query after $\eta$ in the constant force [`early-phase`]."""
    fold = np.clip(drive * eta, -OVERFLOW / 2, OVERFLOW / 2)
    plus, minus = (k + q) / 2 * np.exp(fold), (k - q) / 2 * np.exp(-fold)
    return plus + minus, plus - minus


@dataclass(frozen=True)
class EarlyPhase:
    """The path of one head: from its start back down to the origin (`arrival`), then up to infinity (`ascent`).

    The origin is the turning point, the minimum of the energy, or the start itself.
    """

    start: tuple[float, Parts, Parts]
    drive: Drive
    flip: int  # sign given to v and q to make v0 >= 0
    origin: float  # eta of the origin
    turns: bool
    arrival: Climbs | None = None  # from the origin back to the start; None where it is the start
    ascent: Climbs | None = None  # None where nothing grows

    @property
    def sign(self) -> int:
        """Sign of the value weight at the end."""
        return self.onward * self.flip

    @property
    def onward(self) -> int:
        r"""Whether $\eta$ rises or falls along the ascent; also the sign of the value weight there."""
        return -1 if self.turns else 1

    @property
    def time_to_origin(self) -> float:
        return float(self.arrival.total[0]) if self.arrival else 0.0

    @property
    def time(self) -> float:
        r"""$T^*/\tau$, infinite for the head that never grows [`blow-up`]."""
        return self.time_to_origin + float(self.ascent.total[0]) if self.ascent else np.inf

    def follow(self, time: Times) -> tuple[Times, Times]:
        r"""$\eta(t)$ and $v(t)$ for times before $T^*$, in the frame where $v_0 \ge 0$."""
        time = np.asarray(time, dtype=float)
        if self.ascent is None:
            return self.coast(time)
        late = time >= self.time_to_origin
        eta, energy = np.empty(time.shape), np.empty(time.shape)
        ahead, energy[late] = climbed(self.ascent, time[late] - self.time_to_origin)
        eta[late] = self.origin + self.onward * ahead
        if self.arrival is not None:
            behind, energy[~late] = climbed(self.arrival, self.time_to_origin - time[~late])
            eta[~late] = self.origin - behind
        return eta, np.where(late, self.onward, 1) * np.sqrt(energy)

    def coast(self, time: Times) -> tuple[Times, Times]:
        """A head whose key and query only decay keeps the value weight that remains."""
        v, k, q = self.start
        leg = one_leg(v**2, k, self.flip * q, self.drive)
        energy = lambda eta: leg.energy(eta[None])[0]
        eta = np.zeros(time.shape)
        for _ in range(200 if v else 0):  # Newton's method; the integrand is monotone, so it cannot cycle
            spent = eta * ((1 / np.sqrt(energy(eta[..., None] * NODES))) @ WEIGHTS)
            step = (time - spent) * np.sqrt(energy(eta))
            eta = eta + step
            if np.all(np.abs(step) <= 1e-12 * np.abs(eta)):
                break
        return eta, np.sqrt(energy(eta))

    def value(self, time: Times) -> Times:
        r"""$v(t)$ for times before $T^*$ [`early-phase`]."""
        return self.flip * self.follow(time)[1]

    def weights(self, time: float) -> tuple[float, Parts, Parts]:
        """Value, key and query after a time before $T^*$."""
        eta, value = self.follow(np.array([time]))
        return self.at(float(eta[0]), float(value[0]))

    def at(self, eta: float, value: float) -> tuple[float, Parts, Parts]:
        r"""Value, key and query at $\eta$, given the value weight there in the frame where $v_0 \ge 0$."""
        _, k, q = self.start
        k, q = grow(k, self.flip * q, self.drive, eta)
        return self.flip * value, k, self.flip * q


def climbed(climb: Climbs, time: Times) -> tuple[Times, Times]:
    r"""How far a single leg is climbed after several times, and $\Phi$ there."""
    far = climb.position(time[None])
    return far[0], climb.legs.energy(far)[0]


def weights_after(paths: Sequence[EarlyPhase], time: float) -> list[tuple[float, Parts, Parts]]:
    """Value, key and query of many heads in the same force, all after the same time."""
    late = {i: path for i, path in enumerate(paths) if path.ascent is not None and time >= path.time_to_origin}
    found = [None if i in late else path.weights(time) for i, path in enumerate(paths)]
    if late:
        together = join_climbs([path.ascent for path in late.values() if path.ascent is not None])
        far = together.position(np.array([[time - path.time_to_origin] for path in late.values()]))
        value = np.sqrt(together.legs.energy(far))
        for row, (i, path) in enumerate(late.items()):
            found[i] = path.at(path.origin + path.onward * float(far[row, 0]), path.onward * float(value[row, 0]))
    return [weights for weights in found if weights is not None]


def halves(
    k: Float[np.ndarray, "*n R D"], q: Float[np.ndarray, "*n R D"]
) -> tuple[Float[np.ndarray, "*n D"], Float[np.ndarray, "*n D"]]:
    r"""$|k_d + q_d|^2/2$ and $|k_d - q_d|^2/2$."""
    return np.sum((k + q) ** 2, axis=-2) / 2, np.sum((k - q) ** 2, axis=-2) / 2


def one_leg(floor: float, k: Parts, q: Parts, drive: Drive) -> Legs:
    """The leg on which a head sets out with this key and query; directions without a drive do not take part."""
    rising, falling = (part[None, drive > 0] for part in halves(k, q))
    return Legs(np.array([floor]), rising, falling, drive[drive > 0])


def early_phase(v: float, k: Parts, q: Parts, drive: Drive) -> EarlyPhase:
    """The path of one head in a constant force; `k` and `q` in the basis in which the force is diagonal."""
    return early_phases([(v, k, q)], drive)[0]


def early_phases(heads: Sequence[tuple[float, Parts, Parts]], drive: Drive) -> list[EarlyPhase]:
    """The paths of many heads in the same constant force, with all their integrals taken at once."""
    drive = np.asarray(drive, float)
    if np.any(drive < 0):
        raise BadInput(f"drive: {drive.tolist()} must not be negative; change the sign of one vector of the pair")
    if not heads:
        return []
    v, k, q = (np.array(part, dtype=float) for part in zip(*heads, strict=True))
    slope = (k * q).sum(axis=1) @ drive
    flip = np.where((v < 0) | ((v == 0) & (slope < 0)), -1, 1)
    rising, falling = halves(k, flip[:, None, None] * q)
    falls = (rising - falling) @ drive < 0
    grows = ((rising > 0) & (drive > 0)).any(axis=1) & ((v != 0) | (slope != 0))
    legs = Legs(v**2, rising[:, drive > 0], falling[:, drive > 0], drive[drive > 0])
    routes: list[Route] = []
    for h in range(len(v)):
        path = EarlyPhase((float(v[h]), k[h], q[h]), drive, int(flip[h]), 0.0, False)
        if falls[h]:
            routes.append(descending(path, rising[h], falling[h]))
        else:
            routes.append((path, None, legs[h : h + 1] if grows[h] else None))
    origins = np.array([path.origin for path, _, _ in routes])
    arrivals = climbs([before for _, before, _ in routes], origins)
    ascents = climbs([after for _, _, after in routes])
    return [
        replace(path, arrival=arrival, ascent=ascent)
        for (path, _, _), arrival, ascent in zip(routes, arrivals, ascents, strict=True)
    ]


def climbs(legs: Sequence[Legs | None], ends: Float[np.ndarray, " n"] | None = None) -> list[Climbs | None]:
    """Climb all legs that there are, each to its end, or to where its integral is complete; `None` if it never is."""
    found: list[Climbs | None] = [None] * len(legs)
    if chosen := {i: leg for i, leg in enumerate(legs) if leg is not None}:
        together = join_legs([*chosen.values()])
        tops = together.reach if ends is None else ends[[*chosen]]
        complete = np.isfinite(tops)
        if complete.any():
            climbed_all = together[complete].climb(tops[complete])
            for row, i in enumerate(np.array([*chosen])[complete].tolist()):
                found[i] = climbed_all[row : row + 1]
    return found


Route = tuple[EarlyPhase, Legs | None, Legs | None]  # a path, its leg back to the start and its leg onward


def descending(path: EarlyPhase, rising: Drive, falling: Drive) -> Route:
    """The path whose energy falls at first: to zero, where it turns, or to a minimum, which it passes."""
    (v, k, q), drive = path.start, path.drive
    q = path.flip * q
    start = one_leg(v**2, k, q, drive)
    energy = lambda s: float(start.energy(np.array([[s]]))[0, 0])
    bottom = minimum_of(rising, falling, drive)
    far = bottom if np.isfinite(bottom) else EFOLDS / drive[drive > 0].min()
    if energy(far) < 0:
        origin = zero_of(energy, 0.0, far)
        k, q = grow(k, q, drive, origin)
        leg = one_leg(0.0, k, -q, drive)
        return replace(path, origin=origin, turns=True), leg if origin > 0 else None, leg
    if not np.isfinite(bottom):
        return path, None, None
    k, q = grow(k, q, drive, bottom)
    floor = energy(bottom)
    back = one_leg(floor, k, -q, drive) if bottom > 0 else None
    return replace(path, origin=bottom), back, one_leg(floor, k, q, drive)


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
    return zero_of(slope, 0.0, high)


def zero_of(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function changes its sign, by the method of Chandrupatla (1997); SciPy would take longer to load."""
    a, b, share = low, high, 0.5
    at_a, at_b = function(a), function(b)
    if at_b == 0:
        return b
    while at_a != 0:
        x = a + share * (b - a)
        at_x = function(x)
        if (at_x > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = x, at_x
        rounding = 1e-15 * abs(a) / abs(b - a) if b != a else 1.0
        if rounding > 0.5 or at_a == 0:
            break
        place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        share = 0.5
        if height**2 < place and (1 - height) ** 2 < 1 - place:  # a parabola through all three is safe
            share = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            share += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        share = min(max(share, rounding), 1 - rounding)
    return a


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
    """One head's value, key and query after `time` in the constant force [`early-phase`]."""
    path = early_phase(v, k, q, drive)
    if not 0 <= time < path.time:
        raise BadInput(f"time: {time} must lie between 0 and the blow-up at {path.time:.6g}")
    return path.weights(time)


def one_direction_blow_up(v: float, k: float, q: float, drive: float) -> float:
    r"""$T^*/\tau$ with one direction and rank one, by Carlson's integral [`carlson`].

    $R_F(v^2, k^2, q^2)/g$ if $vkq > 0$; otherwise the smallest of the three changes sign first, $[2R_F(0, y
    - x, z - x) - R_F(x, y, z)]/g$ with $x \le y \le z$ the sorted squares. Equal weights: $1/(g|v|)$.
    """
    x, y, z = sorted((v**2, k**2, q**2))
    if v * k * q > 0 or x == 0:
        return float(scipy.special.elliprf(x, y, z)) / drive
    if x == y:
        return np.inf
    return float(2 * scipy.special.elliprf(0.0, y - x, z - x) - scipy.special.elliprf(x, y, z)) / drive
