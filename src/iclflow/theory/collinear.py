r"""Heads that have become collinear: one value $a$ and one matrix, whose entries in a basis of modes are $a\,r_d$.

In a basis in which the quadratic form of the loss is diagonal, with drives $g$, curvatures $m$ and weight decay
$\gamma$, merged attention (Eq. 8) follows [`collinear`]

$$\tau\dot{\ln a} = r\cdot G - \gamma,\qquad \tau\dot r_d = G_d - r_d\; r\cdot G,\qquad G_d = g_d - m_d\, a^2 r_d .$$

On the plateau $\ln a$ grows at a constant rate and $r = g/|g|$ rests, so a long plateau costs nothing. The derivative
of the right-hand side is diagonal but for a few rows and columns, so an implicit step takes as many operations as there
are modes. Between two steps the solution is one more step, from the one before.
"""

from collections.abc import Callable
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.solve import Pace, Resolvent, Size, Solve, rosenbrock_step

__all__ = ["Modes", "Path", "checked_alpha", "follow"]

RELATIVE, ABSOLUTE = 1e-8, 1e-10  # what the error estimate of a step may be; the step itself is better by an order
UNFELT = 1e-12  # a share of the drive
MOST_TRIES = 20_000
FINER, ROUNDS = 16, 11  # parts into which the step of a crossing is divided, and how often
States = Float[np.ndarray, "*T n"]  # ln a, r
Vector = Float[np.ndarray, " all"]  # all states, one after the other


class Modes(NamedTuple):
    """A quadratic loss in a basis in which its modes are independent."""

    base: float  # the loss at zero
    outputs: int
    drive: Float[np.ndarray, " M"]
    curvature: Float[np.ndarray, " M"]
    decay: float = 0.0  # of the weights, per t/tau

    def loss(self, states: States) -> Float[np.ndarray, "*T"]:
        """The loss of the heads."""
        strengths = np.exp(2 * states[..., :1]) * states[..., 1:]
        change = (self.curvature * strengths - 2 * self.drive) * strengths
        return np.asarray(self.base + change.sum(-1) / self.outputs)

    def start(self, alpha: float) -> Float[np.ndarray, " n"]:
        r"""The state with $a = \sqrt\alpha$ along the drive."""
        return np.concatenate([[np.log(checked_alpha(alpha)) / 2], self.drive / np.linalg.norm(self.drive)])

    def rest(self) -> Float[np.ndarray, " n"]:
        r"""The state at rest, $r_d = g_d/(\gamma + m_da^2)$ with $|r| = 1$ [`decay-merged`].

        Where all weights decay $\ln a$ is minus infinity.
        """
        reach = lambda square: float(np.sum((self.drive / (self.decay + self.curvature * square)) ** 2)) - 1
        if self.decay > 0 and reach(0.0) <= 0:
            return np.concatenate([[-np.inf], self.drive / np.linalg.norm(self.drive)])
        low, high = 0.0, float(np.linalg.norm(self.drive / self.curvature))  # without decay a^2 is the norm of g / m
        if self.decay == 0:
            low = high
        while high - low > 1e-15 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if reach(middle) > 0 else (low, middle)
            if middle in (low, high) and (low + high) / 2 in (low, high):
                break
        return np.concatenate([[np.log(high) / 2], self.drive / (self.decay + self.curvature * high)])

    @no_type_check
    def bent(self, states: States) -> Float[np.ndarray, "*T M"]:
        """The curvature times the square of the value."""
        # A trial step may overshoot far beyond any strength; the cap keeps it finite until it is rejected.
        return np.exp(np.minimum(2 * states[..., :1], 100.0)) * self.curvature

    @no_type_check
    def velocity(self, states: States) -> States:
        """The right-hand side."""
        r = states[..., 1:]
        pull = self.drive - self.bent(states) * r
        growth = total(r * pull)
        return np.concatenate([growth - self.decay, pull - r * growth], axis=-1)

    @no_type_check
    def resolvent(self, states: States) -> Resolvent:
        """The inverse of a shift minus the derivative of the right-hand side."""
        r, bent = states[..., 1:], self.bent(states)
        pull = self.drive - bent * r
        growth, across, down = total(r * pull), pull - bent * r, -2 * total(bent * r * r)

        @no_type_check
        def at(shift: Size) -> Solve:
            share = 1 / (shift + growth + bent)
            tilt = share * (2 * bent + shift) * r
            pivot = shift - down + total(across * tilt)

            @no_type_check
            def solve(right: Vector) -> Vector:
                b = right.reshape(states.shape)
                rest = share * (b[..., 1:] + r * b[..., :1])
                first = (b[..., :1] + total(across * rest)) / pivot
                return np.concatenate([first, rest - tilt * first], axis=-1).ravel()

            return solve

        return at

    def farthest(self, state: Float[np.ndarray, " n"]) -> float:
        """How long a step may be: until the value has grown by e, or until what it takes of the drive can be felt."""
        taken = float(np.linalg.norm(self.bent(state) * state[1:]) / np.linalg.norm(self.drive))
        far = max(1.0, 0.5 * float(np.log(UNFELT / max(taken, 1e-300))))
        growth = float(self.velocity(state)[0])
        return far / growth if growth > 0 else np.inf

    def step(self, states: States, h: Size) -> tuple[States, States]:
        """States after steps of their own sizes, and their errors."""
        return rosenbrock_step(self.velocity, states, self.velocity(states), self.resolvent(states), h)


