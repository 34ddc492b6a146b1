"""Merged attention and the two-layer network: one drop, in which all heads learn all directions at once."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.models.reduced import Reduced
from iclflow.prediction.batches import GROWTH, Batches, grown_drop
from iclflow.prediction.decay import decayed_drop
from iclflow.prediction.margins import DOUBTFUL, Margin, drop_margin, interval
from iclflow.prediction.optimizers import ByMuon
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.regime import Regime
from iclflow.prediction.result import Curve, Prediction, Times
from iclflow.prediction.steps import lagging_drop
from iclflow.theory import merged
from iclflow.theory.edge import merged_sharpness
from iclflow.theory.landscape import Directions, Landscape, landscape
from iclflow.theory.muon import muon_merged
from iclflow.theory.separate import rank_optimum

__all__ = ["Drop", "single_drop"]

POINTS = 24  # sizes of initial weights at which the half time is integrated, for many draws at once


class Drop(Regime):
    """All directions are learned at once (`theory.merged`)."""

    quick: ClassVar[bool] = True
    sequences: ClassVar[int] = GROWTH

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        heads, L = problem.heads, problem.landscape
        start = merged.alignment(L, heads.value, heads.key_query)
        if start.alpha <= 0:
            raise BadInput("weights: no part of them grows, so that no drop comes; draw others, or more heads")
        course: Callable[[Times], merged.Course | merged.MatrixCourse]
        if isinstance(L, Landscape):
            course = partial(merged.course, L, start.alpha)
            lowest, half_time = merged.lowest_loss(L), merged.half_time(L, start.alpha)
        else:
            lowest = L.loss(rank_optimum(L, problem.task.dim))
            course = sample_course = partial(merged.matrix_course, L, start.alpha, lowest)
            half_time = sample_course(np.zeros(1)).half_time
        blocks = problem.model.vectors(problem.task).items()
        vectors = any(np.any(problem.weights[name][where]) for name, where in blocks)
        return single_drop(
            levels=(L.base, lowest),
            half_time=half_time,
            loss=lambda times: course(np.asarray(times, dtype=float)).loss,
            values=lambda times: course(np.asarray(times, dtype=float)).value[:, None] * start.share,
            margin=drop_margin(L, heads, start.alpha, vectors, half_time),
        )

    @classmethod
    def decayed(cls, plain: Prediction, problem: Problem, decay: float) -> Prediction:
        return decayed_drop(plain, problem, decay)

    @classmethod
    def by_steps(cls, plain: Prediction, flow: Prediction, problem: Problem) -> Prediction:
        training = problem.training
        if training.batch is not None and problem.beta == 0 and training.weight_decay == 0:
            return flow  # the growth with noise has it
        return lagging_drop(plain, flow, problem)

    @classmethod
    def with_noise(cls, plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
        return grown_drop(plain, problem, batches)

    @classmethod
    def by_muon(cls, problem: Problem, d: Directions, unit: float) -> ByMuon | str:
        if "value" not in problem.weights:
            return super().by_muon(problem, d, unit)
        count = 1 if problem.training.muon == "stacked" else growing_heads(problem, unit)
        return ByMuon(muon_merged(d, count, problem.training.weight_decay / unit))

    @classmethod
    def sharpness(cls, task: Task, model: Model) -> Float[np.ndarray, " plateaus"]:
        return np.array([0.0, merged_sharpness(landscape(task))])

    @classmethod
    def drop_times(cls, task: Task, heads: Reduced) -> Float[np.ndarray, "S 1"]:
        r"""The half time is a smooth function of the growing part $\alpha$ of the initial weights."""
        L = landscape(task)
        pairs = zip(heads.value, heads.key_query, strict=True)
        alpha = np.log([merged.alignment(L, v, U).alpha for v, U in pairs])
        middle, half = (alpha.max() + alpha.min()) / 2, max((alpha.max() - alpha.min()) / 2, 1e-6)
        x = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
        known = [merged.half_time(L, float(np.exp(middle + half * node))) for node in x]
        curve = np.polynomial.chebyshev.Chebyshev.fit(x, known, POINTS // 2, domain=[-1, 1])
        return np.asarray(curve((alpha - middle) / half))[:, None]


def single_drop(
    levels: tuple[float, float], half_time: float, loss: Curve, values: Curve, margin: Margin
) -> Prediction:
    """A prediction with one drop, in which all heads learn all directions at once."""
    all_at_once, times = np.array([-1]), np.array([half_time])
    return Prediction(
        levels=np.array(levels),
        drop_times=times,
        heads=all_at_once,
        directions=all_at_once,
        loss=loss,
        values=values,
        reliable=margin.reliable and margin.half <= DOUBTFUL,
        notes=margin.notes,
        drop_intervals=interval(times, np.array([margin.half])),
    )


def growing_heads(problem: Problem, unit: float) -> int:
    """How many heads grow one by one under Muon: of those whose factors differ in sign, none by large steps.

    Steps above the initial weights flip both factors of such a head at once, again and again.
    """
    heads, lr = problem.heads, problem.training.lr
    large = max(float(np.abs(array).max()) for array in problem.weights.values())
    if lr is None or lr * unit <= large:
        return len(heads.value)
    force = np.einsum("hij,ij->h", heads.key_query, landscape(problem.task).cross)
    return int(np.sum(heads.value * force > 0))
