"""What weight decay and the optimiser make of the prediction for plain gradient flow.

A prediction is changed field by field: later times, other levels, fewer drops. What is not named here stays. Times are
on the clock of the run (`Plan.clock`): $t/\tau$ for descent and momentum, learning rate x step for Adam and Muon.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from iclflow.errors import BadInput
from iclflow.prediction.batches import fresh_draws, noisy
from iclflow.prediction.edges import edge_warning
from iclflow.prediction.margins import CLOSED, NOT_SMALL, interval
from iclflow.prediction.result import Curve, Prediction, Times
from iclflow.prediction.setting import Setting
from iclflow.prediction.steps import lagging_drop, lagging_staircase, unknown_values
from iclflow.theory import merged
from iclflow.theory.adam import adam_regime
from iclflow.theory.decay import decayed_level, decayed_time, merged_course, merged_matrix, resting_loss, stretched_time
from iclflow.theory.landscape import Directions, directions, landscape
from iclflow.theory.muon import MuonCourse, muon_heads, muon_merged, muon_stacked
from iclflow.theory.separate import rank_optimum
from iclflow.theory.staircase import staircase
from iclflow.units import to_paper_weights

__all__ = ["optimised"]


def optimised(plain: Prediction, setting: Setting) -> Prediction:
    """The prediction for the optimiser of the setting, from that for the flow without decay."""
    rule = RULES.get(setting.training.optimizer, levels_only)
    changed = rule(plain, setting)
    return changed if setting.training.batch is None else with_batches(changed, setting)


def with_batches(changed: Prediction, setting: Setting) -> Prediction:
    """The same with the noise of minibatches, as far as it is derived."""
    training, task = setting.training, setting.task
    if training.lr is None or training.batch is None:
        raise BadInput(
            f"lr: must be given with batch = {training.batch}, because the noise of minibatches depends on it"
        )
    derived = training.optimizer in ("sgd", "momentum") and setting.theory in LAGS
    if not derived or task.icl_fraction < 1 or task.prefix_loss:
        note = "minibatches: their noise has no theory for this optimiser, model and task"
        return replace(changed, notes=(*changed.notes, note))
    draws = fresh_draws(task, setting.theory) if setting.draws is None else setting.draws
    epoch = None if setting.draws is None else len(draws.query) // training.batch
    if setting.beta > 0 or training.weight_decay > 0:
        note = "minibatches: of momentum and weight decay only the clock enters the theory of noise"
        changed = replace(changed, notes=(*changed.notes, note))
    return noisy(
        changed, setting.theory, task, setting.model, setting.weights, draws,
        sample=setting.sample, batch=training.batch, step=training.lr * setting.rate / (1 - setting.beta), epoch=epoch,
        frozen=training.freeze_vectors,
    )  # fmt: skip


# --- descent and momentum ---------------------------------------------------------------------------------------------


def stepped(plain: Prediction, setting: Setting) -> Prediction:
    """Descent and momentum: the flow with decay, and the lag of finite steps where the learning rate is known."""
    training = setting.training
    decay = training.weight_decay / setting.rate * (1 - setting.beta)
    flow = plain if decay == 0 else decayed(plain, setting, decay)
    if training.lr is None:
        note = "without lr the lag of momentum behind the flow is left out"
        return flow if setting.beta == 0 else replace(flow, notes=(*flow.notes, note))
    warning = edge_warning(setting.task, setting.model, training.lr, setting.beta)
    if warning is not None:
        flow = replace(flow, notes=(*flow.notes, warning))
    if setting.theory not in LAGS:
        return replace(flow, notes=(*flow.notes, "the lag of finite steps is left out"))
    if setting.theory == "drop" and training.batch is not None and setting.beta == 0 and training.weight_decay == 0:
        return flow  # the growth with noise has it
    return LAGS[setting.theory](plain, flow, setting, training.lr * setting.rate, training.lr * training.weight_decay)


# --- Adam, Muon, and what has no theory of its times ------------------------------------------------------------------


def by_adam(plain: Prediction, setting: Setting) -> Prediction:
    """Below eps a staircase with its own clock, above it none; a note says which."""
    d = directions(setting.task)
    size = float(d.strength[np.argmax(d.drive)] ** (1 / (setting.model.degree or 2)))
    first = float(plain.drop_times[0]) if len(plain.drop_times) else np.inf
    regime = adam_regime(first, size, setting.rate)
    noted = replace(plain, notes=(*plain.notes, regime.note))
    if regime.name != "epsilon":
        return without_times(noted)
    decay = setting.training.weight_decay / regime.pace
    flow = noted if decay == 0 else decayed(noted, setting, decay)
    return on_another_clock(flow, 1 / regime.pace)


def by_muon(plain: Prediction, setting: Setting) -> Prediction:
    """All that grows at unit speed; without plateaus, so times are those at which the loss passes between levels."""
    task, model, training = setting.task, setting.model, setting.training
    d, stacked = directions(task), training.muon == "stacked"
    if setting.sample is not None or not d.commuting or not has_muon_theory(setting):
        note = "muon: has no theory of its times for this model and data; no fixed point changes"
        return without_times(replace(plain, notes=(*plain.notes, note)))
    heads, unit = model.head_count(task), float(to_paper_weights(task, model, 1.0))
    decay, note = training.weight_decay / unit, "muon: all directions grow together, so no plateaus are to be seen"
    if setting.theory == "drop":
        course = muon_merged(d, 1 if stacked else growing_heads(setting, unit), decay)
    elif not stacked:
        course = muon_heads(d, heads, decay)
        note = "muon: all heads learn the first direction together; what follows has no theory"
        plain = plain.moved(plain.drop_times[:1], levels=plain.levels[:2])
    elif model.components(task) < task.dim:
        note = "muon: its theory needs heads enough to hold all directions"
        return without_times(replace(plain, notes=(*plain.notes, note)))
    else:
        course = muon_stacked(d, decay)
    return along(plain, course, course.loss(d), unit, note)


def growing_heads(setting: Setting, unit: float) -> int:
    """How many heads of merged attention grow one by one: of those whose factors differ in sign, none by large steps.

    Steps above the initial weights flip both factors of such a head at once, again and again.
    """
    heads, lr = setting.model.reduced(setting.weights, setting.task), setting.training.lr
    large = max(float(np.abs(array).max()) for array in setting.weights.values())
    if lr is None or lr * unit <= large:
        return len(heads.value)
    felt = np.einsum("hij,ij->h", heads.key_query, landscape(setting.task).cross)
    return int(np.sum(heads.value * felt > 0))


def has_muon_theory(setting: Setting) -> bool:
    """Merged attention has one, and separate attention of rank one."""
    if "value" not in setting.weights or setting.theory not in ("staircase", "drop"):
        return False
    key = setting.model.reduced(setting.weights, setting.task).key
    return key is None or key.shape[1] == 1


def along(plain: Prediction, course: MuonCourse, loss: Times, unit: float, note: str) -> Prediction:
    """A prediction whose loss follows a course; `unit` turns learning rate x step into the paper's units."""
    middles = (plain.levels[1:] + plain.levels[:-1]) / 2
    times = np.interp(-middles, -np.minimum.accumulate(loss), course.time) / unit
    together = np.full(len(times), -1)
    return replace(
        plain,
        drop_times=times,
        drop_intervals=np.full((len(times), 2), np.nan),
        head_shares=np.full(len(times), np.nan),
        heads=together,
        directions=together,
        loss=lambda t: np.interp(np.asarray(t, dtype=float) * unit, course.time, loss),
        values=unknown_values(plain),
        notes=(*plain.notes, note),
    )


