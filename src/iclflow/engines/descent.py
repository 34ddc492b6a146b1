r"""Gradient descent: $W \leftarrow W - \eta\,(u(\partial L/\partial W) + \gamma W)$, $u$ a rule of `optimizers`.

The loop runs compiled from one recording to the next; the number of steps and the learning rate are arguments, so one
compilation serves all runs of the same shapes, and a run that is continued repeats the same arithmetic.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from iclflow.data.moments import AnyScalar
from iclflow.engines.optimizers import Rule
from iclflow.engines.outcome import Outcome
from iclflow.models import Weights
from iclflow.system.compiled import compiled, put
from iclflow.system.thinning import even_places, log_places

__all__ = ["Loss", "descend", "recording_steps"]

SEGMENT = 4096  # most steps in one compiled call


@runtime_checkable
class Loss(Protocol):
    """What an engine descends: a loss with its gradient, and losses that are only watched."""

    @property
    def tests(self) -> tuple[Any, ...]: ...
    @property
    def mask(self) -> Weights | None: ...

    def loss_and_gradient(self, trained: Weights, batch: Any = None) -> tuple[AnyScalar, Weights]: ...
    def test_losses(self, trained: Weights) -> Array: ...


def recording_steps(first: int, last: int, count: int, spacing: str) -> Int[np.ndarray, " K"]:
    """Where weights are kept between `first` and `last`, both included."""
    places = log_places if spacing == "log" else even_places
    return first + places(last - first + 1, count)


@partial(compiled, static_argnames="rule")
def advance(
    loss: Loss, rule: Rule, trained: Weights, state: Any, lr: Array, decay: Array | None, count: Array, batches: Any
) -> Any:
    """`count` steps; returns weights, optimiser state and the losses before each step."""

    def step(i: Array, carry: Any) -> Any:
        trained, state, kept = carry
        batch = None if batches is None else batches[i]
        value, gradient = loss.loss_and_gradient(trained, batch)
        row = jnp.concatenate([jnp.asarray(value)[None], loss.test_losses(trained).astype(value.dtype)])
        trained, state = rule.step(trained, gradient, state, lr, decay, loss.mask)
        return trained, state, put(kept, i, row)

    columns = 1 + len(loss.tests)
    dtype = jax.tree.leaves(trained)[0].dtype
    length = SEGMENT if batches is None else batches.shape[0]
    return jax.lax.fori_loop(0, count, step, (trained, state, jnp.zeros((length, columns), dtype)))


def descend(
    loss: Loss,
    trained: Weights,
    *,
    rule: Rule,
    lr: float,
    decay: float = 0.0,
    steps: int,
    clock: float = 1.0,
    records: int,
    spacing: str,
    first_step: int = 0,
    optimizer_state: Any = None,
    batches: Callable[[int, int], Array] | None = None,
    segment: int = SEGMENT,
    settled: Callable[[float], bool] = lambda loss: False,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> Outcome:
    """Take `steps` steps, or fewer if `settled` says so at a recording; stop early once the loss is not finite.

    The curve has the losses before every step and after the last; one that blew up is filled with NaN. `clock` is the
    time of one step.
    """
    state = rule.initial_state(trained) if optimizer_state is None else optimizer_state
    dtype = jax.tree.leaves(trained)[0].dtype
    rate, shrink = np.asarray(lr, dtype), np.asarray(decay, dtype) if decay else None
    recorded = recording_steps(first_step, first_step + steps, records, spacing)
    rows, snapshots, done = [], [trained], first_step
    for target in recorded[1:]:
        while done < target:
            count = min(int(target) - done, segment)
            batch = None if batches is None else batches(done, count)
            trained, state, kept = advance(loss, rule, trained, state, rate, shrink, np.asarray(count), batch)
            rows.append(np.asarray(kept)[:count])
            done += count
            last = float(rows[-1][-1, 0])
            progress(done, last)
        snapshots.append(trained)
        if not np.isfinite(last) or settled(last):
            break
    # One more step, not taken, has the loss after the last one: the same program, so nothing new to compile.
    ahead = None if batches is None else batches(done, 1)
    rows.append(np.asarray(advance(loss, rule, trained, state, rate, shrink, np.asarray(1), ahead)[2])[:1])
    losses = np.concatenate(rows).astype(np.float64)
    if not np.isfinite(losses[-1, 0]):
        losses = np.pad(losses, [(0, steps + 1 - len(losses)), (0, 0)], constant_values=np.nan)
    return Outcome(
        times=clock * (first_step + np.arange(len(losses))),
        losses=losses,
        recorded=recorded[: len(snapshots)] - first_step,
        snapshots=snapshots,
        optimizer_state=[np.asarray(leaf) for leaf in jax.tree.leaves(state)],
    )
