"""What the rule of descent makes of the prediction for plain gradient flow.

A prediction is changed field by field: later times, other levels, fewer drops. What is not named here stays. Times are
on the clock of the run (`units.Clock`): $t/\\tau$ for descent and momentum, learning rate x step for Adam and Muon.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from iclflow.prediction.edges import edge_warning
from iclflow.prediction.margins import with_adam_margin
from iclflow.prediction.problem import Problem
from iclflow.prediction.recent import recent
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import directions
from iclflow.theory.laws.adam import adam_regime
from iclflow.theory.laws.muon import MuonCourse
from iclflow.units import to_paper_weights

__all__ = ["NO_MUON", "ByMuon", "with_optimizer"]


def with_optimizer(problem: Problem) -> Prediction:
    """The prediction for the problem's optimiser."""
    rule = RULES.get(problem.training.optimizer, levels_only)
    return rule(problem)


def by_flow(problem: Problem, decay: float = 0.0) -> Prediction:
    """The prediction for gradient flow, from which those of other rules are made."""
    flow = problem.as_flow
    training = flow.training.replace(weight_decay=decay * problem.rate)
    return recent(problem.regime.descent, replace(flow, training=training))


def by_descent(problem: Problem) -> Prediction:
    """Gradient flow, descent and momentum, with weight decay and the lag of finite steps."""
    found, lr = recent(problem.regime.descent, problem), problem.training.lr
    if lr is None:
        return found if problem.beta == 0 else found.noted("without lr the lag of momentum behind the flow is left out")
    warning = edge_warning(problem.task, problem.model, lr, problem.beta)
    return found if warning is None else found.noted(warning)


def by_adam(problem: Problem) -> Prediction:
    """Below eps a staircase with its own clock, above it none; a note says which."""
    plain, d = by_flow(problem), directions(problem.task)
    size = float(d.strength[np.argmax(d.drive)] ** (1 / (problem.model.degree or 2)))
    first = float(plain.drop_times[0]) if len(plain.drop_times) else np.inf
    regime = adam_regime(first, size, problem.rate)
    if regime.name != "epsilon":
        return plain.noted(regime.note).levels_alone
    flow = by_flow(problem, problem.training.weight_decay / regime.pace).noted(regime.note)
    return with_adam_margin(on_another_clock(flow, 1 / regime.pace))


class ByMuon(NamedTuple):
    """The course of a model under Muon, what to say about it, and how many drops it covers (all, if `None`)."""

    course: MuonCourse
    note: str = "muon: all directions grow together, so no plateaus are to be seen"
    drops: int | None = None


def by_muon(problem: Problem) -> Prediction:
    """All that grows at unit speed; without plateaus, so times are those at which the loss passes between levels."""
    plain = by_flow(problem)
    d, unit = directions(problem.task), float(to_paper_weights(problem.task, problem.model, 1.0))
    found: ByMuon | str = NO_MUON
    if problem.on_population and d.commuting:
        found = problem.regime.by_muon(problem, d, unit)
    if isinstance(found, str):
        return plain.noted(found).levels_alone
    if found.drops is not None:
        plain = plain.moved(plain.drop_times[: found.drops], levels=plain.levels[: found.drops + 1])
    course, loss = found.course, found.course.loss(d)
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
        values=plain.unknown_values,
        notes=(*plain.notes, found.note),
        reliable=False,  # no error is known
        method="closed",
    )


def levels_only(problem: Problem) -> Prediction:
    """Of any other optimiser only the levels are known: it changes no fixed point."""
    name = problem.training.optimizer
    note = f"{name}: has no theory of its times; where it shows plateaus, their levels are these"
    return by_flow(problem).noted(note).levels_alone


def on_another_clock(plain: Prediction, factor: float) -> Prediction:
    """All times multiplied by a factor."""
    return plain.moved(
        factor * plain.drop_times,
        loss=lambda t: plain.loss(np.asarray(t, dtype=float) / factor),
        values=lambda t: plain.values(np.asarray(t, dtype=float) / factor),
    )


NO_MUON = "muon: has no theory of its times for this model and data; no fixed point changes"
RULES = {"sgd": by_descent, "momentum": by_descent, "adam": by_adam, "muon": by_muon}
