"""Time of one step of the package's own descent, compiled and warm, and of the set-up before it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.settings import Published
from benchmarks.timing import first_call, smallest
from iclflow.config import Training
from iclflow.engines.descent import advance
from iclflow.engines.optimizers import Rule
from iclflow.experiment import Experiment
from iclflow.training.plan import Plan

__all__ = ["Ready", "experiment", "prepare", "seconds_per_step"]


class Ready(NamedTuple):
    """A loss and the weights to move, as `iclflow.training` hands them to the engine."""

    loss: Any
    part: dict[str, jax.Array]
    lr: jax.Array


def experiment(run: Published, **changes: Any) -> Experiment:
    return Experiment(task=run.task(), model=run.network(), training=Training(**{**run.settings(), **changes}))


def prepare(what: Experiment) -> Ready:
    """Draw the sample, and take its moments where the engine needs them."""
    plan, seed = Plan(what), what.training.seed
    weights = plan.initial(seed)
    blocks = plan.blocks(weights)
    loss = plan.loss(seed, weights, blocks, lambda share, words: None)
    dtype = np.dtype(what.training.dtype)
    part = {k: jnp.asarray(a, dtype) for k, a in plan.trained_part(weights, blocks).items()}
    loss = jax.tree.map(lambda a: jnp.asarray(a, dtype), loss)
    return Ready(loss, part, jnp.asarray(what.training.lr, dtype))


def seconds_per_step(ready: Ready, count: int, repeats: int) -> float:
    """The smallest of `repeats` calls of `count` steps, after one that compiles."""
    rule = Rule("sgd")
    state = rule.initial_state(ready.part)

    def call() -> Any:
        return advance(ready.loss, rule, ready.part, state, ready.lr, None, jnp.asarray(count), None)

    first_call(call)
    return smallest(call, repeats) / count
