r"""The whole training curve of separate attention: a constant force on plateaus, all equations through drops.

The closed theory (`theory.staircase`) is the limit of small initial weights: one head learns one direction, and the
others feel nothing of it. Here only that is left out which is small [`forecast`]:

* **On a plateau** grown heads are at rest, and the free heads move in the constant force $\hat G_0$, one by one, until
  they would take away the share $x$ of the force along some direction that is still to be learned.
* **Through a drop** all heads that matter follow the reduced equations together, by a stiff solver, until the grown
  ones have come to rest again and none of them can grow further. A head with less than the share $x/20$ only feels
  the force. Where vector blocks start away from zero, all blocks are followed (`theory.all_blocks`).

As $x\to0$ this becomes the reduced flow itself, and so it does for weights that are not small. The difference between
two values of $x$ estimates the error. Drops are timed as on an observed curve: when the loss crosses the middle between
two levels. They are therefore positive and in order, or there are none.

Descent by steps of size $h$ is the flow of a field near that of the equations (`theory.descent`), and is followed in
the same way.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.config import Task
from iclflow.data.spectrum import root
from iclflow.theory.all_blocks import AllBlocks, feature_moments
from iclflow.theory.descent import along, stepped, stepped_jacobian
from iclflow.theory.landscape import Directions, Landscape, directions, landscape
from iclflow.theory.rosenbrock import Resolvent, dense_resolvent, rosenbrock_step
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.single_mode import MIDPOINT
from iclflow.theory.two_channels import Layout, Parts

__all__ = ["Forecast", "Unfinished", "forecast"]

TOLERANCE = 1e-6  # of a step through a drop, relative to the largest number of each head; a hundredth of it on plateaus
GROWN = 20  # a head is grown when its own share is so many times x
PASSIVE = 1 / 20  # and only feels the force when it is below so many times x
AT_REST = 0.2  # times x: the relative velocity at which grown heads count as at rest
UNSTABLE = 1e-2  # of drive times weight: growth rates below count as none
MOST_STEPS = 4000  # of the stiff solver in one drop
MOST_STAGES = 200
HALFWAY = 0.01  # of the loss at zero: a resting place farther from every level holds a direction in part
LONGEST = 1e9  # times the time scale of free heads, after which none of them will grow
SHORTEST = 1e-10  # of the time scale of the heads in a drop
MOST_FEATURES = 1000  # of all blocks, up to which they are followed through drops

DP_STATES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)  # the explicit method of Dormand and Prince, order 5(4)
DP_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

Rows = Float[np.ndarray, "H size"]
Matrix = Float[np.ndarray, "D D"]
Heads = Bool[np.ndarray, " H"]
Times = Float[np.ndarray, " T"]


class Unfinished(ArithmeticError):
    """The equations could not be followed to the end."""


@dataclass(frozen=True)
class Forecast:
    """The predicted training: loss and value weights along time t/tau, and its drops."""

    time: Times
    curve: Times
    slope: Times  # dL/dt at each time
    value: Float[np.ndarray, "T H"]
    levels: Float[np.ndarray, " levels"]
    drop_times: Float[np.ndarray, " m"]
    heads: Int[np.ndarray, " m"]  # which head holds most of the direction afterwards
    held: Float[np.ndarray, " m"]  # the share of it that this head holds
    directions: Int[np.ndarray, " m"]  # index in `Directions`, or the number of directions learned before
    leading_order: bool = False  # vector blocks are there, but only their two channels were followed
    halfway: bool = False  # heads rest on the way in a state that holds a direction in part
    turning: bool = False  # grown heads turn slowly while others wait, which was not followed

    def loss(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The loss at any times, interpolated with its slope [`forecast`].

        Args:
            time: Times t/tau.

        Returns:
            The loss at every time.
        """
        return hermite(np.asarray(time, dtype=float), self.time, self.curve, self.slope)

    def values(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n H"]:
        """The value weight of every head at any times.

        Args:
            time: Times t/tau.

        Returns:
            One row per time, one column per head.
        """
        return np.stack([np.interp(time, self.time, column) for column in self.value.T], axis=1)


@dataclass(frozen=True)
class Rest:
    """A moment at which nothing but free heads moves."""

    record: int  # index of the last record before it
    rows: Rows


@dataclass
class Course:
    """The weights on their way."""

    landscape: Landscape | SampleLandscape
    layout: Layout
    rows: Rows
    share: float  # x
    blocks: AllBlocks | None = None  # where vector blocks are followed exactly
    step: float = 0.0  # of descent; 0 for the flow
    turning: bool = False  # grown heads could have left their place during a plateau, slowly
    now: float = 0.0
    records: list[tuple[float, float, float, Float[np.ndarray, " H"], Matrix]] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)

    @cached_property
    def scale(self) -> float:
        return float(np.sqrt(self.landscape.outputs))

    @cached_property
    def opening(self) -> Matrix:
        """The force at zero."""
        return self.scale * self.landscape.cross

    @cached_property
    def whitening(self) -> tuple[Matrix, Matrix]:
        """Roots of the two covariances in which the loss is nearly isotropic."""
        L = self.landscape
        if isinstance(L, Landscape):
            return root(L.context), root(L.query)
        size = np.sqrt(np.einsum("acac->", L.quadratic))
        context, query = np.einsum("acbc->ab", L.quadratic), np.einsum("acad->cd", L.quadratic)
        return root(context / size), root(query / size)

    @cached_property
    def driven(self) -> int:
        """The number of directions with a drive: D, or K if there are fewer tasks."""
        return int(np.linalg.matrix_rank(self.opening, rtol=1e-12))

    @cached_property
    def least(self) -> float:
        """The smallest whitened strength of a direction."""
        left, right = self.whitening
        strengths = np.linalg.svd(np.linalg.solve(left, self.opening) @ np.linalg.inv(right))[1]
        return float(strengths[self.driven - 1])

    @no_type_check
    def force(self, A: Matrix) -> Matrix:
        return self.opening - self.landscape.curve(A)

    @no_type_check
    def velocity(self, rows: Rows, force: Matrix) -> Rows:
        """The velocity of heads, by steps or in the flow; `force` is without what they take away themselves."""
        return stepped(lambda rows: self.downhill(rows, force), rows, self.step)

    @no_type_check
    def downhill(self, rows: Rows, force: Matrix) -> Rows:
        """Their velocity in the flow, down the gradient."""
        if self.blocks is None:
            return self.layout.velocity(rows, force - self.landscape.curve(self.layout.matrix(rows)))
        return self.layout.velocity(rows, force) + self.blocks.felt(rows, self.blocks.pull(rows))

    def jacobian(self, rows: Rows, force: Matrix) -> Float[np.ndarray, "n n"]:
        """The derivative of `downhill`."""
        if self.blocks is None:
            taken = self.landscape.curve(self.layout.matrix(rows))
            return self.layout.jacobian(self.landscape, rows, force - taken)
        return self.layout.driven_jacobian(rows, force) + self.blocks.jacobian(rows)

    @no_type_check
    def resolvent(self, rows: Rows, force: Matrix) -> Resolvent:
        """The inverse of a shift minus the derivative of the velocity."""
        if self.blocks is not None or self.step > 0:
            field, jacobian = (lambda rows, of=of: of(rows, force) for of in (self.downhill, self.jacobian))
            return dense_resolvent(stepped_jacobian(field, jacobian, rows, self.step))
        return self.layout.resolvent(self.landscape, rows, force - self.landscape.curve(self.layout.matrix(rows)))

    @no_type_check
    def loss(self, A: Matrix) -> float:
        """The loss of all heads, whose matrix is A."""
        if self.blocks is None:
            return float(self.landscape.loss(A / self.scale))
        outputs = self.landscape.outputs
        return float(self.landscape.base + (self.blocks.cost(self.rows) - 2 * np.sum(A * self.opening)) / outputs)

    @no_type_check
    def shares(self) -> Float[np.ndarray, " H"]:
        """The strength of every head, relative to that of the weakest direction."""
        left, right = self.whitening
        return np.linalg.norm(left @ self.layout.matrices(self.rows) @ right, axis=(1, 2)) / self.least

    def learned(self, A: Matrix) -> int:
        """How many directions the heads hold."""
        left, right = self.whitening
        return int(np.sum(np.linalg.svd(left @ A @ right)[1] > 0.5 * self.least))

    def open_force(self, A: Matrix, force: Matrix) -> Matrix:
        """What the force is along directions that are still open: at rest nothing acts on those that are held."""
        left, right = self.whitening
        keys, strength, queries = np.linalg.svd(left @ A @ right)
        held = strength > 0.5 * self.least
        outside = lambda vectors: np.eye(len(vectors)) - (Q := np.linalg.qr(vectors)[0]) @ Q.T
        return outside(np.linalg.solve(left, keys[:, held])) @ force @ outside(np.linalg.solve(right, queries[held].T))

    @no_type_check
    def record(self, velocity: Float[np.ndarray, "moving size"], downhill: Float[np.ndarray, "moving size"]) -> None:
        r"""Note the loss, its slope $-2\langle f, \dot y\rangle/O$, the value weights and the effective matrix."""
        A = self.layout.matrix(self.rows)
        slope = -2 * float(np.sum(velocity * downhill)) / self.landscape.outputs
        self.records.append((self.now, self.loss(A), slope, self.rows[:, 0].copy(), A))

    def follow(self) -> None:
        """Follow the weights through all plateaus and drops."""
        A = self.layout.matrix(self.rows)
        self.record(self.velocity(self.rows, self.opening), self.downhill(self.rows, self.opening))
        self.rests.append(Rest(0, self.rows.copy()))
        nobody = np.zeros(len(self.rows), dtype=bool)
        if self.taken(A, self.opening, self.driven) >= self.share:  # there is no first plateau
            self.drop(nobody, self.force(A))
        for _ in range(MOST_STAGES):
            stage = self.stage()
            if stage is None:
                return
            left, drive, right = stage
            force, grown = (left * drive) @ right.T, self.shares() >= GROWN * self.share
            alone = force + self.landscape.curve(self.layout.matrix(self.rows[grown]))
            growth, begun = self.growth(grown, alone), self.now
            if growth > UNSTABLE * drive[0] * np.abs(self.rows[grown]).max(initial=0.0):
                self.drop(nobody, force)
            elif grown.all() or not self.plateau(~grown, left, drive, right):
                return
            else:
                self.turning |= bool(growth * (self.now - begun) > 1)
                self.drop(grown if self.may_freeze else nobody, force)
        raise Unfinished

    @property
    def may_freeze(self) -> bool:
        """Grown heads may stay at rest through a drop where directions do not mix; worth it for many heads."""
        return isinstance(self.landscape, Landscape) and self.rows.size > 400

    def stage(self) -> tuple[Matrix, Float[np.ndarray, " D"], Matrix] | None:
        """The force at rest by its singular pairs, zero along what is learned; `None` if nothing is left."""
        A = self.layout.matrix(self.rows)
        count = self.learned(A)
        if count >= self.driven:
            return None
        left, drive, right = np.linalg.svd(self.open_force(A, self.force(A)))
        return left, np.where(np.arange(len(drive)) < self.driven - count, drive, 0.0), right.T

    @no_type_check
    def taken(self, A: Matrix, force: Matrix, count: int) -> float:
        """The largest share of the force along one of its `count` leading pairs that a matrix takes away."""
        left, drive, right = np.linalg.svd(force)
        along = np.einsum("da,de,ae->a", left[:, :count], self.landscape.curve(A), right[:count])
        return float(np.abs(along / drive[:count]).max(initial=0.0))

    def growth(self, some: Heads, force: Matrix) -> float:
        """The largest rate at which these heads can leave their place together; `force` is without what they take."""
        return float(np.linalg.eigvalsh(self.jacobian(self.rows[some], force))[-1]) if some.any() else 0.0

    def plateau(self, free: Heads, left: Matrix, drive: Float[np.ndarray, " D"], right: Matrix) -> bool:
        """Move the free heads in the constant force until their share is x; `False` if that never happens."""
        layout, open_ = self.layout, drive > 0
        y = layout.turned(self.rows[free], left, right)
        pairs = left.T[open_][:, :, None] * right.T[open_][:, None, :]
        curvature = np.sum(pairs * self.landscape.curve(pairs), axis=(1, 2))

        def share(y: Rows) -> float:
            parts = layout.split(y)
            strength = np.sum(layout.effective_keys(parts) * parts.query, axis=(0, 1))[open_]
            return float(np.abs(strength * curvature / drive[open_]).max())

        downhill = lambda y: layout.diagonal_velocity(y, drive)
        field = downhill if self.step == 0 else lambda y: stepped(downhill, y, self.step)
        velocity = field(y)
        scale = 1 / (drive[open_][-1] * np.abs(y).max())
        reached, h, origin = share(y), 0.01 / (drive[0] * np.abs(y).max()), self.now
        while reached < self.share:
            stages = [velocity]
            for states in DP_STATES:
                at = y + h * sum(a * k for a, k in zip(states, stages, strict=True) if a)
                stages.append(field(at))
            error = h * sum(e * k for e, k in zip(DP_ERROR, stages, strict=True) if e)
            change = largest(error, y) / (0.01 * TOLERANCE)
            reached = share(at)
            if not change <= 1 or reached > 1.5 * self.share:
                h *= 0.5 if change <= 1 else next_step(change)
                reached = 0.0
                if h < 1e-12 * (self.now - origin):
                    raise Unfinished
                continue
            y, velocity, self.now = at, stages[-1], self.now + h
            self.rows[free] = layout.turned(y, left.T, right.T)
            self.record(velocity, downhill(y))
            h *= next_step(change)
            if self.now - origin > LONGEST * scale or h * np.abs(velocity).max() < 1e-12 * np.abs(y).max():
                return False
        return True

    def drop(self, frozen: Heads, force: Matrix) -> None:
        """Follow all heads that are not frozen until those that have grown are at rest."""
        layout, begin, h, origin = self.layout, self.rows.copy(), 0.0, self.now
        drive = float(np.linalg.norm(force, 2))
        for count in range(1, MOST_STEPS + 1):
            active = ~frozen & (self.shares() >= PASSIVE * self.share)
            passive = ~active & ~frozen
            if not active.any():
                active, passive = ~frozen, np.zeros_like(frozen)
            y, opening = self.rows[active], force + self.landscape.curve(layout.matrix(begin[active]))
            scale = 0.05 / (drive * np.abs(y).max())
            h = scale if count == 1 else h
            left = float(np.linalg.norm(opening - self.landscape.curve(layout.matrix(y)), 2))
            h = min(h, 1 / (left * np.abs(y).max()))  # an implicit step beyond it would stay where the flow leaves
            if passive.any():
                h = min(h, 0.1 / ((drive if self.blocks else left) * np.abs(self.rows[passive]).max()))
            velocity, resolvent = self.velocity(y, opening), self.resolvent(y, opening)
            moved = lambda rows, opening=opening: self.velocity(rows, opening)
            while True:
                after, error = rosenbrock_step(moved, y, velocity, resolvent, h)
                change = largest(error, np.maximum(np.abs(y), np.abs(after))) / TOLERANCE
                if change <= 1:
                    break
                h *= next_step(change)
                if h < SHORTEST * scale:
                    raise Unfinished
            if self.now - origin > LONGEST * scale:
                raise Unfinished
            if passive.any():  # Heun's method, with the force at both ends of the step
                small = self.rows[passive]
                first = self.passive_velocity(small, y, opening)
                self.rows[passive] = small + h / 2 * (first + self.passive_velocity(small + h * first, after, opening))
            self.rows[active], self.now = after, self.now + h
            moving = np.zeros_like(self.rows)
            moving[active] = self.velocity(after, opening)
            self.record(moving[active], self.downhill(after, opening))
            h *= next_step(change)
            if count % 5 == 0 and self.at_rest(frozen, moving, opening - self.landscape.curve(layout.matrix(after))):
                self.rests.append(Rest(len(self.records) - 1, self.rows.copy()))
                return
        raise Unfinished

    @no_type_check
    def passive_velocity(self, small: Rows, active: Float[np.ndarray, "active size"], force: Matrix) -> Rows:
        """The velocity of heads that only feel what others leave of the force, by steps or in the flow."""
        velocity = self.passive_downhill(small, active, force)
        if self.step == 0:
            return velocity
        others = self.downhill(active, force)
        later = lambda t: self.passive_downhill(small + t * velocity, active + t * others, force)
        return velocity - self.step / 2 * along(later, active, others)

    @no_type_check
    def passive_downhill(self, small: Rows, active: Float[np.ndarray, "active size"], force: Matrix) -> Rows:
        """The same in the flow."""
        if self.blocks is None:
            return self.layout.velocity(small, force - self.landscape.curve(self.layout.matrix(active)))
        return self.layout.velocity(small, force) + self.blocks.felt(small, self.blocks.pull(active))

    def at_rest(self, frozen: Heads, moving: Rows, force: Matrix) -> bool:
        """Whether grown heads neither move nor can grow, and free heads take no more than x of any drive."""
        shares, layout = self.shares(), self.layout
        grown, free = ~frozen & (shares >= GROWN * self.share), shares < GROWN * self.share
        if not grown.any():
            return False
        A = layout.matrix(self.rows)
        count = max(self.driven - self.learned(A), 0)
        size, open_ = np.abs(self.rows[grown]).max(), self.open_force(A, force)
        drive = float(np.linalg.svd(open_ if count else self.opening)[1][0 if count else self.driven - 1])
        if np.abs(moving[grown]).max() > AT_REST * self.share * drive * size**2:
            return False
        if count == 0:
            return True
        if free.any() and self.taken(layout.matrix(self.rows[free]), open_, count) > self.share:
            return False
        alone = force + self.landscape.curve(layout.matrix(self.rows[grown]))
        return bool(self.growth(grown, alone) <= UNSTABLE * drive * size)