def levels_only(plain: Prediction, setting: Setting) -> Prediction:
    """Of any other optimiser only the levels are known: it changes no fixed point."""
    name = setting.training.optimizer
    note = f"{name}: has no theory of its times; where it shows plateaus, their levels are these"
    return without_times(replace(plain, notes=(*plain.notes, note)))


def without_times(plain: Prediction) -> Prediction:
    """The levels alone."""
    return plain.moved(
        np.array([]),
        loss=lambda t: np.full(np.shape(t), np.nan),
        values=unknown_values(plain),
    )


def on_another_clock(plain: Prediction, factor: float) -> Prediction:
    """All times multiplied by a factor."""
    return plain.moved(
        factor * plain.drop_times,
        loss=lambda t: plain.loss(np.asarray(t, dtype=float) / factor),
        values=lambda t: plain.values(np.asarray(t, dtype=float) / factor),
    )


# --- weight decay -----------------------------------------------------------------------------------------------------


def decayed(plain: Prediction, setting: Setting, decay: float) -> Prediction:
    """The prediction for the flow with decay at the rate `decay` per t/tau."""
    if setting.theory not in DECAYS:
        where = f"the theory of {setting.model.describe()}"
        where += " with shared task vectors" if setting.theory == "mixture" else ""
        raise BadInput(f"weight_decay: {setting.training.weight_decay} must be 0 with {where}")
    return DECAYS[setting.theory](plain, setting, decay)


