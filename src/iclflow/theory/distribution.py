r"""Drop times over many initial weights at once: the race of heads, vectorised over draws.

It is the race of `theory.staircase` for heads of rank one. On a plateau all free heads of all draws follow $\eta$ with
$\dot\eta = v$, $v^2 = \Phi(\eta)$ (`theory.early_phase`), so that the blow-up times of thousands of heads are one
quadrature [`blow-up-times`],

$$T^* = \int_0^\infty \frac{ds}{\sqrt{\Phi(s)}} \approx h\sum_j \frac{s_j(1 + e^{-x_j})}{\sqrt{\Phi(s_j)}},\qquad
  s_j = \ell\,e^{x_j - e^{-x_j}},\quad x_j = jh ,$$

the double-exponential rule, which converges geometrically in $1/h$ also where $\Phi$ starts at zero. Heads that lose a
race are carried through it by the equations of the constant force, in the clock $-\ln(1 - t/T^*)$ in which the
approach to the blow-up is slow.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.errors import BadInput
from iclflow.theory.single_mode import MIDPOINT, clock
from iclflow.theory.stages import DirectionStage, ResidualStage, Source, opening
from iclflow.theory.staircase import Staircase

__all__ = ["DropTimes", "blow_up_times", "crossing_times", "drop_times"]

STEP = 1 / 12  # h
X = np.arange(-3.6, 5.2, STEP)
NODES = np.exp(X - np.exp(-X))
WEIGHTS = STEP * NODES * (1 + np.exp(-X))
X = np.arange(-3.2, 3.2, STEP)  # finite intervals: s = end (1 + tanh(pi/2 sinh x))/2
SHARES = 1 / (1 + np.exp(-np.pi * np.sinh(X)))
SHARE_WEIGHTS = STEP * np.pi * np.cosh(X) * SHARES * (1 - SHARES)
SLICES = 64  # Runge-Kutta steps from the beginning of a plateau to its end
BISECTIONS = 56
TIE = 1e-4  # heads whose blow-up times differ by less are not told apart
LARGE = 600.0

Numbers = Float[np.ndarray, " n"]  # one for each of n heads, of any draws
Parts = Float[np.ndarray, "n D"]


class DropTimes(NamedTuple):
    """Of every draw: when half of each drop is done, in t/tau, and by which head; infinite and -1 if it never comes.

    Where not `in_order`, a head has learned a direction before a better one and may turn to it: that draw needs
    `theory.staircase`.
    """

    times: Float[np.ndarray, "S m"]
    heads: Int[np.ndarray, "S m"]
    in_order: Bool[np.ndarray, " S"]


def drop_times(
    source: Source, v: Float[np.ndarray, "S H"], K: Float[np.ndarray, "S H R D"], Q: Float[np.ndarray, "S H R D"]
) -> DropTimes:
    """The drop times of separate attention of rank one from many initial weights [`staircase`].

    Args:
        source: A task, or its directions or landscape, or the landscape of a sample.
        v: Value weights of every draw, one per head.
        K: Keys.
        Q: Queries.

    Returns:
        Times and heads of all drops.

    Raises:
        BadInput: If the rank is not one, if directions tie, or if theory does not cover the task.
    """
    if K.shape[2] != 1:
        raise BadInput(f"rank: {K.shape[2]} must be 1 where many initial weights are treated at once")
    stage = opening(source)[0]
    check_simple(stage)
    draws, count = len(v), min(v.shape[1], driven(stage))
    state, free, now = (
        State(v.copy(), K[:, :, 0].copy(), Q[:, :, 0].copy()),
        np.ones(v.shape, dtype=bool),
        np.zeros(draws),
    )
    learned = np.zeros((draws, len(stage.left)), dtype=bool)
    times, heads, in_order = np.full((draws, count), np.inf), np.full((draws, count), -1), np.ones(draws, dtype=bool)
    for m in range(count):
        draw, head = np.nonzero(free)
        drive = stage.drive if isinstance(stage, ResidualStage) else np.where(learned, 0.0, stage.source.drive)
        drive = np.broadcast_to(drive, learned.shape)[draw]
        parts = State(state.v[draw, head], state.k[draw, head] @ stage.left, state.q[draw, head] @ stage.right)
        T, sign = blow_up_times(*parts, drive)
        slot = first_full(parts, sign, drive, stage.curvature)
        g = drive[np.arange(len(draw)), slot]
        c = np.cbrt(g / stage.curvature[slot])
        switch = np.full(free.shape, np.inf)
        switch[draw, head] = now[draw] + T - 1 / (g * c)  # when the others stop feeling the direction
        winner = np.argmin(switch, axis=1)
        won = np.flatnonzero((head == winner[draw]) & np.isfinite(T))
        who = draw[won]
        times[who, m] = now[who] + T[won] + float(clock(np.cbrt(MIDPOINT))) / (g * c)[won]
        heads[who, m] = head[won]
        in_order[who] &= best_left(stage, learned[who], slot[won])
        until = np.where(np.isfinite(switch.min(axis=1)), np.maximum(switch.min(axis=1), now), now)
        wait = (until - now)[draw]
        wait[won] = 0.0
        parts = advanced(parts, drive, T, wait)
        for whole, part in zip(state, (parts.v, parts.k @ stage.left.T, parts.q @ stage.right.T), strict=True):
            whole[draw, head] = part
        free[who, head[won]], learned[who, slot[won]], now = False, True, until
        stage = stage.after if isinstance(stage, ResidualStage) else stage
    return DropTimes(times, heads, in_order)


def check_simple(stage: DirectionStage | ResidualStage) -> None:
    """Refuse directions that tie: which of their mixtures a head learns differs from draw to draw."""
    if not isinstance(stage, DirectionStage):
        return
    if stage.ties:
        raise BadInput("spectrum: directions with the same drive and curvature need every draw to be treated by itself")


def driven(stage: DirectionStage | ResidualStage) -> int:
    """The number of directions with a drive."""
    return int(np.sum(stage.drive > 0))


def best_left(
    stage: DirectionStage | ResidualStage, learned: Bool[np.ndarray, "n D"], slot: Int[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Whether no free direction saves more loss than the one that is learned."""
    if isinstance(stage, ResidualStage):
        return np.ones(len(slot), dtype=bool)
    saved = stage.source.saved
    return ~((saved > saved[slot][:, None] * (1 + 1e-9)) & ~learned).any(axis=1)


