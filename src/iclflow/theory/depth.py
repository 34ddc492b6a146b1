r"""More than one layer: the race of the heads of all layers, and when which of them learns what.

On the landscape of `theory.contexts` layer $l$ feels the force $G_l(A_1, \dots, A_L)$, and its heads follow the field
of a single layer in it (`theory.equations`). All heads of all layers are followed together by implicit steps, through
plateaus and drops alike [`ladder`]. The derivative of their velocity is

$$J = B - S\,K\,S',\qquad K = -\frac{\partial G}{\partial A},\qquad S = \frac{\partial A}{\partial y},$$

$B$ that of every head by itself in a force that does not change.

At zero every layer feels the same force, so all $LH$ heads race. With finite contexts the forces do not vanish once
every direction is learned: other layers learn the directions again, with drives of order $1/N$, down a second
staircase. A drop is a layer that comes to hold one direction more, and its time that at which the loss is half-way
between the plateaus before and behind it, where it falls most slowly.

Not derived: vector blocks (the token stream stays as it is here), rank above one, merged key and query, label noise.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.theory.contexts import Contexts, Layers, best_steps, contexts, lowest_loss, white_drive
from iclflow.theory.equations import Layout
from iclflow.theory.forecast import Forecast, crossing
from iclflow.theory.solve import Pace, Resolvent, Solve, head_error, rosenbrock_step

__all__ = ["Ladder", "LayeredFlow", "best_steps", "contexts", "ladder", "lowest_loss", "white_drive"]

TOLERANCE = 1e-3  # of a step, relative to every head
MOST_STEPS = 2000
LEAVES = 3.0  # times the shortest time in which heads that have grown can leave their place: the longest step
GROWN = 0.01  # of the largest number of all heads: that of one that has grown
SHORTEST = 1e-12  # of the time: a step in which nothing is gained
HELD = 0.25  # of the strength at which a single layer holds a direction
AT_REST = 1e-5  # of the loss, by which it falls while time grows by a factor e
NEGLIGIBLE, NOTHING = 1e-2, 1e-6  # of the loss, and of the loss at zero: a drop that saves less is not counted
MOST = 0.9  # of a drop, by which its head has shown its direction
LOOK = 5  # steps from one look at whether anything is left to another

Rows = Float[np.ndarray, "L H size"]


class Moment(NamedTuple):
    """A moment on the way."""

    time: float
    loss: float
    slope: float  # of the loss
    rows: Rows
    velocity: Rows
    matrices: Layers


class Linear(NamedTuple):
    """The derivative of the velocity by its parts: blocks of every head, and what all feel of each matrix."""

    bends: Float[np.ndarray, "LH size size"]  # B
    slopes: Float[np.ndarray, "n LDD"]  # S
    stiffness: Float[np.ndarray, "LDD LDD"]  # K

    @no_type_check
    def jacobian(self, heads: Bool[np.ndarray, " LH"]) -> Float[np.ndarray, "m m"]:
        """J for some of the heads."""
        B, S = self.bends[heads], self.slopes[np.repeat(heads, self.bends.shape[1])]
        J, some = np.zeros((len(B), B.shape[1], len(B), B.shape[1])), np.arange(len(B))
        J[some, :, some] = B
        return J.reshape(len(S), len(S)) - S @ self.stiffness @ S.T

    @no_type_check
    def resolvent(self) -> Resolvent:
        r"""$(s - J)^{-1} = P - PS(1 + KS'PS)^{-1}KS'P$ with $P = (s - B)^{-1}$ [`rosenbrock`]."""
        (heads, size, _), S, curved = self.bends.shape, self.slopes, self.stiffness @ self.slopes.T

        @no_type_check
        def at(shift: float) -> Solve:
            apart = np.linalg.inv(shift * np.eye(size) - self.bends)
            reach = (apart @ S.reshape(heads, size, -1)).reshape(S.shape)
            back = np.linalg.solve(np.eye(len(curved)) + curved @ reach, curved)

            @no_type_check
            def solve(right: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
                alone = (apart @ right.reshape(heads, size, 1)).ravel()
                return alone - reach @ (back @ alone)

            return solve

        return at


@dataclass(frozen=True)
class LayeredFlow:
    """The gradient flow of the heads of all layers; looped layers count once."""

    source: Contexts
    layout: Layout

    @no_type_check
    def velocity(self, rows: Rows) -> Rows:
        """The field of a single layer, in the force on each."""
        return self.layout.velocity(rows, self.source.loss_and_forces(self.layout.matrix(rows))[1])

    @no_type_check
    def linear(self, rows: Rows, forces: Layers) -> Linear:
        """The derivative of the velocity."""
        layers, heads, size = rows.shape
        bends = [self.layout.bends(own, force) for own, force in zip(rows, forces, strict=True)]
        S = np.zeros((layers, heads * size, layers, self.layout.dim**2))
        for layer in range(layers):
            S[layer, :, layer] = self.layout.slopes(rows[layer]).reshape(heads * size, -1)
        K = self.source.stiffness(self.layout.matrix(rows))
        wide = layers * self.layout.dim**2
        return Linear(np.concatenate(bends), S.reshape(-1, wide), K.reshape(wide, wide))

    @no_type_check
    def follow(self, rows: Rows) -> tuple[list[Moment], bool]:
        """All moments from these heads on, and whether the last of them is the end."""
        moments, now, h, pace = list[Moment](), 0.0, 0.0, Pace()
        for count in range(MOST_STEPS):
            A = self.layout.matrix(rows)
            loss, forces = self.source.loss_and_forces(A)
            velocity, linear = self.layout.velocity(rows, forces), self.linear(rows, forces)
            moments.append(Moment(now, loss, -2 * float(np.sum(velocity**2)), rows, velocity, A))
            if count % LOOK == 0 and self.over(moments[-1], forces, linear):
                return moments, True
            size = np.abs(rows).max(2).ravel()
            rate = np.linalg.eigvalsh(linear.jacobian(size > GROWN * size.max()))[-1]
            h = min(h if count else np.inf, LEAVES / max(rate, 1e-300))  # a longer implicit step would stay
            resolvent = linear.resolvent()
            while True:
                after, error = rosenbrock_step(self.velocity, rows, velocity, resolvent, h)
                taken, following = pace.judged(h, head_error(error, rows, after).max() / TOLERANCE)
                if taken:
                    break
                h = float(following)
                if not h > SHORTEST * now:
                    return moments, False
            rows, now, h = after, now + h, float(following)
        return moments, False

    def over(self, moment: Moment, forces: Layers, linear: Linear) -> bool:
        """Whether heads rest and none that is free can save loss any more."""
        time, loss, slope, rows, _, A = moment
        negligible = max(NEGLIGIBLE * loss, NOTHING * self.source.loss(0 * A))
        if loss < negligible or slope == 0:
            return True
        if -slope * time > AT_REST * loss or time == 0:
            return False
        K = linear.stiffness.reshape(2 * A.shape)
        for layer, (G, held) in enumerate(zip(forces, self.held(A), strict=True)):
            left, drive, right = np.linalg.svd(G)
            pair = np.outer(left[:, 0], right[0])
            saved = drive[0] ** 2 / np.einsum("ab,abcd,cd->", pair, K[layer, :, :, layer], pair)
            if held < min(rows.shape[1], self.layout.dim) and saved > negligible:
                return False
        return True

    @cached_property
    def unit(self) -> Float[np.ndarray, "D D"]:
        """The strength at which a single layer would hold each direction, its mean between every two."""
        once, zero = replace(self.source, loops=1), np.zeros((1, self.source.dim, self.source.dim))
        drive, curvature = once.loss_and_forces(zero)[1][0], once.stiffness(zero)[0, :, :, 0]
        strength = np.diag(drive) / np.einsum("aaaa->a", curvature)
        return np.sqrt(np.outer(strength, strength))

    def held(self, A: Float[np.ndarray, "*times L D D"]) -> Int[np.ndarray, "*times L"]:
        """How many directions every layer holds."""
        return (np.linalg.svd(A / self.unit, compute_uv=False) > HELD).sum(-1)


@dataclass(frozen=True)
class Ladder(Forecast):
    """The staircase of a network with several layers, whose heads count through the layers."""

    matrices: Float[np.ndarray, "m L D D"] = field(default_factory=lambda: np.empty((0, 0, 0, 0)))  # behind each drop
    finished: bool = True  # whether it was followed to its end

    @property
    def middles(self) -> Float[np.ndarray, " m"]:
        """The loss half-way between each two levels."""
        return (self.levels[:-1] + self.levels[1:]) / 2

    def until(self, drops: int) -> "Ladder":
        """The first drops alone."""
        kept = {name: getattr(self, name)[:drops] for name in ("drop_times", "heads", "held", "directions", "matrices")}
        return replace(self, levels=self.levels[: drops + 1], **kept)

    @property
    def rungs(self) -> list[tuple[int, int, int]]:
        """Layer, head of this layer and direction of every drop."""
        per_layer = self.value.shape[2] // max(self.matrices.shape[1], 1)
        named = zip(self.heads.tolist(), self.directions.tolist(), strict=True)
        return [(head // per_layer, head % per_layer, d) for head, d in named]


def ladder(
    source: Contexts,
    value: Float[np.ndarray, "L H"],
    key: Float[np.ndarray, "L H D"],
    query: Float[np.ndarray, "L H D"],
) -> Ladder:
    r"""Predict the staircase from initial weights of rank-one heads, in the paper's units [`ladder`]."""
    flow = LayeredFlow(source, Layout(1, source.dim, 0, 1.0))
    with np.errstate(all="ignore"):
        moments, finished = flow.follow(np.concatenate([value[..., None], key, query], axis=2))
    time, loss, slope, rows, velocity, A = (np.array(column) for column in zip(*moments, strict=True))
    falls = np.diff(loss) / np.diff(time)  # what lies between two moments falls as well
    slope = np.maximum(slope, 3 * np.maximum(np.append(falls, 0), np.append(0, falls)))
    risen, layers = np.nonzero(np.diff(flow.held(A), axis=0, prepend=0) > 0)
    levels, drops, rests = [source.loss(0 * A[0])], [], [0]
    for start, end, layer in zip(risen, [*risen[1:], len(time) - 1], layers, strict=True):
        rest = int(start + np.argmin(-slope[start : end + 1]))
        if levels[-1] - loss[rest] <= max(NEGLIGIBLE * levels[-1], NOTHING * levels[0]):
            continue
        when = crossing(time, loss, slope, (levels[-1] + loss[rest]) / 2)
        if not when:  # it was learned before training began
            levels[-1] = float(loss[rest])
            continue
        done = int(np.argmax(loss <= MOST * loss[rest] + (1 - MOST) * levels[-1]))  # before heads turn to others
        before, grown = (flow.layout.matrices(rows[at, layer]) / flow.unit for at in (rests[-1], done))
        head = int(np.argmax(np.linalg.norm(grown, axis=(1, 2)) - np.linalg.norm(before, axis=(1, 2))))
        direction = int(np.argmax(np.abs(np.diag(grown[head]))))
        along = rows[done][..., [0, 1 + direction, 1 + source.dim + direction]].prod(-1).clip(min=0)  # of every head
        share = along[layer, head] / max(along.sum(), 1e-300)
        drops.append((when, layer * rows.shape[2] + head, float(share), direction))
        levels.append(float(loss[rest]))
        rests.append(rest)
    times, heads, held, directions = zip(*drops, strict=True) if drops else ((), (), (), ())
    value = np.stack([part[..., 0].reshape(len(time), -1) for part in (rows, velocity)], axis=1)
    return Ladder(
        time, loss, slope, value, np.array(levels), np.array(times, dtype=float), np.array(heads, dtype=int),
        np.array(held, dtype=float), np.array(directions, dtype=int), matrices=A[rests[1:]], finished=finished,
    )  # fmt: skip
