r"""The flow on a plateau: what has been learned rests, and only the heads that are still small move.

Stiff is what has been learned: its heads $F$ return to their balance at rates that do not shrink with the small heads
$S$, whose own rates do. So $F$ is taken to be where the small heads have pulled it, and these alone are followed:

$$\dot S = f_S(F(S), S),\qquad F(S) = F_0 + (\mu - f'_{FF})^{-1} f_F(F_0, S),$$

where $\mu$ is the rate at which the fastest small head grows. Explicit steps do it, since all rates are small now. Two
things are left out: the square of the displacement $F - F_0$, and the time that $F$ takes to follow. Both show in the
next correction $(\mu - f'_{FF})^{-1}(f_F - \dot F)$, and what it would change in the velocity of a small head, relative
to the fastest growth, is measured after every step. It grows at least with the fourth power of the small heads, and
the plateau is over, as far as this file is concerned, where it exceeds a few times the tolerance.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from iclflow.engines.field import Field, State, inverse_root, largest, sizes
from iclflow.engines.tsitouras import explicit_step
from iclflow.system.pytree import pytree

__all__ = ["Resting", "at_rest", "calm", "resting_step"]

SMALL = 0.1  # of the largest head: heads above it have been learned
TINY = 0.2  # times the fourth root of the tolerance, of the largest head: small heads that rest the others,
MANY = 500  # with up to so many weights; with more, where other steps cost more, larger ones do
NEGLECTED = 4.0  # tolerances: a velocity that is off by this much at the end has added a quarter of it to the size


@pytree
@dataclass(frozen=True)
class Resting:
    """Velocity of the small heads, and where the learned ones are meanwhile."""

    field: Field
    base: State  # $F_0$ in the rows of what has been learned
    inverse: Float[Array, "n n"]
    small: Bool[Array, "G 1"]

    def answer(self, force: State) -> State:
        """The displacement of what rests by a force on it."""
        return (self.inverse @ jnp.where(self.small, 0.0, force).ravel()).reshape(force.shape)

    def placed(self, y: State) -> State:
        """The state with the same small heads in which the others are where these have pulled them."""
        y = jnp.where(self.small, y, self.base)
        return y + self.answer(self.field.velocity(y))

    def velocity(self, y: State) -> State:
        """That of the small heads."""
        return jnp.where(self.small, self.field.velocity(self.placed(y)), 0.0)

    def neglected(self, before: State, after: State, h: Float[Array, ""]) -> Float[Array, ""]:
        """How far the velocity of a small head is off after a step, relative to the fastest growth."""
        f = self.field.velocity(after)
        better = self.field.velocity(after + self.answer(f - (after - before) / h))
        moving = lambda velocity: jnp.where(self.small, velocity, 0.0)
        return largest(moving(better - f), sizes(after)) / largest(moving(f), sizes(after))


def at_rest(field: Field, y: State, tolerance: Float[Array, ""]) -> tuple[Resting, Bool[Array, ""]]:
    """The flow of the small heads from here on, and whether the others are at rest in a stable place.

    Args:
        field: the right-hand side for all heads.
        y: the state.
        tolerance: relative; what is further than that from its place is not at rest.

    Returns:
        The right-hand side for the small heads, and the answer, which is no where the matrix is not positive.
    """
    f, small = field.velocity(y), small_heads(y)[:, None]
    mu = largest(jnp.where(small, f, 0.0), sizes(y))
    rests = jnp.broadcast_to(~small, y.shape).ravel()
    root = inverse_root(mu * np.eye(y.size) - jnp.where(rests[:, None] & rests, field.jacobian(y), 0.0))
    resting = Resting(field, y, root.T @ root, small)
    return resting, (mu > 0) & (largest(resting.answer(f), sizes(y)) < NEGLECTED * tolerance)


def calm(y: State, f: State, rate: Float[Array, ""], tolerance: Float[Array, ""], patience: Float[Array, ""]) -> Array:
    """Whether it looks as if heads could rest: small ones are tiny, and no other moves much in the time `1 / rate`.

    Args:
        y: the state.
        f: its velocity.
        rate: the largest of all.
        tolerance: of the flow.
        patience: how much slower than that rate a learned head may be on its way to rest.
    """
    small, size = small_heads(y), sizes(y)
    tiny = TINY * tolerance**0.25 * max(1.0, (y.size / MANY) ** 2) * size.max()
    moves = jnp.where(small, 0.0, sizes(f) / size).max()
    return small.any() & (jnp.where(small, size, 0.0).max() < tiny) & (moves * patience < NEGLECTED * tolerance * rate)


def small_heads(y: State) -> Bool[Array, " G"]:
    size = sizes(y)
    return size < SMALL * size.max()


def resting_step(
    resting: Resting, y: State, f: State, h: Float[Array, ""], tolerance: Float[Array, ""]
) -> tuple[State, State, State, Float[Array, "3 G p"], Bool[Array, ""]]:
    """From the state `y` with velocity `f` over the time `h`.

    Args:
        resting: the right-hand side.
        y: the state.
        f: its velocity.
        h: the step.
        tolerance: of the flow.

    Returns:
        The new state and its velocity, the error estimate, what `between` needs for the states on the way, and whether
        the step goes beyond the end of the plateau.
    """
    end, velocity, error, bend, _ = explicit_step(resting, y, f, h)
    end = resting.placed(end)
    return end, velocity, error, bend, resting.neglected(y, end, h) > NEGLECTED * tolerance
