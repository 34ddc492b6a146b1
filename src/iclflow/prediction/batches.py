"""What the noise of minibatches makes of a prediction: a slower drop, spread drop times, a floor above the minimum.

The sequences that batches are cut from stand in for the law of the data: those of the sample that a run was trained on,
or fresh draws (`theory.minibatches.draw`).
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.sequences import Sequences, over_chunks
from iclflow.models import Model, Weights
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import Landscape, directions, landscape
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
from iclflow.theory.separate import SampleLandscape, rank_optimum

__all__ = ["fresh_draws", "noisy", "sample_draws"]

GROWTH, FORCE, NOISE = 2**18, 2**16, 2**15  # sequences that growth, spread of times and floor are averaged over
LARGE = 8  # dimension beyond which fewer are drawn
NORMAL = 1.96  # standard deviations on either side that hold 95 %
DRIFTS = 9  # times along a run at which the drift of the floor is followed
STIFF = 0.5  # step times stiffness beyond which the floor is no longer that of small steps


@lru_cache(maxsize=4)
def fresh_draws(task: Task, theory: str) -> Draws:
    """Sequences from the law of the task, as many as the theory of growth ("drop") or of the staircase needs."""
    count = GROWTH if theory == "drop" else FORCE
    return draw(task, count if task.dim <= LARGE else count // 8)


def sample_draws(sample: Sequences, tokens: bool) -> Draws:
    """The sequences of a sample, chunk by chunk; `tokens`: the query counts in the normaliser."""
    dim, scale = sample.dim, 1 / (sample.context + tokens)

    def part(index: int) -> tuple[np.ndarray, ...]:
        rows = np.array(sample.chunk(index))
        label = rows[:, -1, dim:].copy()
        rows[:, -1, dim:] = 0
        return scale * np.matmul(rows.transpose(0, 2, 1), rows), rows[:, -1, :dim].copy(), label

    sample.prepare()
    return Draws(*(np.concatenate(parts) for parts in zip(*over_chunks(part, sample), strict=True)))


def noisy(
    plain: Prediction,
    theory: str,
    task: Task,
    model: Model,
    weights: Weights,
    draws: Draws,
    *,
    sample: SampleLandscape | None,
    batch: int,
    step: float,
    epoch: int | None,
    frozen: bool,
) -> Prediction:
    """The prediction with the noise of batches of `batch` sequences and steps `step` of t/tau.

    Args:
        plain: the prediction without noise.
        theory: its theory, "drop" or "staircase".
        task: the task.
        model: the model.
        weights: the initial weights, in the paper's units.
        draws: sequences that stand for the data.
        sample: the moments of the sample, if there is one.
        batch: sequences per step.
        step: t/tau of one step.
        epoch: batches in an epoch of a sample; `None` for fresh ones.
        frozen: whether the vector blocks stay where they are.

    Returns:
        The prediction with other times, wider intervals and higher levels.
    """
    L = landscape(task) if sample is None else sample
    slower = grown_drop if theory == "drop" else spread_staircase
    timed = slower(plain, task, model, weights, draws, L, batch, step, epoch)
    return floored(timed, task, model, draws, L, batch, step, epoch, frozen)


def first(draws: Draws, count: int) -> Draws:
    return Draws(*(array[:count] for array in draws))


def grown_drop(
    plain: Prediction, task: Task, model: Model, weights: Weights, draws: Draws, L: Landscape | SampleLandscape,
    batch: int, step: float, epoch: int | None,
) -> Prediction:  # fmt: skip
    """The drop of merged attention: its weights grow more slowly, and by another amount in every run."""
    if not len(plain.drop_times):
        return plain
    heads = model.reduced(weights, task)
    growth = merged_growth(draws, L.cross, batch, step)
    quick = float(np.sqrt(L.outputs) * np.linalg.norm(L.cross))
    learned = np.sqrt(L.outputs) * np.linalg.norm(rank_optimum(L, task.dim))
    wait = np.log(max(learned / alignment(L, heads.value, heads.key_query).alpha, 1.0)) / 2  # of |W|, in e-folds
    if growth.rate <= 0:
        note = f"minibatches: weights shrink by noise alone (growth {growth.rate:.3g} per t/tau), so no drop comes"
        return replace(plain.moved(np.zeros(0), levels=plain.levels[:1]), notes=(*plain.notes, note))
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
    return widened(moved, np.array([spread]))


def spread_staircase(
    plain: Prediction, task: Task, model: Model, weights: Weights, draws: Draws, L: Landscape | SampleLandscape,
    batch: int, step: float, epoch: int | None,
) -> Prediction:  # fmt: skip
    """The staircase: drops come when they did on average, and earlier or later from run to run."""
    d, heads = directions(task), model.reduced(weights, task)
    key, query = heads.keys_and_queries
    if epoch is not None:
        note = "minibatches: over an epoch of a sample their noise adds up to nothing, so drop times hardly spread"
        return replace(plain, notes=(*plain.notes, note))
    if key.shape[1] > 1 or not d.commuting or np.any(plain.directions < 0) or len(set(plain.directions)) < len(d.drive):
        note = "minibatches: how drop times spread is derived for heads of rank one that learn every direction once"
        return replace(plain, notes=(*plain.notes, note))
    few, learned, drops = first(draws, FORCE), np.zeros(task.dim, dtype=bool), []
    for head, direction, time in zip(plain.heads, plain.directions, plain.drop_times, strict=True):
        A = d.matrix(d.strength * learned)
        error = few.label - np.einsum("poi,ij,pj->po", few.context, A, few.query, optimize=True)
        noise = force_noise(few, error, d.left)
        drops.append(Drop(int(head), float(time), np.where(learned, 0.0, d.drive), noise))
        learned[direction] = True
    spreads = drop_spreads(heads.value, key[:, 0] @ d.left, query[:, 0] @ d.right, drops, batch, step)
    told = ", ".join("?" if np.isnan(s) else f"{s:.3g}" for s in spreads)
    note = f"minibatches: drop times spread from run to run with standard deviations {told} t/tau (first order)"
    return widened(replace(plain, notes=(*plain.notes, note)), spreads)


def widened(plain: Prediction, spread: Float[np.ndarray, " m"]) -> Prediction:
    """The intervals with the spread from run to run added to them."""
    low, high = plain.drop_intervals.T
    wide = NORMAL * np.asarray(spread)
    below = plain.drop_times - np.hypot(plain.drop_times - low, wide)
    above = plain.drop_times + np.hypot(high - plain.drop_times, wide)
    return replace(plain, drop_intervals=np.stack([np.maximum(below, 0.0), above], axis=1))


def floored(
    plain: Prediction, task: Task, model: Model, draws: Draws, L: Landscape | SampleLandscape,
    batch: int, step: float, epoch: int | None, frozen: bool,
) -> Prediction:  # fmt: skip
    """Every level raised by the floor of its learned heads; the last one falls along the drift of the weights."""
    few, one_by_one = first(draws, NOISE), model.one_by_one
    label_only = frozen or not model.vectors(task)
    counts = range(len(plain.levels)) if one_by_one else [0, task.dim][: len(plain.levels)]
    noises = [noise_at(few, grown_heads(model, task, rank_optimum(L, m)), label_only) for m in counts]
    known = [noise for noise in noises if noise is not None]
    if len(known) < len(noises):
        note = "minibatches: the model has too many weights to resolve the noise at its fixed points; no floor is added"
        return replace(plain, notes=(*plain.notes, note))
    floors = np.array([noise.floor(batch, step, epoch=epoch) for noise in known])
    if not np.isfinite(floors).all():
        m = int(np.argmin(np.isfinite(floors)))
        note = f"minibatches: the step is not stable on plateau {m} with all blocks trained, so there is no floor"
        return replace(plain, reliable=False, notes=(*plain.notes, note))
    levels, before = plain.levels + floors, plain.levels
    last = float(plain.drop_times[-1]) if len(plain.drop_times) else 0.0
    ages, ends = drifting(known[-1], batch, step, max(10 * last, 1.0), epoch)
    note = (
        f"minibatches: the loss stays {floors[-1]:.3g} above the last level, and less with time"
        f" ({ends[-1]:.3g} after t/tau {ages[-1]:.3g}), because noise moves weights to flatter minima"
    )
    sharp = step * float(np.linalg.eigvalsh(known[-1].stiffness)[-1])
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


def drifting(noise: Noise, batch: int, step: float, length: float, epoch: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Times since the last drop, and the floor at each of them."""
    ages = np.concatenate([[0.0], np.geomspace(length / 100, length, DRIFTS)])
    return ages, np.array([noise.floor(batch, step, float(age), epoch) for age in ages])


def grown_heads(model: Model, task: Task, A: Float[np.ndarray, "D D"]) -> list[Head]:
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