def forecast(
    source: Task | Landscape | SampleLandscape, parts: Parts, share: float = 1e-5, step: float = 0.0
) -> Forecast:
    """Predict the gradient flow, or descent, from any initial weights, in the paper's units [`forecast`].

    Args:
        source: A task, or its landscape, or the landscape of a sample.
        parts: The initial weights of all heads.
        share: The share x of a force below which free heads do not act on it.
        step: The step of descent in t/tau; 0 for the flow.

    Returns:
        The predicted training.

    Raises:
        BadInput: If theory does not cover the task.
        Unfinished: If the equations could not be followed to the end.
    """
    L = landscape(source) if isinstance(source, Task) else source
    names = directions(source) if isinstance(source, Task) else None
    layout = Layout.of(parts, L.outputs)
    course = Course(L, layout, layout.join(parts), share, all_blocks(source, layout), step)
    with np.errstate(all="ignore"):
        course.follow()
    return summarize(course, names if names is not None and named(names) else None)


def all_blocks(source: Task | Landscape | SampleLandscape, layout: Layout) -> AllBlocks | None:
    """The loss of all blocks, where vector blocks need it and it is known."""
    if not isinstance(source, Task) or source.tasks is not None:
        return None
    return AllBlocks(layout, feature_moments(source)) if 0 < layout.feature_count <= MOST_FEATURES else None


