"""Merged attention and the two-layer network: one drop, in which all heads learn all directions at once."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.models.reduced import Reduced
from iclflow.prediction.batches import GROWTH, Batches, grown_drop
from iclflow.prediction.margins import BEYOND_EDGE, DOUBTFUL, Margin, drop_margin, interval
from iclflow.prediction.optimizers import ByMuon
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.regime import Regime, strata
from iclflow.prediction.result import Curve, Prediction, Times
from iclflow.theory import merged
from iclflow.theory.landscape import Directions, landscape
from iclflow.theory.laws.edge import merged_sharpness
from iclflow.theory.laws.momentum import merged_steps
from iclflow.theory.laws.muon import muon_merged
from iclflow.theory.separate import rank_optimum
from iclflow.theory.solve import solve

__all__ = ["Drop", "single_drop"]

POINTS = 24  # sizes of initial weights at which the half time is integrated, for many draws at once


class Drop(Regime):
    """All directions are learned at once (`theory.merged`)."""

    quick: ClassVar[bool] = True
    sequences: ClassVar[int] = GROWTH
    measured: ClassVar[frozenset[frozenset[str]]] = strata(
        "", "vectors", "outputs", "decay", "steps", "steps momentum", "steps sample"
    )

    @classmethod
    def descent(cls, problem: Problem) -> Prediction:
        flow, training = cls.flow(problem), problem.training
        noisy = training.batch is not None and problem.beta == 0 and training.weight_decay == 0
        if training.lr is None or noisy or not len(flow.drop_times):  # the growth with noise has the lag of steps
            return flow
        L, heads = problem.landscape, problem.heads
        alpha = merged.alignment(L, heads.value, heads.key_query).alpha
        step = training.lr * problem.rate
        course = merged_steps(L, alpha, float(flow.levels[-1]), step, problem.beta, problem.shrink)
        if course.diverged:
            return replace(flow.noted(BEYOND_EDGE).levels_alone, reliable=False)
        if not len(course.time):
            return flow
        half = flow.drop_intervals[:, 1] / flow.drop_times - 1 + problem.step / course.half_time  # it is seen to a step
        return flow.moved(
            np.array([course.half_time]),
            drop_intervals=interval(np.array([course.half_time]), half),
            loss=lambda t: np.interp(t, course.time, course.loss),
            values=flow.unknown_values,
            method="reduced",
        )

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        """With weight decay; all heads are collinear after a short time (`theory.collinear`)."""
        heads, L, decay = problem.heads, problem.landscape, problem.decay
        start, modes = merged.alignment(L, heads.value, heads.key_query), merged.modes(L, decay)
        lowest = float(modes.loss(modes.rest())) if decay > 0 else float(L.loss(rank_optimum(L, problem.task.dim)))
        if not start.alpha > 0:
            raise BadInput("weights: no part of them grows, so that no drop comes; draw others, or more heads")
        half_time = merged.half_time(L, start.alpha, decay)
        blocks = problem.model.vectors(problem.task).items()
        vectors = any(np.any(problem.weights[name][where]) for name, where in blocks)

        def states(at: Times) -> Float[np.ndarray, "T n"]:
            at = np.asarray(at, dtype=float)
            return solve(modes, modes.start(start.alpha), max(float(at.max(initial=0.0)), 1e-12)).at(at)

        found = single_drop(
            levels=(L.base, lowest),
            half_time=half_time,
            loss=lambda at: modes.loss(states(at)),
            values=lambda at: np.exp(states(at)[:, :1]) * start.share,
            margin=drop_margin(L, heads, start.alpha, vectors, half_time),
        )
        return found if np.isfinite(half_time) else replace(found, never=tuple(range(problem.task.dim)))

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
    """A prediction with one drop, in which all heads learn all directions at once; without it, if it never comes."""
    comes = int(np.isfinite(half_time))
    times, all_at_once = np.array([half_time])[:comes], np.array([-1])[:comes]
    return Prediction(
        levels=np.array(levels[: comes + 1]),
        drop_times=times,
        heads=all_at_once,
        directions=all_at_once,
        loss=loss,
        values=values,
        reliable=margin.reliable and bool((margin.half <= DOUBTFUL).all()),
        notes=margin.notes,
        drop_intervals=interval(times, margin.half[:comes]),
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
