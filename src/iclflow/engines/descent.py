r"""Gradient descent: $W \leftarrow W - \eta\, u(\partial L/\partial W)$, $u$ one of optax's rules.

The loop runs compiled from one recording to the next; the number of steps and the learning rate are arguments, so one
compilation serves all runs of the same shapes, and a run that is continued repeats the same arithmetic.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

__all__ = ["Loss", "Trajectory", "descend", "recording_steps"]

Part = dict[str, Array]
RULES: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": optax.identity,
    "momentum": lambda: optax.trace(decay=0.9),
    "adam": optax.scale_by_adam,
}
SEGMENT = 4096  # most steps in one compiled call


class Loss(Protocol):
    """What an engine descends: a loss with its gradient, and losses that are only watched."""

    tests: tuple

    def loss_and_gradient(self, part: Part, feed: Any = None) -> tuple[Float[Array, ""], Part]: ...
    def test_losses(self, part: Part) -> Float[Array, " tests"]: ...


class Trajectory(NamedTuple):
    """Losses before every step and after the last (columns: training, then tests); weights where recorded."""

    losses: Float[np.ndarray, "T+1 columns"]
    recorded: np.ndarray
    snapshots: list[Part]
    optimizer_state: Any
    steps: int


def recording_steps(first: int, last: int, count: int, spacing: str) -> np.ndarray:
    """Where weights are kept between `first` and `last`, both included."""
    span = last - first
    even = np.linspace(0, span, count)
    log = np.concatenate([[0.0], np.geomspace(max(span, 1), 1, count - 1)])
    offsets = np.unique(np.round(log if spacing == "log" else even).astype(int))
    return first + offsets[offsets <= span]


@partial(jax.jit, static_argnames="rule")
def advance(loss: Loss, rule: str, part: Part, state: Any, lr: Array, count: Array, feeds: Any) -> Any:
    """`count` steps; returns weights, optimiser state and the losses before each step."""
    update = RULES[rule]().update

    def step(i: Array, carry: Any) -> Any:
        part, state, kept = carry
        feed = None if feeds is None else feeds[i]
        value, gradient = loss.loss_and_gradient(part, feed)
        row = jnp.concatenate([value[None], loss.test_losses(part).astype(value.dtype)])
        direction, state = update(gradient, state)
        part = {name: part[name] - lr * direction[name] for name in part}
        return part, state, kept.at[i].set(row)

    columns = 1 + len(loss.tests)
    dtype = jax.tree.leaves(part)[0].dtype
    length = SEGMENT if feeds is None else feeds.shape[0]
    return jax.lax.fori_loop(0, count, step, (part, state, jnp.zeros((length, columns), dtype)))


def descend(
    loss: Loss,
    part: Part,
    *,
    rule: str,
    lr: float,
    steps: int,
    records: int,
    spacing: str,
    first_step: int = 0,
    optimizer_state: Any = None,
    feeds: Callable[[int, int], Array] | None = None,
    segment: int = SEGMENT,
    settled: Callable[[float], bool] = lambda loss: False,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> Trajectory:
    """Take `steps` steps, or fewer if `settled` says so at a recording; stop early once the loss is not finite."""
    state = RULES[rule]().init(part) if optimizer_state is None else optimizer_state
    dtype = jax.tree.leaves(part)[0].dtype
    rate = jnp.asarray(lr, dtype)
    recorded = recording_steps(first_step, first_step + steps, records, spacing)
    rows, snapshots, done = [], [part], first_step
    for target in recorded[1:]:
        while done < target:
            count = min(int(target) - done, segment)
            batch = None if feeds is None else feeds(done, count)
            part, state, kept = advance(loss, rule, part, state, rate, jnp.asarray(count), batch)
            rows.append(np.asarray(kept)[:count])
            done += count
            last = float(rows[-1][-1, 0])
            progress(done, last)
        snapshots.append(part)
        if not np.isfinite(last) or settled(last):
            break
    # One more step, not taken, has the loss after the last one: the same program, so nothing new to compile.
    ahead = None if feeds is None else feeds(done, 1)
    rows.append(np.asarray(advance(loss, rule, part, state, rate, jnp.asarray(1), ahead)[2])[:1])
    return Trajectory(np.concatenate(rows), recorded[: len(snapshots)], snapshots, state, done - first_step)
