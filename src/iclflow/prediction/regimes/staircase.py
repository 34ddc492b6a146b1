"""Separate key and query: one drop per direction, in a staircase (`theory.forecast`)."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model
from iclflow.models.reduced import Reduced
from iclflow.prediction.batches import FORCE, Batches, spread_staircase
from iclflow.prediction.margins import (
    ASYMMETRIC,
    BEYOND_EDGE,
    COARSE,
    FEW_TASKS,
    FINE,
    LOST,
    TOGETHER,
    WIDE,
    head_shares,
    interval,
    staircase_margin,
    takes_steps,
    widths,
)
from iclflow.prediction.optimizers import ByMuon
from iclflow.prediction.problem import Problem, parts_of
from iclflow.prediction.regimes.regime import Regime, strata
from iclflow.prediction.result import Prediction
from iclflow.system.cores import one_blas_thread
from iclflow.theory.equations import Parts
from iclflow.theory.forecast import Forecast, forecast, stepped
from iclflow.theory.landscape import Directions, Landscape, component_count, directions
from iclflow.theory.laws.edge import sharpness
from iclflow.theory.laws.muon import muon_heads, muon_stacked
from iclflow.theory.race import Accuracy, Unfinished
from iclflow.theory.separate import SampleLandscape, rank_optimum

__all__ = ["Staircase"]


class Staircase(Regime):
    """Heads learn one direction after another."""

    sequences: ClassVar[int] = FORCE
    measured: ClassVar[frozenset[frozenset[str]]] = strata(
        *("", "vectors", "outputs", "outputs vectors", "tasks", "decay", "sample"),
        *("steps", "steps vectors", "steps sample", "steps tasks", "steps decay"),
        *("steps momentum", "steps momentum decay"),
    )

    @classmethod
    def descent(cls, problem: Problem) -> Prediction:
        """Every drop with its interval [`interval`], by flow, descent or momentum, with weight decay."""
        if problem.asymmetry > ASYMMETRIC and not problem.drifting:
            return no_times(problem, FEW_TASKS)
        with one_blas_thread():  # matrices so small that threads would only wait for each other
            try:
                fine, coarse = stepped_race(problem) if takes_steps(problem) else plain_race(problem)
            except (Unfinished, np.linalg.LinAlgError):
                return no_times(problem, LOST)
        if fine is None or coarse is None:
            return no_times(problem, BEYOND_EDGE)
        margin = staircase_margin(problem, fine, coarse)
        return Prediction(
            levels=fine.levels,
            drop_times=fine.drop_times,
            heads=fine.heads,
            directions=fine.directions,
            loss=fine.loss,
            values=fine.values,
            never=never_learned(problem, fine) if problem.decay > 0 else (),
            reliable=margin.reliable,
            notes=margin.notes,
            drop_intervals=interval(fine.drop_times, margin.half),
            head_shares=head_shares(fine, coarse),
            method="reduced",
        )

    @classmethod
    def with_noise(cls, plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
        return spread_staircase(plain, problem, batches)

    @classmethod
    def by_muon(cls, problem: Problem, d: Directions, unit: float) -> ByMuon | str:
        """Heads of rank one: stacked they hold all directions at once, else the first one together."""
        task, model, decay = problem.task, problem.model, problem.training.weight_decay / unit
        if problem.heads.keys_and_queries[0].shape[1] > 1:
            return super().by_muon(problem, d, unit)
        if problem.training.muon != "stacked":
            note = "muon: all heads learn the first direction together; what follows has no theory"
            return ByMuon(muon_heads(d, model.head_count(task), decay), note, drops=1)
        if model.components(task) < task.dim:
            return "muon: its theory needs heads enough to hold all directions"
        return ByMuon(muon_stacked(d, decay))

    @classmethod
    def sharpness(cls, task: Task, model: Model) -> Float[np.ndarray, " plateaus"] | None:
        d = directions(task)
        return sharpness(d, model.head_count(task)) if model.shapes(task)["key"][-2] == 1 and d.commuting else None

    @classmethod
    def drop_times(cls, task: Task, heads: Reduced) -> Float[np.ndarray, "S m"]:
        """One drop per direction, many draws side by side."""
        count = min(heads.value.shape[-1] * heads.keys_and_queries[0].shape[-2], component_count(task))
        draw = lambda n: Reduced(*(None if part is None else part[n] for part in heads))  # type: ignore[arg-type]
        starts = [parts_of(draw(n)) for n in range(len(heads.value))]
        times = np.full((len(starts), count), np.inf)
        with one_blas_thread():
            for begin in range(0, len(starts), SIDE_BY_SIDE):
                pairs = race_pairs(task, starts[begin : begin + SIDE_BY_SIDE])
                for row, (fine, _) in zip(times[begin:], pairs, strict=False):
                    if fine is not None:  # where heads have turned, the smallest drops are those on the way
                        largest = np.sort(np.argsort(np.diff(fine.levels))[:count])
                        row[: len(largest)] = fine.drop_times[largest]
        return times


SIDE_BY_SIDE = 100  # draws whose races are followed together


Pair = tuple[Forecast | None, Forecast | None]


def race_pairs(source: Task | SampleLandscape, starts: list[Parts], **terms: float) -> list[Pair]:
    """A fine and a coarse forecast from every start, side by side; where they are far apart, heads stay together."""

    def race(starts: list[Parts], pair: tuple[Accuracy, Accuracy]) -> list[Pair]:
        found = forecast(source, [start for start in starts for _ in range(2)], pair * len(starts), **terms)
        return list(zip(found[::2], found[1::2], strict=True))

    pairs = race(starts, (FINE, COARSE))
    return [pair if sure(*pair) else race([start], TOGETHER)[0] for start, pair in zip(starts, pairs, strict=True)]


def sure(fine: Forecast | None, coarse: Forecast | None) -> bool:
    """Whether it makes no difference that heads at rest have left, or none has."""
    if fine is None or coarse is None:
        return False
    return fine.together or not (fine.turning or (widths(fine, coarse) > WIDE).any())


def plain_race(problem: Problem) -> Pair:
    """A fine and a coarse forecast by the flow, with decay and the field of finite steps."""
    delay = 0.0 if problem.pace is None else problem.pace.delay
    terms = {"decay": problem.decay, "step": problem.lag_step, "delay": delay}
    [(fine, coarse)] = race_pairs(problem.source, [problem.parts], **terms)
    if fine is None or coarse is None:
        raise Unfinished
    return fine, coarse


def stepped_race(problem: Problem) -> Pair:
    """The same by the steps themselves; `None` where they diverge."""
    assert problem.pace is not None
    fine, coarse = (stepped(problem.source, problem.parts, accuracy, problem.pace) for accuracy in (FINE, COARSE))
    return fine, coarse


def never_learned(problem: Problem, found: Forecast) -> tuple[int, ...]:
    """The directions that weight decay keeps from being learned, of those that the heads could hold."""
    L = problem.landscape
    driven = int(np.linalg.matrix_rank(L.cross, rtol=1e-12))
    order = directions(problem.task).order if isinstance(L, Landscape) else np.arange(driven)
    left = [int(i) for i in order[:driven] if i not in set(found.directions)]
    return tuple(left[: problem.model.components(problem.task) - len(found.directions)])


def no_times(problem: Problem, why: str) -> Prediction:
    """The levels alone, where no times can be given."""
    L, count = problem.landscape, problem.model.components(problem.task)
    levels = np.array([L.loss(rank_optimum(L, m)) for m in range(count + 1)])
    nothing, nobody = np.zeros(0), np.zeros(0, dtype=int)
    unknown = lambda time: np.full(len(time), np.nan)
    return Prediction(
        levels, nothing, nobody, nobody, unknown, lambda time: unknown(time)[:, None], reliable=False, notes=(why,)
    )