def decayed_staircase(plain: Prediction, setting: Setting, decay: float) -> Prediction:
    """The staircase with weight decay: drops come later or never, and learned directions rest at smaller strengths."""
    if NOT_SMALL in plain.notes:
        raise BadInput("weights: are too large for the theory of weight decay, which needs a first plateau")
    key, query = setting.model.reduced(setting.weights, setting.task).keys_and_queries
    if key.shape[1] > 1:
        return decayed_ranks(plain, setting, decay, key, query)
    times = decayed_time(plain.drop_times, decay)
    comes = int(np.sum(np.isfinite(times)))
    ends = decayed_time(plain.drop_intervals.ravel(), decay).reshape(-1, 2)[:comes]
    return cut_off(plain, setting, decay, times[:comes], ends, plain.loss)


def decayed_ranks(
    plain: Prediction, setting: Setting, decay: float,
    key: Float[np.ndarray, "H R D"], query: Float[np.ndarray, "H R D"],
) -> Prediction:  # fmt: skip
    """Heads of rank above one, by closed theory: the drops that open a head follow one rule, those inside another."""
    source = setting.task if setting.sample is None else setting.sample
    value = setting.model.reduced(setting.weights, setting.task).value
    stairs, free = (staircase(source, value, key, query, rate) for rate in (decay, 0.0))
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
    return replace(cut_off(named, setting, decay, stairs.drop_times, ends, loss, stretched=False), never=missing)


def cut_off(
    plain: Prediction, setting: Setting, decay: float, times: Float[np.ndarray, " m"],
    ends: Float[np.ndarray, "m 2"], loss: Curve, stretched: bool = True,
) -> Prediction:  # fmt: skip
    """The prediction with the drops that come, at these times, and the levels at which decay lets them rest."""
    comes = len(times)
    levels = decayed_levels(plain, setting, decay, comes)
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
        values=unknown_values(plain),
        never=tuple(int(i) for i in plain.directions[comes:]),
    )


def decayed_levels(plain: Prediction, setting: Setting, decay: float, comes: int) -> Float[np.ndarray, " levels"]:
    """The data losses at which training pauses with decay, after each of the drops that come."""
    task, model = setting.task, setting.model
    d = directions(task)
    rank = model.reduced(setting.weights, task).keys_and_queries[0].shape[1]
    if setting.sample is None and rank == 1 and (plain.directions >= 0).all():
        held = [np.isin(np.arange(task.dim), plain.directions[:m]) for m in range(comes + 1)]
        return np.array([decayed_level(d, learned, decay) for learned in held])
    L = landscape(task) if setting.sample is None else setting.sample
    levels = []
    for m in range(comes + 1):
        heads = model.reduced(model.balanced(rank_optimum(L, m), task.replace(normalize=None)), task)
        if setting.sample is None and (plain.directions >= 0).all():
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


def decayed_drop(plain: Prediction, setting: Setting, decay: float) -> Prediction:
    """The single drop with weight decay: slower, or none at all."""
    heads = setting.model.reduced(setting.weights, setting.task)
    L = landscape(setting.task) if setting.sample is None else setting.sample
    alpha = merged.alignment(L, heads.value, heads.key_query).alpha
    half_time = merged_course(L, alpha, decay, np.zeros(0)).half_time
    comes = int(np.isfinite(half_time))
    return plain.moved(
        np.array([half_time])[:comes],
        levels=np.array([L.base, L.loss(merged_matrix(L, decay))])[: comes + 1],
        loss=lambda t: merged_course(L, alpha, decay, np.asarray(t, dtype=float)).loss,
        values=unknown_values(plain),
        never=() if comes else tuple(range(setting.task.dim)),
    )


INSIDE = "weight decay: the drops of heads of rank above one are those of small initial weights"
RULES = {"sgd": stepped, "momentum": stepped, "adam": by_adam, "muon": by_muon}
LAGS = {"staircase": lagging_staircase, "drop": lagging_drop}
DECAYS = {"staircase": decayed_staircase, "drop": decayed_drop}
