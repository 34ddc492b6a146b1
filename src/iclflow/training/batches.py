"""What every step sees on tokens and on Gram matrices: all sequences, the rows of a minibatch, or fresh ones."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.data.grams import fresh_grams
from iclflow.data.sequences import Law, fresh
from iclflow.engines.descent import SEGMENT
from iclflow.training.plan import Plan

__all__ = ["batches_of"]

FRESH, BATCHES, FRESH_GRAMS = 4, 5, 6  # streams drawn from the data seed
AHEAD = 256  # steps whose batches are made ready at once
AHEAD_BYTES = 32 * 2**20

Batches = Callable[[int, int], jax.Array]  # (first step, how many) -> one row per step, filled to a fixed length


def batches_of(plan: Plan, seed: int) -> tuple[Batches | None, int]:
    """The batches of any stretch of steps, a function of the step numbers alone; and the longest stretch."""
    batch = plan.training.batch
    if batch is None:
        return None, SEGMENT
    if plan.experiment.population:
        return fresh_sequences(plan, seed, batch)
    return shuffled_rows(plan, seed, batch)


def shuffled_rows(plan: Plan, seed: int, batch: int) -> tuple[Batches, int]:
    """Every epoch is a new permutation of the sample, cut into batches."""
    number, rows = plan.data_seed(seed), plan.samples(seed)[0].count
    per_epoch = rows // batch

    def batches(first: int, count: int) -> jax.Array:
        steps = np.arange(first, first + count)
        epochs = np.unique(steps // per_epoch)
        order = {e: np.random.default_rng([number, BATCHES, e]).permutation(rows) for e in epochs}
        taken = [order[s // per_epoch][(s % per_epoch) * batch :][:batch] for s in steps]
        return jnp.asarray(filled(np.stack(taken), AHEAD))

    return batches, AHEAD


def fresh_sequences(plan: Plan, seed: int, batch: int) -> tuple[Batches, int]:
    """Every step draws sequences of its own."""
    law, number, dtype = Law.of(plan.task), plan.data_seed(seed), np.dtype(plan.training.dtype)
    width, grams = plan.task.dim + plan.task.out_dim, plan.engine == "gram"
    draw, stream = (fresh_grams, FRESH_GRAMS) if grams else (fresh, FRESH)
    size = 8 * batch * width * (width + 1 if grams else plan.task.context + 1)
    longest = int(np.clip(AHEAD_BYTES // size, 1, AHEAD))

    def batches(first: int, count: int) -> jax.Array:
        drawn = [draw(law, (number, stream), step, batch) for step in range(first, first + count)]
        return jnp.asarray(filled(np.stack(drawn), longest), dtype)

    return batches, longest


def filled(rows: np.ndarray, length: int) -> np.ndarray:
    """A fixed length, so that one compilation serves every stretch."""
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1))
