"""What weight decay makes of the prediction for gradient flow: drops that come later or never, and other levels."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from iclflow.errors import BadInput
from iclflow.prediction.margins import CLOSED, NOT_SMALL, interval
from iclflow.prediction.problem import Problem
from iclflow.prediction.result import Curve, Prediction
from iclflow.theory import merged
from iclflow.theory.decay import decayed_level, decayed_time, merged_course, merged_matrix, resting_loss, stretched_time
from iclflow.theory.landscape import Directions, directions
from iclflow.theory.separate import rank_optimum
from iclflow.theory.staircase import staircase

__all__ = ["decayed_drop", "decayed_staircase"]

INSIDE = "weight decay: the drops of heads of rank above one are those of small initial weights"


def decayed_staircase(plain: Prediction, problem: Problem, decay: float) -> Prediction:
    """The staircase with weight decay: drops come later or never, and learned directions rest at smaller strengths."""
    if NOT_SMALL in plain.notes:
        raise BadInput("weights: are too large for the theory of weight decay, which needs a first plateau")
    key, query = problem.heads.keys_and_queries
    if key.shape[1] > 1:
        return decayed_ranks(plain, problem, decay, key, query)
    times = decayed_time(plain.drop_times, decay)
    comes = int(np.sum(np.isfinite(times)))
    ends = decayed_time(plain.drop_intervals.ravel(), decay).reshape(-1, 2)[:comes]
    return cut_off(plain, problem, decay, times[:comes], ends, plain.loss)


def decayed_ranks(
    plain: Prediction, problem: Problem, decay: float,
    key: Float[np.ndarray, "H R D"], query: Float[np.ndarray, "H R D"],
) -> Prediction:  # fmt: skip
    """Heads of rank above one, by closed theory: the drops that open a head follow one rule, those inside another."""
    value = problem.heads.value
    stairs, free = (staircase(problem.source, value, key, query, rate) for rate in (decay, 0.0))
    if not (np.diff(stairs.drop_times, prepend=0.0) > 0).all():
        raise BadInput("weights: are too large for the theory of weight decay, whose drops would not come in order")
    count = len(stairs.drop_times)
    ends = interval(stairs.drop_times, np.full(count, CLOSED))
    named = replace(
        plain, levels=free.levels, drop_times=stairs.drop_times, drop_intervals=ends, heads=stairs.heads,
        directions=stairs.directions, head_shares=np.full(count, np.nan), notes=(*plain.notes, INSIDE),
    )  # fmt: skip
    knots = np.concatenate([[0.0], stairs.drop_times])
    before = np.concatenate([[0.0], free.drop_times[: len(stairs.drop_times)]])
    back = lambda t: np.where(t > knots[-1], before[-1] + (t - knots[-1]), np.interp(t, knots, before))
    loss = lambda t: free.loss(back(np.asarray(t, dtype=float)))
    missing = tuple(int(i) for i in free.directions if i not in set(stairs.directions))
    return replace(cut_off(named, problem, decay, stairs.drop_times, ends, loss, stretched=False), never=missing)


def cut_off(
    plain: Prediction, problem: Problem, decay: float, times: Float[np.ndarray, " m"],
    ends: Float[np.ndarray, "m 2"], loss: Curve, stretched: bool = True,
) -> Prediction:  # fmt: skip
    """The prediction with the drops that come, at these times, and the levels at which decay lets them rest."""
    comes = len(times)
    levels = decayed_levels(plain, problem, decay, comes)
    # The loss without decay at the time that has passed there, its levels replaced by those with decay.
    before = plain.levels[: comes + 1]
    clock = lambda t: stretched_time(np.asarray(t, dtype=float), decay) if stretched else np.asarray(t, dtype=float)
    return replace(
        plain,
        drop_times=times,
        drop_intervals=ends,
        heads=plain.heads[:comes],
        directions=plain.directions[:comes],
        head_shares=plain.head_shares[:comes],
        levels=levels,
        loss=lambda t: np.interp(loss(clock(t)), before[::-1], levels[::-1]),
        values=plain.unknown_values,
        never=tuple(int(i) for i in plain.directions[comes:]),
    )


def decayed_levels(plain: Prediction, problem: Problem, decay: float, comes: int) -> Float[np.ndarray, " levels"]:
    """The data losses at which training pauses with decay, after each of the drops that come."""
    task, model = problem.task, problem.model
    d = directions(task)
    rank = problem.heads.keys_and_queries[0].shape[1]
    if problem.on_population and rank == 1 and (plain.directions >= 0).all():
        held = [np.isin(np.arange(task.dim), plain.directions[:m]) for m in range(comes + 1)]
        return np.array([decayed_level(d, learned, decay) for learned in held])
    L = problem.landscape
    levels = []
    for m in range(comes + 1):
        heads = model.reduced(model.balanced(rank_optimum(L, m), task.replace(normalize=None)), task)
        if problem.on_population and (plain.directions >= 0).all():
            v, K, Q = holding(d, plain.heads[:m], plain.directions[:m], *heads.keys_and_queries[0].shape[:2])
        else:
            v, (K, Q) = heads.value, heads.keys_and_queries
        grown = np.abs(v) > 0
        levels.append(resting_loss(L, v[grown], K[grown], Q[grown], decay))
    return np.array(levels)


def holding(
    d: Directions, heads: Int[np.ndarray, " m"], learned: Int[np.ndarray, " m"], count: int, rank: int
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H R D"], Float[np.ndarray, "H R D"]]:
    """Balanced heads that hold these directions, each rank one of them."""
    v, K, Q = np.zeros(count), np.zeros((count, rank, len(d.drive))), np.zeros((count, rank, len(d.drive)))
    for head in set(heads.tolist()):
        own = learned[heads == head][:rank]
        v[head] = np.cbrt(d.strength[own].sum())
        for row, i in enumerate(own):
            size = np.sqrt(d.strength[i] / v[head])
            K[head, row], Q[head, row] = size * d.left[:, i], size * d.right[:, i]
    return v, K, Q


def decayed_drop(plain: Prediction, problem: Problem, decay: float) -> Prediction:
    """The single drop with weight decay: slower, or none at all."""
    heads, L = problem.heads, problem.landscape
    alpha = merged.alignment(L, heads.value, heads.key_query).alpha
    half_time = merged_course(L, alpha, decay, np.zeros(0)).half_time
    comes = int(np.isfinite(half_time))
    return plain.moved(
        np.array([half_time])[:comes],
        levels=np.array([L.base, L.loss(merged_matrix(L, decay))])[: comes + 1],
        loss=lambda t: merged_course(L, alpha, decay, np.asarray(t, dtype=float)).loss,
        values=plain.unknown_values,
        never=() if comes else tuple(range(problem.task.dim)),
    )
