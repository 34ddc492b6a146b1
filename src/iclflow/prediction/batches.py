"""What the noise of minibatches makes of a prediction: a slower drop, spread drop times, a floor above the minimum.

The sequences that batches are cut from stand in for the law of the data: those of the sample that a run was trained on,
or fresh draws (`theory.minibatches.draw`).
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.config.training import GIVEN
from iclflow.models import Model
from iclflow.prediction.problem import Problem
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import directions
from iclflow.theory.merged import alignment
from iclflow.theory.minibatches import (
    Draws,
    Drop,
    Head,
    Noise,
    draw,
    drop_spreads,
    force_noise,
    merged_growth,
    noise_at,
)
from iclflow.theory.separate import rank_optimum

__all__ = [
    "FORCE", "GROWTH", "Batches", "balanced_heads", "fresh_draws", "grown_drop", "spread_staircase", "with_batches",
]  # fmt: skip

GROWTH, FORCE, NOISE = 2**18, 2**16, 2**15  # sequences that growth, spread of times and floor are averaged over
LARGE = 8  # dimension beyond which fewer are drawn
NORMAL = 2.2  # standard deviations on either side that hold 95 %: they are themselves known to a tenth
DRIFTS = 9  # times along a run at which the drift of the floor is followed
STIFF = 0.5  # step times stiffness beyond which the floor is no longer that of small steps


@lru_cache(maxsize=4)
def fresh_draws(task: Task, count: int) -> Draws:
    """Sequences from the law of the task, fewer in high dimension."""
    return draw(task, count if task.dim <= LARGE else count // 8)


class Batches(NamedTuple):
    """What makes the noise of minibatches."""

    draws: Draws  # sequences that stand for the data
    batch: int  # sequences per step
    step: float  # t/tau of one step
    epoch: int | None  # batches in an epoch of a sample; None for fresh ones


def with_batches(changed: Prediction, problem: Problem) -> Prediction:
    """The prediction with the noise of minibatches, as far as it is derived: other times, wider intervals, floors."""
    training, task, count = problem.training, problem.task, problem.regime.sequences
    if training.batch is None:
        return changed
    step = None if training.optimizer.startswith(GIVEN) else problem.step  # asks for lr, on which the noise depends
    derived = training.optimizer in ("sgd", "momentum") and count and task.icl_fraction == 1 and not task.prefix_loss
    if step is None or not derived:
        return changed.noted("minibatches: their noise has no theory for this optimiser, model and task")
    draws = fresh_draws(task, count) if problem.draws is None else problem.draws
    epoch = None if problem.draws is None else len(draws.query) // training.batch
    if problem.beta > 0 or training.weight_decay > 0:
        changed = changed.noted("minibatches: of momentum and weight decay only the clock enters the theory of noise")
    batches = Batches(draws, training.batch, step, epoch)
    return add_floor(problem.regime.with_noise(changed, problem, batches), problem, batches)


def take(draws: Draws, count: int) -> Draws:
    return Draws(*(array[:count] for array in draws))


def grown_drop(plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
    """The drop of merged attention: its weights grow more slowly, and by another amount in every run."""
    if not len(plain.drop_times):
        return plain
    (draws, batch, step, epoch), heads, L = batches, problem.heads, problem.landscape
    growth = merged_growth(draws, L.cross, batch, step)
    quick = float(np.sqrt(L.outputs) * np.linalg.norm(L.cross))
    learned = np.sqrt(L.outputs) * np.linalg.norm(rank_optimum(L, problem.task.dim))
    wait = np.log(max(learned / alignment(L, heads.value, heads.key_query).alpha, 1.0)) / 2  # of |W|, in e-folds
    if growth.rate <= 0:
        note = f"minibatches: weights shrink by noise alone (growth {growth.rate:.3g} per t/tau), so no drop comes"
        return plain.moved(np.zeros(0), levels=plain.levels[:1]).noted(note)
    late = wait * (1 / growth.rate - 1 / quick)
    time = plain.drop_times + late
    steps = float(time[0]) / step
    independent = steps if epoch is None else min(steps, epoch / 6)  # over an epoch the noise adds up to nothing
    spread = np.sqrt(independent) * growth.spread / growth.rate
    turn = float(plain.drop_times[0])
    back = lambda t: np.where(t < turn + late, t * turn / (turn + late), t - late)
    note = (
        f"minibatches: noise slows the growth from {quick:.4g} to {growth.rate:.4g} per t/tau and spreads the drop by"
        f" {spread:.3g} t/tau from run to run"
    )
    moved = plain.moved(
        time,
        loss=lambda t: plain.loss(back(np.asarray(t, dtype=float))),
        values=lambda t: plain.values(back(np.asarray(t, dtype=float))),
        notes=(*plain.notes, note),
    )
    return widen_intervals(moved, np.array([spread]))


def spread_staircase(plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
    """The staircase: drops come when they did on average, and earlier or later from run to run."""
    draws, batch, step, epoch = batches
    d, heads = directions(problem.task), problem.heads
    key, query = heads.keys_and_queries
    if epoch is not None:
        note = "minibatches: over an epoch of a sample their noise adds up to nothing, so drop times hardly spread"
        return plain.noted(note)
    if key.shape[1] > 1 or not d.commuting or np.any(plain.directions < 0) or len(set(plain.directions)) < len(d.drive):
        note = "minibatches: how drop times spread is derived for heads of rank one that learn every direction once"
        return plain.noted(note)
    few, learned, drops = take(draws, FORCE), np.zeros(problem.task.dim, dtype=bool), []
    for head, direction, time in zip(plain.heads, plain.directions, plain.drop_times, strict=True):
        A = d.matrix(d.strength * learned)
        error = few.label - np.einsum("poi,ij,pj->po", few.context, A, few.query, optimize=True)
        noise = np.atleast_2d(force_noise(few, error, d.left))  # of a single direction it is a number
        drops.append(Drop(int(head), float(time), np.where(learned, 0.0, d.drive), noise))
        learned[direction] = True
    spreads = drop_spreads(heads.value, key[:, 0] @ d.left, query[:, 0] @ d.right, drops, batch, step)
    told = ", ".join("?" if np.isnan(s) else f"{s:.3g}" for s in spreads)
    note = f"minibatches: drop times spread from run to run with standard deviations {told} t/tau (first order)"
    return widen_intervals(plain.noted(note), spreads)


def widen_intervals(plain: Prediction, spread: Float[np.ndarray, " m"]) -> Prediction:
    """The intervals with the spread from run to run added to them."""
    low, high = plain.drop_intervals.T
    wide = NORMAL * np.asarray(spread)
    below = plain.drop_times - np.hypot(plain.drop_times - low, wide)
    above = plain.drop_times + np.hypot(high - plain.drop_times, wide)
    return replace(plain, drop_intervals=np.stack([np.maximum(below, 0.0), above], axis=1))


def add_floor(plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
    """Every level raised by the floor of its learned heads; the last one falls along the drift of the weights."""
    (draws, batch, step, epoch), L = batches, problem.landscape
    task, model = problem.task, problem.model
    few, one_by_one = take(draws, NOISE), model.one_by_one
    label_only = problem.training.freeze_vectors or not model.vectors(task)
    counts = range(len(plain.levels)) if one_by_one else [0, task.dim][: len(plain.levels)]
    noises = [noise_at(few, balanced_heads(model, task, rank_optimum(L, m)), label_only) for m in counts]
    known = [noise for noise in noises if noise is not None]
    if len(known) < len(noises):
        note = "minibatches: the model has too many weights to resolve the noise at its fixed points; no floor is added"
        return plain.noted(note)
    floors = np.array([noise.floor(batch, step, epoch=epoch) for noise in known])
    if not np.isfinite(floors).all():
        m = int(np.argmin(np.isfinite(floors)))
        note = f"minibatches: the step is not stable on plateau {m} with all blocks trained, so there is no floor"
        return replace(plain, reliable=False, notes=(*plain.notes, note))
    levels, before = plain.levels + floors, plain.levels
    last = float(plain.drop_times[-1]) if len(plain.drop_times) else 0.0
    ages, ends = floor_over_time(known[-1], batch, step, max(10 * last, 1.0), epoch)
    note = (
        f"minibatches: the loss stays {floors[-1]:.3g} above the last level, and less with time"
        f" ({ends[-1]:.3g} after t/tau {ages[-1]:.3g}), because noise moves weights to flatter minima"
    )
    sharp = step * float(np.linalg.eigvalsh(known[-1].stiffness).max(initial=0.0))
    rough = (
        (f"minibatches: the step is {sharp:.2g} over the stiffness; the floor is approximate",) if sharp > STIFF else ()
    )

    def loss(t: Float[np.ndarray, "*T"]) -> Float[np.ndarray, "*T"]:
        t = np.asarray(t, dtype=float)
        clean = plain.loss(t)
        raised = clean + np.interp(clean, before[::-1], floors[::-1])
        share = np.interp(np.maximum(t - last, 0.0), ages, ends / floors[-1]) if floors[-1] > 0 else 1.0
        return np.where(t > last, clean + share * (raised - clean), raised)

    return replace(plain, levels=levels, loss=loss, floors=floors, notes=(*plain.notes, note, *rough))


def floor_over_time(
    noise: Noise, batch: int, step: float, length: float, epoch: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Times since the last drop, and the floor at each of them."""
    ages = np.concatenate([[0.0], np.geomspace(length / 100, length, DRIFTS)])
    return ages, np.array([noise.floor(batch, step, float(age), epoch) for age in ages])


def balanced_heads(model: Model, task: Task, A: Float[np.ndarray, "D D"]) -> list[Head]:
    """The heads of balanced weights with the effective matrix A, in the paper's units, vector blocks zero."""
    dim, outputs = task.dim, task.out_dim
    plain_task = task if task.normalize != "none" else task.replace(normalize="context")
    heads = model.reduced(model.balanced(A, plain_task), plain_task)
    label = np.concatenate([np.zeros((outputs, dim)), np.eye(outputs) / np.sqrt(outputs)], axis=1)
    pad = lambda array: np.concatenate([array, np.zeros((len(array), outputs))], axis=1)
    found = []
    for h, v in enumerate(heads.value):
        if v == 0:
            continue
        if heads.key is None or heads.query is None:
            found.append(Head(v * label, key_query=pad(heads.key_query[h].T).T))
        else:
            found.append(Head(v * label, key=pad(heads.key[h]), query=heads.query[h]))
    return found