class State(NamedTuple):
    """Value, key and query of all heads; leading axes stand in front of the key's and query's last."""

    v: Float[np.ndarray, "*n"]
    k: Float[np.ndarray, "*n D"]
    q: Float[np.ndarray, "*n D"]


class Path(NamedTuple):
    r"""$\Phi(s)$ of every head, counted from somewhere on its path."""

    rising: Parts
    falling: Parts
    floor: Numbers
    drive: Parts

    def energy(self, s: Numbers) -> Numbers:
        r"""$\Phi(s) = $ floor $+ \tfrac12\sum_d [\uparrow_d(e^{2g_ds} - 1) + \downarrow_d(e^{-2g_ds} - 1)]$."""
        power = np.clip(2 * s[:, None] * self.drive, -LARGE, LARGE)
        return self.floor + (np.expm1(power) * self.rising + np.expm1(-power) * self.falling).sum(1) / 2

    def slope(self, s: Numbers) -> Numbers:
        r"""$\Phi'(s)$."""
        return self.moved(s).climb

    @property
    def climb(self) -> Numbers:
        r"""$\Phi'(0)$."""
        return (self.drive * (self.rising - self.falling)).sum(1)

    def moved(self, s: Numbers) -> "Path":
        """The same path, counted from `s`."""
        factor = np.exp(np.clip(2 * s[:, None] * self.drive, -LARGE, LARGE))
        return Path(factor * self.rising, self.falling / factor, self.floor, self.drive)

    def backwards(self) -> "Path":
        """The same path in the other direction."""
        return Path(self.falling, self.rising, self.floor, self.drive)

    def some(self, which: Bool[np.ndarray, " n"]) -> "Path":
        """The paths of some heads."""
        return Path(*(array[which] for array in self))

    def time(self) -> Numbers:
        r"""$\int_0^\infty ds/\sqrt\Phi$ for a path that rises; infinite where nothing grows."""
        size = self.reach
        scale = np.where(np.isfinite(size), size, 0.0)
        return np.where(np.isfinite(size), scale * self.summed(scale, NODES, WEIGHTS), np.inf)

    def time_to(self, end: Numbers) -> Numbers:
        r"""The same up to `end`, by the rule for finite intervals."""
        return end * self.summed(end, SHARES, SHARE_WEIGHTS)

    def summed(self, scale: Numbers, nodes: Float[np.ndarray, " j"], weights: Float[np.ndarray, " j"]) -> Numbers:
        r"""$\sum_j w_j/\sqrt{\Phi(s_j)}$."""
        total = np.zeros(len(scale))
        for node, weight in zip(nodes, weights, strict=True):
            total += weight / np.sqrt(np.maximum(self.energy(scale * node), 1e-300))
        return total

    @property
    def reach(self) -> Numbers:
        """The distance at which the integrand begins to fall; infinite where nothing grows."""
        whole = np.sqrt(self.floor + (self.rising + self.falling).sum(1))[:, None]
        grows = (self.drive > 0) & (self.rising > 0)
        folds = 1 + np.maximum(np.log(whole / np.sqrt(np.where(grows, self.rising, 1.0))), 0.0)
        return np.where(grows, folds / np.where(grows, self.drive, 1.0), np.inf).min(1)


