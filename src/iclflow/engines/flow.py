r"""Gradient flow, $dW/dt = -\frac{1}{c}\,(\partial L/\partial W + \gamma W)$, in units of $t/\tau$.

$c$ is the clock rate (`iclflow.units`), so descent with a small step follows the same curve on the same axis. Every
step is as long as its error allows, relative to the size of the head in which the error is largest, so that the heads
that are still tiny are followed as exactly as the others.

Explicit steps (`tsitouras`) serve while weights move. On a plateau they would be limited by the stability of what has
been learned and their number would grow with its length. Linearly implicit steps (`rosenbrock`) are not: they are as
long as the tiny heads allow, but each costs as much as `price` explicit ones. So they take over where the step that
they are expected to make exceeds that of stability by more than their price, and hand back where theirs does not. They
also bring what has been learned to rest. While the other heads are tiny, explicit steps then follow these alone
(`resting`): a plateau costs some two hundred of them, however long it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from iclflow.data.moments import AnyArray
from iclflow.engines.field import Field, FlowLoss, State, field_of, largest, sizes
from iclflow.engines.outcome import Outcome
from iclflow.engines.resting import at_rest, calm, resting_step
from iclflow.engines.rosenbrock import between, implicit_step
from iclflow.engines.tsitouras import LIMIT, explicit_step
from iclflow.models import Weights
from iclflow.system.compiled import compiled, put
from iclflow.system.thinning import subdivided

__all__ = ["flow"]

BURST = 256  # solver steps in one compiled call
FIRST_STEP = 1e-3  # of the solver, which grows it at once where it may
MOST_STEPS = 20_000_000  # solver steps, whatever the end time
LOSS_STEP, TIME_STEP = 5e-4, 1.01  # a time is kept when loss (of the zero loss) or time has moved this much,
WEIGHT_STEP = 0.005  # or a weight, of the largest one
HIGH = 2.0  # zero losses, above which a loss has moved when its ratio has, as that of time
REACH = 2.0  # the relative change of a head in an implicit step, times the fifth root of the tolerance
LARGEST = 3000  # weights for which matrices are made
RUN = 8  # steps by which those for a change between explicit and implicit ones must be ahead
EPS = np.finfo(float).eps
LOST = 1000  # implicit steps whose linear systems no number of double precision resolves, before the flow is given up
PATIENCE = 100.0, 30.0  # how slowly heads are expected to come to rest, in largest rates, and how much more after a no


def price(size: int) -> float:
    """How many explicit steps cost as much as an implicit one, measured with 45 to 600 weights; at 2,000 half of it."""
    return 4 + (size / 50) ** 2.4 if size <= LARGEST else np.inf


def agreed(cost: float, method: str) -> int:
    """How far steps for a change must be ahead: so far that a change in vain costs no more than they have."""
    return max(RUN, int(min(cost, MOST_STEPS))) if method == "explicit" else max(2, int(RUN * min(1.0, 100 / cost)))


@partial(compiled, static_argnames="method", few=200)
def burst(
    field: Field, y: State, now: Array, end: Array, step: Array, tolerance: Array, worth: Array, fastest: Array,
    patience: Array, most: Array, run: Array, enough: Array, *, method: str,
) -> Any:  # fmt: skip
    """Up to `most` accepted steps from `now` towards `end`, fewer if another method is the better one.

    `worth` is the price of implicit steps; for these themselves, the shortest that are worth it. By `run` steps those
    for a change between the two are ahead so far, and `enough` make it. Returns how many steps there are, how far
    those for a change are ahead, whether heads look `calm` enough to rest, the next step, the largest rate, and times,
    states and bends.
    """

    def more(carry: Any) -> Array:
        count, now, _, _, step, _, run, rests, *_ = carry
        room = (count < most) & (now < end) & (step > 1e-17 * now) & (step > 1e-300)
        return room & (run < enough) & ~rests

    def advance(carry: Any) -> Any:
        count, now, y, f, step, rate, run, rests, times, states, bends = carry
        h = jnp.minimum(step, end - now)
        over = jnp.array(False)
        if method == "implicit":
            y1, f1, error, bend = implicit_step(field, y, f, h)
            change, rests = h < worth, calm(y1, f1, rate, tolerance, patience)
        elif method == "resting":
            y1, f1, error, bend, over = resting_step(resting, y, f, h, tolerance)
            change = over
        else:
            y1, f1, error, bend, rate = explicit_step(field, y, f, h)
            reach = REACH * tolerance**0.2 / largest(f1, sizes(y1))
            change = (h * rate > 0.6 * LIMIT) & (reach * rate > LIMIT * worth)
        excess = largest(error, jnp.maximum(sizes(y), sizes(y1))) / tolerance
        good = (excess <= 1) & ~over
        growth = jnp.where(jnp.isfinite(excess), jnp.clip(0.9 * excess ** (-1 / 5), 0.2, 6.0), 0.2)
        keep = lambda new, old: jnp.where(good, new, old)
        now1 = jnp.where(end - now <= h, end, now + h)
        return (
            count + good, keep(now1, now), keep(y1, y), keep(f1, f), h * growth, rate,
            jnp.where(over, enough, keep(jnp.maximum(jnp.where(change, run + 1, run - 1), 0), run)), rests & good,
            put(times, count, now1), put(states, count, y1), put(bends, count, bend),
        )  # fmt: skip

    if method == "resting":
        resting, possible = at_rest(field, y, tolerance)
        most = jnp.where(possible, most, 0)
    blank = jnp.zeros((BURST, *y.shape))
    times, bends = jnp.zeros(BURST), jnp.zeros((BURST, 3, *y.shape))
    velocity = (resting if method == "resting" else field).velocity(y)
    start = (0, now, y, velocity, step, fastest, run, False, times, blank, bends)
    count, _, _, _, step, rate, run, rests, *found = jax.lax.while_loop(more, advance, start)
    return count, run, rests, step, rate, *found


@partial(compiled, few=80_000)
def watch(
    field: Field, y: State, states: Float[Array, "K G p"], bends: Float[Array, "K 3 G p"],
    step: Int[Array, " B"], share: Float[Array, " B"],
) -> Float[Array, "B columns"]:  # fmt: skip
    """The losses inside steps, the first of which begins at `y`, at the given share of each."""

    def one(i: Array, s: Array) -> Array:
        first = jnp.where(i == 0, y, states[i - 1])
        return field.losses(between(first, states[i], bends[i], s))

    return jax.vmap(one)(step, share)


def watched(
    field: Field, y: Float[np.ndarray, "G p"], states: Float[AnyArray, "K G p"], bends: Float[AnyArray, "K 3 G p"],
    step: Int[np.ndarray, " n"], share: Float[np.ndarray, " n"],
) -> Float[np.ndarray, "n columns"]:  # fmt: skip
    """The same at any number of places, compiled for `BURST`."""
    found = []
    for first in range(0, len(step), BURST):
        chunk = slice(first, first + BURST)
        fill = (0, max(first + BURST - len(step), 0))
        found.append(watch(field, y, states, bends, np.pad(step[chunk], fill), np.pad(share[chunk], fill)))
    return np.concatenate(found)[: len(step)]


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
    now, step, taken, method, fastest, patience = start, FIRST_STEP, 0, "explicit", 0.0, PATIENCE[0]
    cost = price(y.size) if loss.light else np.inf
    worth, run, lost = 1.5 * cost, 0, 0
    while not kept.settled and now < end and taken < MOST_STEPS:
        most = min(BURST, MOST_STEPS - taken, max(RUN, int(16_000 / cost)) if method == "implicit" else BURST)
        enough = agreed(cost, method)
        numbers = (now, end, min(step, end - now), tolerance, worth, fastest, patience, most, run, enough)
        count, run, rests, h, seen, *arrays = burst(field, y, *map(np.asarray, numbers), method=method)
        count, run = int(count), int(run)
        if method == "resting" and count == 0:  # not at rest, or the plateau is over
            method, patience, run = "implicit", patience * PATIENCE[1], 0
            continue
        if count == 0 or not kept.extend(count, *arrays):
            return kept.outcome(taken + count, "the loss is not finite, or the step has shrunk to nothing")
        before, now, y = now, float(np.asarray(arrays[0])[count - 1]), np.asarray(arrays[1])[count - 1]
        taken, step = taken + count, float(h)
        lost += count if method == "implicit" and (now - before) * fastest * EPS > count else 0
        if lost > LOST:
            return kept.outcome(taken, "rounding: fast and slow weights differ by more than double precision holds")
        progress(now, float(kept.last[0]))
        change = run >= enough
        run = 0 if change or rests else run
        if rests:
            method = "resting"
        elif change and method == "explicit":
            method, worth, fastest = "implicit", cost * LIMIT / float(seen) / 1.5, float(seen)
            step = max(step, worth)
        elif change and method == "resting" and step > worth:
            method = "implicit"
        elif change:
            method, worth, step, patience = "explicit", 1.5 * cost, min(step, LIMIT / fastest), PATIENCE[0]
    return kept.outcome(taken, "settled" if kept.settled else "steps" if now < end else "reached")


class Kept:
    """The saved times: every one at which loss, time or weights have visibly moved since the one before.

    Where a step of the solver is longer than that, losses inside it are added, of the states that the method has for
    them; weights are kept at the ends of steps alone, where they are most exact.
    """

    def __init__(self, field: Field, zero_loss: float, settled: Callable[[float], bool]):
        self.field, self.zero_loss, self.is_settled = field, max(zero_loss, np.finfo(float).tiny), settled
        self.times: list[float] = []
        self.losses: list[np.ndarray] = []
        self.recorded: list[int] = []
        self.states: list[np.ndarray] = []
        self.settled = False

    def begin(self, time: float, y: np.ndarray) -> None:
        self.now, self.y = time, y
        nowhere = np.zeros((BURST, *y.shape)), np.zeros((BURST, 3, *y.shape))
        self.last = watched(self.field, y, *nowhere, np.zeros(1, dtype=int), np.zeros(1))[0]
        self.settled = self.is_settled(float(self.last[0]))
        self.add(time, self.last, y)

    def add(self, time: float, losses: np.ndarray, y: np.ndarray | None) -> None:
        if y is not None:
            self.recorded.append(len(self.times))
            self.states.append(y)
        self.times.append(float(time))
        self.losses.append(losses)

    def extend(
        self, count: int, times: Float[Array, " K"], states: Float[Array, "K G p"], bends: Float[Array, "K 3 G p"]
    ) -> bool:
        """Add what is worth keeping of some steps; False, and nothing is added, if a loss is not finite."""
        begin: np.ndarray = self.y
        losses = watched(self.field, begin, states, bends, np.arange(count), np.ones(count))
        if not np.isfinite(losses[:, 0]).all():
            return False
        now, losses = np.append(self.now, np.asarray(times)[:count]), np.concatenate([self.last[None], losses])
        ends = np.asarray(states)
        moved = self.fallen(losses[:-1], losses[1:])
        lengths = np.diff(now)
        parts = np.maximum(moved, np.diff(clock(now))).astype(int).clip(1)
        step, share = subdivided(parts)
        inside = share < 1
        all_losses = losses[step + 1]
        if inside.any():
            all_losses[inside] = watched(self.field, begin, states, bends, step[inside], share[inside])
        all_times = now[step] + share * lengths[step]
        for time, loss, i, s in zip(all_times, all_losses, step, share, strict=True):
            self.now, self.last, self.settled = float(time), loss, self.is_settled(float(loss[0]))
            if s == 1 or self.settled:
                first = ends[i - 1] if i else begin
                self.y = ends[i] if s == 1 else between(first, ends[i], np.asarray(bends[i]), s)
            if self.settled or self.moved(time, loss) or (s == 1 and (parts[i] > 1 or self.weights_moved())):
                self.add(time, loss, self.y if s == 1 or self.settled else None)
            if self.settled:
                break
        return True

    def moved(self, time: float, losses: np.ndarray) -> bool:
        return bool(clock(time) - clock(self.times[-1]) > 1 or self.fallen(self.losses[-1], losses) > 1)

    def fallen(self, before: Float[np.ndarray, "*K columns"], after: Float[np.ndarray, "*K columns"]) -> Any:
        """How far losses have moved, on a scale on which neighbouring saved ones are at most 1 apart.

        It is even up to twice the zero loss and logarithmic above, so that the number of saved times is bounded by the
        logarithm of the first loss.
        """
        knee = HIGH * self.zero_loss
        even = np.abs(np.minimum(after, knee) - np.minimum(before, knee)) / (LOSS_STEP * self.zero_loss)
        ratios = np.abs(np.log(np.maximum(after, knee) / np.maximum(before, knee))) / np.log(TIME_STEP)
        return (even + ratios).max(-1)

    def weights_moved(self) -> bool:
        return bool(np.abs(self.y - self.states[-1]).max() > WEIGHT_STEP * np.abs(self.y).max())

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