@no_type_check
def total(terms: Float[np.ndarray, "*T M"]) -> Float[np.ndarray, "*T 1"]:
    return terms.sum(axis=-1, keepdims=True)


class Path(NamedTuple):
    """A solution, at its steps and between them."""

    modes: Modes
    time: Float[np.ndarray, " steps"]
    states: Float[np.ndarray, "steps n"]

    def at(self, time: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T n"]:
        """The states at any times up to the last step."""
        before = np.searchsorted(self.time, time, side="right") - 1
        h = (time - self.time[before])[:, None]
        moved = self.modes.step(self.states[before], np.where(h > 0, h, 1.0))[0]
        return np.where(h > 0, moved, self.states[before])

    def crossing(self, level: float) -> float:
        """When the loss falls to a level; infinite if it never does, or is below it from the start."""
        below = self.modes.loss(self.states) <= level
        if below[0] or not below.any():
            return np.inf
        last = int(np.argmax(below))
        low, high = self.time[last - 1], self.time[last]
        for _ in range(ROUNDS):
            grid = np.linspace(low, high, FINER + 1)
            reached = self.modes.loss(self.at(grid[1:-1])) <= level
            part = int(np.argmax(reached)) if reached.any() else FINER - 1
            low, high = grid[part], grid[part + 1]
        return float((low + high) / 2)


def follow(
    modes: Modes, alpha: float, end: float, stop: Callable[[Float[np.ndarray, " n"]], bool] | None = None
) -> Path:
    r"""Follow the heads from $a = \sqrt\alpha$ along the drive."""
    y, now = modes.start(alpha), 0.0
    h = min(end, 0.1 / float(np.linalg.norm(modes.drive)))
    time, states, pace = [now], [y], Pace()
    for _ in range(MOST_TRIES):
        if now >= end or (stop is not None and stop(y)):
            return Path(modes, np.array(time), np.array(states))
        h = min(h, modes.farthest(y))
        after, error = modes.step(y, h)
        allowed = ABSOLUTE + RELATIVE * np.maximum(np.abs(y), np.abs(after))
        allowed[0] = RELATIVE  # an error of a logarithm is relative already
        size = float(np.max(np.abs(error) / allowed))
        taken, following = pace.judged(h, size if np.isfinite(size) else np.inf)
        if not taken:
            h = float(following)
            continue
        now, y = (end if h >= end - now else now + h), after
        time.append(now)
        states.append(y)
        h = min(float(following), end - now)
    raise BadInput(f"alpha: {alpha} gives a flow that cannot be integrated")


def checked_alpha(alpha: float) -> float:
    """A growing part that is a positive number."""
    if not (alpha > 0 and np.isfinite(alpha)):
        raise BadInput(f"alpha: {alpha} must be a finite number greater than 0")
    return alpha
