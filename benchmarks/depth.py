"""(i) A step of two layers on Gram matrices: flat in N, far below the step on tokens, linear in the number of layers.

Separate key and query, D 8, H 5, full batch of P sequences. Smallest of a few rounds, all sizes in turn, so that other
work on the machine meets them alike.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import iclflow as icl
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call, one_call
from iclflow.config import Training
from iclflow.engines.descent import advance
from iclflow.experiment import Experiment
from iclflow.system.precision import double_precision
from iclflow.training.plan import Plan

__all__ = ["on_gram_matrices"]

GROWTH, FASTER = 1.3, 20
LENGTHS, LAYERS, STEPS, ROUNDS = (8, 64, 512), (2, 4, 6), 3, 5


def on_gram_matrices(quick: bool) -> list[Row]:
    count, lengths = (200, (8, 32)) if quick else (5000, LENGTHS)
    with double_precision():
        say("the same two layers at every length, on Gram matrices; then more layers; then on tokens")
        steps = {f"N = {n}": prepared(n, 2, count, "gram") for n in lengths}
        steps |= {f"layers {layers}": prepared(lengths[0], layers, count, "gram") for layers in LAYERS[1:]}
        tokens = {f"tokens, N = {lengths[-1]}": prepared(lengths[-1], 2, count, "tokens")}
        times = smallest_of_rounds(steps) | smallest_of_rounds(tokens)
    rows = [Row(name, f"{seconds(time)} a step", time) for name, time in times.items()]
    first, last = times[f"N = {lengths[0]}"], times[f"N = {lengths[-1]}"]
    growth, faster = last / first, times[f"tokens, N = {lengths[-1]}"] / last
    bend = (times["layers 6"] - times["layers 4"]) / (times["layers 4"] - first)
    straight = f"{1 / GROWTH:.2f}x to {GROWTH}x", 1 / GROWTH < bend < GROWTH
    return [
        *rows,
        Row("longest context over shortest", f"{growth:.2f}x", growth, f"below {GROWTH}x", growth < GROWTH),
        Row("tokens over Gram matrices", f"{faster:.0f}x", faster, f"at least {FASTER}x", faster >= FASTER),
        Row("fifth and sixth layer over third and fourth", f"{bend:.2f}x", bend, *straight),
    ]


def smallest_of_rounds(steps: dict[str, Any]) -> dict[str, float]:
    """Seconds of a step; those on tokens are no part of a round, since they slow down the call behind them."""
    for step in steps.values():
        first_call(step)
    rounds = [[one_call(step) / STEPS for step in steps.values()] for _ in range(ROUNDS)]
    return dict(zip(steps, np.min(rounds, axis=0).tolist(), strict=True))


def prepared(context: int, layers: int, samples: int, engine: str) -> Any:
    """A few steps, ready to be timed."""
    training = Training(samples=samples, engine=engine, lr=1e-3, steps=STEPS)
    model = icl.Separate(heads=5, layers=layers)
    plan = Plan(Experiment(task=icl.Task(dim=8, context=context), model=model, training=training))
    weights = plan.initial(0)
    loss = jax.tree.map(jnp.asarray, plan.loss(0, weights, "all", lambda share, words: None))
    part = {name: jnp.asarray(array) for name, array in plan.trained_part(weights, "all").items()}
    state, lr = plan.rule.initial_state(part), jnp.asarray(training.lr)
    return lambda: advance(loss, plan.rule, part, state, lr, None, jnp.asarray(STEPS), None)
