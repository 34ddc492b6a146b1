"""Separate key and query: one drop per direction, in a staircase (`theory.forecast`)."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model
from iclflow.models.reduced import Reduced
from iclflow.prediction.batches import FORCE, Batches, spread_staircase
from iclflow.prediction.decay import decayed_staircase
from iclflow.prediction.margins import (
    ASYMMETRIC,
    CLOSED,
    COARSE,
    DOUBTFUL,
    FAR_OFF,
    FEW_TASKS,
    FINE,
    HALFWAY,
    LARGE,
    LOST,
    NOT_SMALL,
    SAMPLE,
    SWAPPED,
    TIED,
    TOO_LARGE,
    TURNING,
    VECTOR_BLOCKS,
    VECTORS,
    head_shares,
    interval,
    sampled,
    widths,
)
from iclflow.prediction.optimizers import ByMuon
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.regime import Regime
from iclflow.prediction.result import Prediction
from iclflow.prediction.steps import lagging_staircase
from iclflow.system.cores import one_blas_thread
from iclflow.theory.distribution import crossing_times, drop_times
from iclflow.theory.edge import sharpness
from iclflow.theory.forecast import Unfinished, forecast
from iclflow.theory.landscape import Directions, directions, plateau_losses
from iclflow.theory.muon import muon_heads, muon_stacked
from iclflow.theory.separate import rank_optimum
from iclflow.theory.stages import DirectionStage, opening
from iclflow.theory.staircase import staircase

__all__ = ["Staircase"]


class Staircase(Regime):
    """Heads learn one direction after another."""

    sequences: ClassVar[int] = FORCE

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        """Every drop with its interval [`interval`]."""
        parts, asymmetry, sample = problem.parts, problem.asymmetry, problem.sample
        if sum(part.size for part in parts) > LARGE:
            return cls.closed(problem)
        if asymmetry > ASYMMETRIC:
            return no_times(problem, FEW_TASKS)
        try:
            with one_blas_thread():  # matrices so small that threads would only wait for each other
                fine, coarse = (forecast(problem.source, parts, share) for share in (FINE, COARSE))
        except (Unfinished, np.linalg.LinAlgError):
            return no_times(problem, LOST)
        times = fine.drop_times
        own = widths(fine, coarse)
        half = own + VECTORS * fine.leading_order + (0.0 if sample is None else sampled(sample, len(times)))
        unsettled = fine.leading_order and not parts.key.shape[1] == parts.value_rows.shape[1] == 1
        reasons = {
            NOT_SMALL: abs(fine.curve[0] - fine.levels[0]) > 0.01 * (fine.levels[0] - fine.levels[-1]),
            VECTOR_BLOCKS: fine.leading_order and not unsettled,
            SWAPPED: unsettled,
            HALFWAY: fine.halfway,
            TURNING: fine.turning,
            SAMPLE: asymmetry > 0.01,
            TIED: bool((own > DOUBTFUL / 5).any()),
        }
        return Prediction(
            levels=fine.levels,
            drop_times=times,
            heads=fine.heads,
            directions=fine.directions,
            loss=fine.loss,
            values=fine.values,
            reliable=bool((half <= DOUBTFUL).all()) and not (unsettled or fine.halfway or fine.turning),
            notes=tuple(note for note, holds in reasons.items() if holds),
            drop_intervals=interval(times, half),
            head_shares=head_shares(fine, coarse),
            method="reduced",
        )

    @classmethod
    def closed(cls, problem: Problem) -> Prediction:
        """The limit of small weights, in closed form: quick, for sizes of any kind."""
        stairs = staircase(problem.source, problem.heads.value, *problem.heads.keys_and_queries)
        times = stairs.drop_times
        if not (np.diff(times, prepend=0.0) > 0).all():
            return no_times(problem, FAR_OFF)
        return Prediction(
            stairs.levels, times, stairs.heads, stairs.directions, stairs.loss, stairs.values,
            notes=(TOO_LARGE,), drop_intervals=interval(times, np.full(len(times), CLOSED)),
        )  # fmt: skip

    @classmethod
    def decayed(cls, plain: Prediction, problem: Problem, decay: float) -> Prediction:
        return decayed_staircase(plain, problem, decay)

    @classmethod
    def by_steps(cls, plain: Prediction, flow: Prediction, problem: Problem) -> Prediction:
        return lagging_staircase(plain, flow, problem)

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
        """One drop per direction: all draws at once where theory can, the others one by one."""
        K, Q = heads.keys_and_queries
        levels = plateau_losses(task)[: K.shape[1] * K.shape[2] + 1]
        stage = opening(task)[0]
        if K.shape[2] > 1 or (isinstance(stage, DirectionStage) and stage.ties):
            times, single = np.empty((len(K), len(levels) - 1)), np.arange(len(K))
        else:
            all_at_once = drop_times(task, heads.value, K, Q)
            times, single = all_at_once.times, np.flatnonzero(~all_at_once.in_order)
        for draw in single:
            times[draw] = crossing_times(staircase(task, heads.value[draw], K[draw], Q[draw]), levels)
        return times


def no_times(problem: Problem, why: str) -> Prediction:
    """The levels alone, where no times can be given."""
    L, count = problem.landscape, problem.model.components(problem.task)
    levels = np.array([L.loss(rank_optimum(L, m)) for m in range(count + 1)])
    nothing, nobody = np.zeros(0), np.zeros(0, dtype=int)
    unknown = lambda time: np.full(len(time), np.nan)
    return Prediction(
        levels, nothing, nobody, nobody, unknown, lambda time: unknown(time)[:, None], reliable=False, notes=(why,)
    )