def named(d: Directions) -> bool:
    """Whether all directions save different losses, so that each can be told from the others."""
    saved = np.sort(d.saved)
    return bool((np.diff(saved) > 1e-6 * saved[-1]).all())


def summarize(course: Course, d: Directions | None) -> Forecast:
    """Curves and drops of a course that has come to its end."""
    time, loss, slope, value, _ = (np.array(column) for column in zip(*course.records, strict=True))
    levels, drops, halfway = [float(course.landscape.base)], [], False
    for before, after in zip(course.rests, course.rests[1:], strict=False):
        for level, direction, key, query in steps(course, d, before, after):
            middle = (levels[-1] + level) / 2
            when = crossing(time[before.record :], loss[before.record :], slope[before.record :], middle)
            if level >= levels[-1]:  # what was held in part has moved on
                continue
            held = np.einsum("d,hde,e->h", key, course.layout.matrices(after.rows), query)
            head = int(np.argmax(held))
            if when is None or when <= 0:  # it was learned before training began
                levels[-1] = level
                continue
            levels.append(level)
            drops.append((when, head, float(np.clip(held[head] / held.sum(), 0, 1)), direction))
        halfway |= bool(abs(loss[after.record] - levels[-1]) > HALFWAY * levels[0])
    times, heads, shares, directions = zip(*drops, strict=True) if drops else ((), (), (), ())
    return Forecast(
        time, loss, slope, value, np.array(levels), np.array(times, dtype=float), np.array(heads, dtype=int),
        np.array(shares, dtype=float), np.array(directions, dtype=int),
        leading_order=course.layout.channels > 0 and course.blocks is None, halfway=halfway, turning=course.turning,
    )  # fmt: skip