def blow_up_times(v: Numbers, k: Parts, q: Parts, drive: Parts) -> tuple[Numbers, Int[np.ndarray, " n"]]:
    r"""$T^*/\tau$ of many heads, and the sign of the value weight of each at the end [`blow-up-times`].

    Args:
        v: Value weights.
        k: Key parts along the directions.
        q: Query parts along the directions.
        drive: Drive of every direction, head by head.

    Returns:
        Times, infinite for heads that never grow, and signs.
    """
    flip = np.where((v < 0) | ((v == 0) & ((drive * k * q).sum(1) < 0)), -1, 1)
    turned = flip[:, None] * q
    path = Path((k + turned) ** 2 / 2, (k - turned) ** 2 / 2, v**2, drive)
    falls = path.climb < 0
    times, sign = np.empty(len(v)), flip.copy()
    times[~falls] = path.some(~falls).time()
    times[falls], turns = descending_times(path.some(falls))
    sign[falls] *= np.where(turns, -1, 1)
    return times, sign


def descending_times(path: Path) -> tuple[Numbers, Bool[np.ndarray, " n"]]:
    r"""$T^*$ of heads whose $\Phi$ falls at first: down to a minimum and up again, or to zero and back."""
    bottom = lowest(path)
    turns = path.energy(bottom) < 0
    origin = bottom.copy()
    origin[turns] = root_before(path.some(turns), bottom[turns])
    floor = np.where(turns, 0.0, np.maximum(path.energy(origin), 0.0))
    there = path.moved(origin)._replace(floor=floor)
    back = there.backwards()
    rising, falling = (np.where(turns[:, None], a, b) for a, b in zip(back[:2], there[:2], strict=True))
    onward = Path(rising, falling, there.floor, there.drive)
    return back.time_to(origin) + onward.time(), turns


def lowest(path: Path) -> Numbers:
    r"""The $s > 0$ at which $\Phi$ is least, by bisection of its slope."""
    low, high = np.zeros(len(path.floor)), 1 / path.drive.max(1)
    for _ in range(12):
        high = np.where(path.slope(high) < 0, 2 * high, high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        falls = path.slope(middle) < 0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return high


def root_before(path: Path, bottom: Numbers) -> Numbers:
    r"""The $s < $ `bottom` at which $\Phi$ falls through zero."""
    low, high = np.zeros(len(bottom)), bottom
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = path.energy(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low


def first_full(
    parts: State, sign: Int[np.ndarray, " n"], drive: Parts, curvature: Float[np.ndarray, " D"]
) -> Int[np.ndarray, " n"]:
    r"""The direction of every head that reaches its full amplitude at the smallest $\eta$."""
    size = np.abs(parts.k + sign[:, None] * parts.q) / 2
    grows = (drive > 0) & (size > 0)
    g = np.where(grows, drive, 1.0)
    eta = np.log(np.cbrt(g / curvature) / np.where(grows, size, 1.0)) / g
    return np.argmin(np.where(grows, eta, np.inf), axis=1)


def advanced(parts: State, drive: Parts, T: Numbers, wait: Numbers) -> State:
    r"""Heads after the time `wait` in the constant force: $\dot v = \sum g kq$, $\dot k = vgq$, $\dot q = vgk$.

    A head that is about to blow up itself is stopped a little before: it will win the next race at once.
    """
    time = np.minimum(wait, (1 - TIE) * T)
    finite = np.where(np.isfinite(T), T, 1e6 * (1 + time))
    step = -np.log1p(-time / finite) / SLICES  # of the clock u = -ln(1 - t/T)

    def field(state: State, u: Numbers) -> State:
        pace = finite * np.exp(-u)
        pushed, vg = drive * state.q, (pace * state.v)[:, None] * drive
        return State(pace * (state.k * pushed).sum(1), vg * state.q, vg * state.k)

    def shifted(state: State, by: State, size: Numbers) -> State:
        return State(state.v + size * by.v, state.k + size[:, None] * by.k, state.q + size[:, None] * by.q)

    for n in range(SLICES):
        u = n * step
        one = field(parts, u)
        two = field(shifted(parts, one, step / 2), u + step / 2)
        three = field(shifted(parts, two, step / 2), u + step / 2)
        four = field(shifted(parts, three, step), u + step)
        slope = State(*(a + 2 * b + 2 * c + d for a, b, c, d in zip(one, two, three, four, strict=True)))
        parts = shifted(parts, slope, step / 6)
    return parts


def crossing_times(stairs: Staircase, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " m"]:
    """When a predicted loss curve falls through the middle between two levels each: what counts as a drop on any curve.

    Args:
        stairs: The prediction from one draw.
        levels: Falling losses.

    Returns:
        Times t/tau, infinite for drops that never come.
    """
    middles = (levels[:-1] + levels[1:]) / 2
    low, high = np.zeros(len(middles)), np.full(len(middles), 10 * float(stairs.drop_times.max(initial=1.0)))
    comes = stairs.loss(high) < middles
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = stairs.loss(middle) > middles
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(comes, high, np.inf)
