"""The weights on their way: free heads in a constant force on plateaus, all heads together through drops.

What it follows, and what it leaves out, is said in `theory.forecast`.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float

from iclflow.data.spectrum import root
from iclflow.theory.all_blocks import AllBlocks
from iclflow.theory.descent import along, stepped, stepped_jacobian
from iclflow.theory.landscape import Landscape
from iclflow.theory.rosenbrock import Pace, Resolvent, dense_resolvent, rosenbrock_step
from iclflow.theory.separate import SampleLandscape
from iclflow.theory.two_channels import Layout

__all__ = ["Course", "Rest", "Unfinished"]

TOLERANCE = 1e-6  # of a step through a drop, relative to the largest number of each head; a hundredth of it on plateaus
GROWN = 20  # a head is grown when its own share is so many times x
PASSIVE = 1 / 20  # and only feels the force when it is below so many times x
AT_REST = 0.2  # times x: the relative velocity at which grown heads count as at rest
UNSTABLE = 1e-2  # of drive times weight: growth rates below count as none
MOST_STEPS = 4000  # of the stiff solver in one drop
MOST_STAGES = 200
LONGEST = 1e9  # times the time scale of free heads, after which none of them will grow
SHORTEST = 1e-10  # of the time scale of the heads in a drop

DP_STATES = tuple(map(np.array, (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)))  # the explicit method of Dormand and Prince, order 5(4)  # fmt: skip
DP_ERROR = np.array((71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40))

Rows = Float[np.ndarray, "H size"]
Matrix = Float[np.ndarray, "D D"]
Heads = Bool[np.ndarray, " H"]


class Unfinished(ArithmeticError):
    """The equations could not be followed to the end."""


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
            return self.layout.velocity(rows, force, self.landscape.curve)
        return self.layout.velocity(rows, force) + self.blocks.felt(rows, self.blocks.pull(rows))

    def jacobian(self, rows: Rows, force: Matrix) -> Float[np.ndarray, "n n"]:
        """The derivative of `downhill`."""
        if self.blocks is None:
            taken = self.landscape.curve(self.layout.matrix(rows))
            return self.layout.jacobian(self.landscape, rows, force - taken)
        return self.layout.driven_jacobian(rows, force) + self.blocks.jacobian(rows)

    @no_type_check
    def resolvent(self, rows: Rows, force: Matrix, remains: Matrix) -> Resolvent:
        """The inverse of a shift minus the derivative of the velocity; `remains` is what the heads leave of a force."""
        if self.blocks is not None or self.step > 0:
            field, jacobian = (lambda rows, of=of: of(rows, force) for of in (self.downhill, self.jacobian))
            return dense_resolvent(stepped_jacobian(field, jacobian, rows, self.step))
        return self.layout.resolvent(self.landscape, rows, remains)

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
        reached, h, origin, pace = share(y), 0.01 / (drive[0] * np.abs(y).max()), self.now, Pace()
        while reached < self.share:
            stages = np.empty((len(DP_ERROR), y.size))
            stages[0] = velocity.ravel()
            for i, states in enumerate(DP_STATES, start=1):
                at = y + (h * (states @ stages[:i])).reshape(y.shape)
                velocity_there = field(at)
                stages[i] = velocity_there.ravel()
            error = h * (DP_ERROR @ stages).reshape(y.shape)
            change = largest(error, y) / (0.01 * TOLERANCE)
            reached = share(at)
            if not change <= 1 or reached > 1.5 * self.share:
                h, reached = (h / 2 if change <= 1 else pace.smaller(h, change)), 0.0
                if h < 1e-12 * (self.now - origin):
                    raise Unfinished
                continue
            y, velocity, self.now = at, velocity_there, self.now + h
            self.rows[free] = layout.turned(y, left.T, right.T)
            self.record(velocity, downhill(y))
            h = pace.after(h, change)
            if self.now - origin > LONGEST * scale or h * np.abs(velocity).max() < 1e-12 * np.abs(y).max():
                return False
        return True

    def drop(self, frozen: Heads, force: Matrix) -> None:
        """Follow all heads that are not frozen until those that have grown are at rest."""
        layout, begin, h, origin = self.layout, self.rows.copy(), 0.0, self.now
        drive, active, pace = largest_singular(force), np.zeros_like(frozen), Pace()
        for count in range(1, MOST_STEPS + 1):
            acts = ~frozen & (self.shares() >= PASSIVE * self.share)
            acts = acts if acts.any() else ~frozen
            if not np.array_equal(acts, active):
                active, passive = acts, ~acts & ~frozen
                y, opening = self.rows[active], force + self.landscape.curve(layout.matrix(begin[active]))
                remains = opening - self.landscape.curve(layout.matrix(y))
                velocity = self.velocity(y, opening)
            size = np.abs(y).max()
            scale = 0.05 / (drive * size)
            h = scale if count == 1 else h
            left = largest_singular(remains)
            h = min(h, 1 / (left * size))  # an implicit step beyond it would stay where the flow leaves
            if passive.any():
                h = min(h, 0.1 / ((drive if self.blocks else left) * np.abs(self.rows[passive]).max()))
            resolvent = self.resolvent(y, opening, remains)
            moved = lambda rows, opening=opening: self.velocity(rows, opening)
            while True:
                after, error = rosenbrock_step(moved, y, velocity, resolvent, h)
                change = largest(error, np.maximum(np.abs(y), np.abs(after))) / TOLERANCE
                if change <= 1:
                    break
                h = pace.smaller(h, change)
                if h < SHORTEST * scale:
                    raise Unfinished
            if self.now - origin > LONGEST * scale:
                raise Unfinished
            if passive.any():  # Heun's method, with the force at both ends of the step
                small = self.rows[passive]
                first = self.passive_velocity(small, y, opening)
                self.rows[passive] = small + h / 2 * (first + self.passive_velocity(small + h * first, after, opening))
            self.rows[active], self.now, y = after, self.now + h, after
            remains, velocity = opening - self.landscape.curve(layout.matrix(y)), self.velocity(y, opening)
            self.record(velocity, velocity if self.step == 0 else self.downhill(y, opening))
            h = pace.after(h, change)
            if count % 5 == 0:
                moving = np.zeros_like(self.rows)
                moving[active] = velocity
                if self.at_rest(frozen, moving, remains):
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
        size, speed = np.abs(self.rows[grown]).max(), np.abs(moving[grown]).max()
        slow = lambda drive: speed <= AT_REST * self.share * drive * size**2
        if not slow(max(largest_singular(force), largest_singular(self.opening))):  # any drive is smaller
            return False
        A = layout.matrix(self.rows)
        count, open_ = max(self.driven - self.learned(A), 0), self.open_force(A, force)
        drive = float(np.linalg.svd(open_ if count else self.opening)[1][0 if count else self.driven - 1])
        if not slow(drive):
            return False
        if count == 0:
            return True
        if free.any() and self.taken(layout.matrix(self.rows[free]), open_, count) > self.share:
            return False
        alone = force + self.landscape.curve(layout.matrix(self.rows[grown]))
        return bool(self.growth(grown, alone) <= UNSTABLE * drive * size)


@no_type_check
def largest_singular(matrix: Matrix) -> float:
    """The largest singular value."""
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


@no_type_check
def largest(error: Rows, size: Rows) -> float:
    """The largest error of a head relative to its own size; infinite where it is not a number."""
    worst = np.max(np.abs(error).max(axis=1) / np.maximum(np.abs(size).max(axis=1), 1e-300))
    return float(worst) if np.isfinite(worst) else np.inf