Step = tuple[float, int, Float[np.ndarray, " D"], Float[np.ndarray, " D"]]


def steps(course: Course, d: Directions | None, before: Rest, after: Rest) -> list[Step]:
    """Level, direction, and its dual key and query vector of every drop between two moments of rest."""
    first, last = (course.layout.matrix(rest.rows) for rest in (before, after))
    if d is None:
        return [counted(course, m, last) for m in range(course.learned(first), course.learned(last))]
    left, right = np.linalg.inv(d.left), np.linalg.inv(d.right)
    gains = lambda A: np.einsum("di,...ij,dj->...d", left, A, right) / d.full_gain
    held, holds = gains(first) > 0.5, gains(last) > 0.5
    new = np.flatnonzero(holds & ~held)
    if (held & ~holds).any():  # a head has turned from one direction to another
        lead = int(new[np.argmax(d.saved[new])]) if len(new) else int(np.argmax(gains(last)))
        return [(d.loss(holds), lead, left[lead], right[lead])]
    grown = gains(np.array([record[4] for record in course.records[before.record : after.record + 1]]))
    done = []
    for j in sorted(new, key=lambda j: int(np.argmax(grown[:, j] > MIDPOINT))):
        held[j] = True
        done.append((d.loss(held), int(j), left[j], right[j]))
    return done


