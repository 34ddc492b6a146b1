r"""Gradient flow, $dW/dt = -\frac{1}{c}\,(\partial L/\partial W + \gamma W)$, in units of $t/\tau$.

$c$ is the clock rate (`iclflow.units`), so descent with a small step follows the same curve on the same axis. diffrax
integrates with adaptive steps of Tsitouras' 5(4) method, a few hundred at a time, until the asked time, until the loss
has settled, or until the cap; a long plateau can take hundreds of thousands of steps.
"""

from collections.abc import Callable
from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.outcome import Outcome
from iclflow.models import Weights

__all__ = ["flow"]

BURST = 512  # solver steps in one compiled call
FIRST_STEP = 1e-3  # of the solver, which grows it at once where it may
SMALL = 1e-6  # weights that are all smaller than this are tiny
MOST_STEPS = 2_000_000  # solver steps, whatever the end time
LOSS_STEP, TIME_STEP = 5e-4, 1.01  # a time is kept when loss (of the zero loss) or time has moved this much


@eqx.filter_jit
def burst(
    loss: MomentLoss, rate: Array, decay: Array | None, trained: Weights, start: Array, end: Array, step: Array,
    tolerance: Array,
) -> Any:  # fmt: skip
    """Up to `BURST` steps from `start` towards `end`: result, times, losses and weights after every one of them.

    The solver sees one vector, which is much faster than a dictionary; losses are added afterwards.
    """
    flat, unflatten = ravel_pytree(trained)
    free = 1.0 if loss.mask is None else ravel_pytree(loss.mask)[0]
    smallness = jnp.minimum(jnp.abs(flat).max() / SMALL, 1.0)  # the absolute tolerance follows tiny weights

    def velocity(t: Any, y: Array, args: Any) -> Array:
        gradient = ravel_pytree(loss.loss_and_gradient(unflatten(y))[1])[0]
        return -gradient / rate if decay is None else -(gradient + decay * free * y) / rate

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        start, end, step, flat,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=1e-3 * tolerance * smallness),
        saveat=diffrax.SaveAt(steps=True),
        max_steps=BURST,
        throw=False,
    )  # fmt: skip
    states = jax.vmap(unflatten)(solution.ys)
    return solution.result, solution.ts, jax.vmap(lambda one: watch(loss, one))(states), states


def watch(loss: MomentLoss, trained: Weights) -> Float[Array, " columns"]:
    return jnp.concatenate([jnp.asarray(loss.loss(trained))[None], loss.test_losses(trained)])


def flow(
    loss: MomentLoss,
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
    kept = Kept(zero_loss)
    first = np.asarray(eqx.filter_jit(watch)(loss, trained))
    kept.add(start, first, trained)
    now, step, taken = start, FIRST_STEP, 0
    shrink = jnp.asarray(decay) if decay else None
    result = "settled" if settled(float(first[0])) else "reached"
    while result == "reached" and now < end and taken < MOST_STEPS:
        step = min(step, end - now)
        result_code, *arrays = burst(
            loss, jnp.asarray(rate), shrink, trained, *map(jnp.asarray, (now, end, step, tolerance))
        )
        times, losses, states = jax.tree.map(np.asarray, arrays)
        count = int(np.isfinite(times).sum())
        if count == 0 or not np.isfinite(losses[:count, 0]).all():
            return kept.outcome(taken, "the loss is not finite")
        below = [i for i in range(count) if settled(float(losses[i, 0]))][:1]
        if below:
            count, result = below[0] + 1, "settled"
        at = lambda i, states=states: {name: array[i] for name, array in states.items()}
        for i in range(count):
            if kept.moved(times[i], losses[i]):
                kept.add(times[i], losses[i], at(i))
        trained, taken, last = at(count - 1), taken + count, losses[count - 1]
        step = float(times[count - 1] - (times[count - 2] if count > 1 else now))
        now = float(times[count - 1])
        progress(now, float(losses[count - 1, 0]))
        if result_code not in (diffrax.RESULTS.successful, diffrax.RESULTS.max_steps_reached):
            return kept.outcome(taken, cast(Any, diffrax.RESULTS)[result_code])
    if now > kept.times[-1]:
        kept.add(now, last, trained)
    return kept.outcome(taken, "steps" if now < end and result == "reached" else result)


class Kept:
    """The saved times: every one at which loss or time has visibly moved since the one before."""

    def __init__(self, zero_loss: float):
        self.loss_step = LOSS_STEP * zero_loss
        self.times: list[float] = []
        self.losses: list[np.ndarray] = []
        self.parts: list[Weights] = []

    def moved(self, time: float, losses: np.ndarray) -> bool:
        later = time > TIME_STEP * self.times[-1] + 0.05
        return bool(later or np.abs(losses - self.losses[-1]).max() > self.loss_step)

    def add(self, time: float, losses: np.ndarray, trained: Weights) -> None:
        self.times.append(float(time))
        self.losses.append(losses)
        self.parts.append(trained)

    def outcome(self, solver_steps: int, result: str) -> Outcome:
        return Outcome(
            times=np.array(self.times),
            losses=np.array(self.losses),
            recorded=np.arange(len(self.times)),
            snapshots=self.parts,
            why=result,
            detail={"solver_steps": solver_steps},
        )
