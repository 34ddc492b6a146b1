"""Merged attention where some sequences share a task vector, on white tokens: five numbers (`theory.in_weight`)."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from iclflow.prediction.margins import mixture_margin
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.drop import single_drop
from iclflow.prediction.regimes.regime import Regime, strata
from iclflow.prediction.result import Prediction
from iclflow.theory import in_weight

__all__ = ["Mixture"]


class Mixture(Regime):
    """One drop of the loss on a mixture of new tasks and a shared one."""

    measured: ClassVar[frozenset[frozenset[str]]] = strata("", "vectors")

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        task, weights, dim = problem.task, problem.weights, problem.task.dim
        alpha = in_weight.growing_part(task, weights["value"][:, dim], weights["key_query"][:, :, :dim])
        one = single_drop(
            levels=(in_weight.form(task).power, in_weight.resting_point(task).train),
            half_time=in_weight.half_time(task, alpha),
            loss=lambda times: in_weight.course(task, alpha, np.asarray(times, dtype=float)).train,
            values=lambda times: np.full((len(times), len(weights["value"])), np.nan),
            margin=mixture_margin(task),
        )
        return replace(one, method="reduced")