def counted(course: Course, m: int, A: Matrix) -> Step:
    """The same where directions have no names: the best matrix of rank m + 1, and the new singular pair."""
    level = course.landscape.loss(rank_optimum(course.landscape, m + 1))
    roots = course.whitening
    u, _, wt = np.linalg.svd(roots[0] @ A @ roots[1])
    return float(level), m, roots[0] @ u[:, m], roots[1] @ wt[m]


def largest(error: Rows, size: Rows) -> float:
    """The largest error of a head relative to its own size; infinite where it is not a number."""
    worst = np.max(np.abs(error).max(axis=1) / np.maximum(np.abs(size).max(axis=1), 1e-300))
    return float(worst) if np.isfinite(worst) else np.inf


def next_step(change: float) -> float:
    """By what the step is multiplied after an error, relative to the one that is allowed."""
    return float(np.clip(0.9 * max(change, 1e-10) ** -0.2, 0.2, 5.0))


def hermite(at: Float[np.ndarray, " n"], time: Times, value: Times, slope: Times) -> Float[np.ndarray, " n"]:
    """A curve between points at which its values and slopes are known."""
    i = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    h = time[i + 1] - time[i]
    s = np.clip((at - time[i]) / h, 0.0, 1.0)
    start = (1 + 2 * s) * (1 - s) ** 2 * value[i] + s * (1 - s) ** 2 * h * slope[i]
    return start + s**2 * (3 - 2 * s) * value[i + 1] + s**2 * (s - 1) * h * slope[i + 1]


def crossing(time: Times, loss: Times, slope: Times, level: float) -> float | None:
    """The time at which the curve first falls to a level; `None` if it never does."""
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return None
    if below[0] == 0:
        return float(time[0])
    low, high = float(time[below[0] - 1]), float(time[below[0]])
    for _ in range(60):
        middle = (low + high) / 2
        above = hermite(np.array([middle]), time, loss, slope)[0] > level
        low, high = (middle, high) if above else (low, middle)
    return (low + high) / 2
