r"""Gradient flow, $dW/dt = -\frac{1}{c}\,(\partial L/\partial W + \gamma W)$, in units of $t/\tau$.

$c$ is the clock rate (`iclflow.units`), so descent with a small step follows the same curve on the same axis. Every
step is as long as its error allows, relative to the size of the head in which the error is largest, so that the heads
that are still tiny are followed as exactly as the others.

Explicit steps (`tsitouras`) serve while weights move. On a plateau they would be limited by the stability of what has
been learned and their number would grow with its length. Linearly implicit steps (`rosenbrock`) are not: they are as
long as the tiny heads allow, but each costs as much as `price` explicit ones. So they take over where the step that
they are expected to make exceeds that of stability by more than their price, and hand back where theirs does not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iclflow.engines.field import Field, FlowLoss, State, field_of
from iclflow.engines.outcome import Outcome
from iclflow.engines.rosenbrock import between, implicit_step
from iclflow.engines.tsitouras import LIMIT, explicit_step
from iclflow.models import Weights
from iclflow.system.compiled import compiled, put

__all__ = ["flow"]

BURST = 256  # solver steps in one compiled call
FIRST_STEP = 1e-3  # of the solver, which grows it at once where it may
MOST_STEPS = 2_000_000  # solver steps, whatever the end time
LOSS_STEP, TIME_STEP = 5e-4, 1.01  # a time is kept when loss (of the zero loss) or time has moved this much
REACH = 2.0  # the relative change of a head in an implicit step, times the fifth root of the tolerance
LARGEST = 700  # weights for which matrices are made
RUN = 8  # steps in a row that have to agree on a change of method


def price(size: int) -> float:
    """How many explicit steps cost as much as an implicit one, measured with 45 to 600 weights; none pays beyond."""
    return 4 + (size / 50) ** 2.4 if size <= LARGEST else np.inf


def sizes(y: State) -> Float[Array, " G"]:
    return jnp.sqrt((y * y).sum(1))


def largest(part: State, whole: Float[Array, " G"]) -> Float[Array, ""]:
    """The largest size of a row relative to `whole`; rows that are all zero have none."""
    return jnp.where((whole == 0) & (sizes(part) == 0), 0.0, sizes(part) / whole).max()


@partial(compiled, static_argnames="implicit", few=200)
def burst(
    field: Field, y: State, now: Array, end: Array, step: Array, tolerance: Array, worth: Array, most: Array,
    *, implicit: bool,
) -> Any:  # fmt: skip
    """Up to `most` accepted steps from `now` towards `end`, fewer if the other method is the better one.

    `worth` is the price of implicit steps; for these themselves, the shortest that are worth it. Returns how many
    steps there are, whether to change the method, the next step, the largest rate, and times, states and bends.
    """

    def more(carry: Any) -> Array:
        count, now, _, _, step, _, run, *_ = carry
        return (count < most) & (now < end) & (run < RUN) & (step > 1e-17 * now) & (step > 1e-300)

    def advance(carry: Any) -> Any:
        count, now, y, f, step, rate, run, times, states, bends = carry
        h = jnp.minimum(step, end - now)
        if implicit:
            y1, f1, error, bend = implicit_step(field, y, f, h)
        else:
            y1, f1, error, bend, rate = explicit_step(field, y, f, h)
        excess = largest(error, jnp.maximum(sizes(y), sizes(y1))) / tolerance
        good = excess <= 1
        growth = jnp.where(jnp.isfinite(excess), jnp.clip(0.9 * excess ** (-1 / 5), 0.2, 6.0), 0.2)
        if implicit:
            change = h < worth
        else:
            reach = REACH * tolerance**0.2 / largest(f1, sizes(y1))
            change = (h * rate > 0.6 * LIMIT) & (reach * rate > LIMIT * worth)
        keep = lambda new, old: jnp.where(good, new, old)
        now1 = jnp.where(end - now <= h, end, now + h)
        return (
            count + good, keep(now1, now), keep(y1, y), keep(f1, f), h * growth, rate,
            keep(jnp.where(change, run + 1, 0), run),
            put(times, count, now1), put(states, count, y1), put(bends, count, bend),
        )  # fmt: skip

    blank = jnp.zeros((BURST, *y.shape))
    times, bends = jnp.zeros(BURST), jnp.zeros((BURST, 3, *y.shape))
    start = (0, now, y, field.velocity(y), step, jnp.zeros(()), 0, times, blank, bends)
    count, _, _, _, step, rate, run, *found = jax.lax.while_loop(more, advance, start)
    return count, run >= RUN, step, rate, *found


@partial(compiled, few=20_000)
def watch(field: Field, states: Float[Array, "K G p"]) -> Float[Array, "K columns"]:
    """The losses of many states."""
    return jax.vmap(field.losses)(states)


def watched(field: Field, states: Float[np.ndarray, "K G p"]) -> Float[np.ndarray, "K columns"]:
    """The same of any number of them, compiled for `BURST`."""
    found = []
    for first in range(0, len(states), BURST):
        chunk = states[first : first + BURST]
        filled = np.concatenate([chunk, np.zeros((BURST - len(chunk), *chunk.shape[1:]))])
        found.append(np.asarray(watch(field, filled))[: len(chunk)])
    return np.concatenate(found)


def flow(
    loss: FlowLoss,
    trained: Weights,
    *,
    rate: float,
    end: float,
    decay: float = 0.0,
    tolerance: float,
    zero_loss: float,
    start: float = 0.0,
    settled: Callable[[float], bool] = lambda loss: False,
    progress: Callable[[float, float], None] = lambda time, loss: None,
) -> Outcome:
    """Follow the flow from `start` to `end`, or until `settled`."""
    field = field_of(loss, trained, rate, decay)
    y = np.asarray(field.stack(trained))
    kept = Kept(field, zero_loss, settled)
    kept.begin(start, y)
    now, step, taken, implicit, fastest = start, FIRST_STEP, 0, False, 0.0
    cost = price(y.size) if loss.light else np.inf
    worth = 1.5 * cost
    while not kept.settled and now < end and taken < MOST_STEPS:
        most = min(BURST, MOST_STEPS - taken, max(RUN, int(16_000 / cost)) if implicit else BURST)
        numbers = (now, end, min(step, end - now), tolerance, worth, most)
        count, change, step, seen, *arrays = burst(field, y, *map(np.asarray, numbers), implicit=implicit)
        count, step = int(count), float(step)
        times, states, bends = (np.asarray(array)[:count] for array in arrays)
        if count == 0 or not kept.extend(times, states, bends):
            return kept.outcome(taken + count, "the loss is not finite, or the step has shrunk to nothing")
        now, y, taken = float(times[-1]), states[-1], taken + count
        progress(now, float(kept.last[0]))
        if change and implicit:
            implicit, worth, step = False, 1.5 * cost, min(step, LIMIT / fastest)
        elif change:
            implicit, worth, fastest = True, cost * LIMIT / float(seen) / 1.5, float(seen)
    return kept.outcome(taken, "settled" if kept.settled else "steps" if now < end else "reached")


class Kept:
    """The saved times: every one at which loss or time has visibly moved since the one before.

    Where a step of the solver is longer than that, losses inside it are added, of the states that the method has for
    them; weights are kept at the ends of steps alone, where they are most exact.
    """

    def __init__(self, field: Field, zero_loss: float, settled: Callable[[float], bool]):
        self.field, self.loss_step, self.is_settled = field, LOSS_STEP * zero_loss, settled
        self.times: list[float] = []
        self.losses: list[np.ndarray] = []
        self.recorded: list[int] = []
        self.states: list[np.ndarray] = []
        self.settled = False

    def begin(self, time: float, y: np.ndarray) -> None:
        self.now, self.y = time, y
        self.last = watched(self.field, y[None])[0]
        self.settled = self.is_settled(float(self.last[0]))
        self.add(time, self.last, y)

    def add(self, time: float, losses: np.ndarray, y: np.ndarray | None) -> None:
        if y is not None:
            self.recorded.append(len(self.times))
            self.states.append(y)
        self.times.append(float(time))
        self.losses.append(losses)

    def extend(
        self,
        times: Float[np.ndarray, " K"],
        states: Float[np.ndarray, "K G p"],
        bends: Float[np.ndarray, "K 3 G p"],
    ) -> bool:
        """Add what is worth keeping of some steps; False, and nothing is added, if a loss is not finite."""
        losses = watched(self.field, states)
        if not np.isfinite(losses[:, 0]).all():
            return False
        times, losses = np.append(self.now, times), np.concatenate([self.last[None], losses])
        states = np.concatenate([self.y[None], states])
        moved = np.abs(np.diff(losses, axis=0)).max(1) / self.loss_step
        lengths = np.diff(times)
        parts = np.maximum(moved, np.diff(clock(times))).astype(int).clip(1)
        step = np.repeat(np.arange(len(parts)), parts)
        share = (np.arange(len(step)) - np.repeat(np.cumsum(parts) - parts, parts) + 1) / parts[step]
        inside = share < 1
        all_losses, all_states = losses[step + 1], states[step + 1]
        if inside.any():
            i, s = step[inside], share[inside]
            all_states[inside] = between(states[i], states[i + 1], bends[i], s)
            all_losses[inside] = watched(self.field, all_states[inside])
        all_times = times[step] + share * lengths[step]
        for time, loss, y, within, part in zip(all_times, all_losses, all_states, inside, parts[step], strict=True):
            self.now, self.last, self.y = float(time), loss, y
            self.settled = self.is_settled(float(loss[0]))
            if self.settled or self.moved(time, loss) or (part > 1 and not within):
                self.add(time, loss, y if self.settled or not within else None)
            if self.settled:
                break
        return True

    def moved(self, time: float, losses: np.ndarray) -> bool:
        return bool(clock(time) - clock(self.times[-1]) > 1 or np.abs(losses - self.losses[-1]).max() > self.loss_step)

    def outcome(self, solver_steps: int, result: str) -> Outcome:
        if self.now > self.times[-1]:
            self.add(self.now, self.last, self.y)
        return Outcome(
            times=np.array(self.times),
            losses=np.array(self.losses),
            recorded=np.array(self.recorded),
            snapshots=[self.field.unstack(y) for y in self.states],
            why=result,
            detail={"solver_steps": solver_steps},
        )


def clock(time: Any) -> Any:
    """Time on a scale on which neighbouring saved times are at most 1 apart."""
    return np.log(time + 0.05 / (TIME_STEP - 1)) / np.log(TIME_STEP)
