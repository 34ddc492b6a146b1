"""What every regime of theory offers, and what it says where it has no theory."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.models.reduced import Reduced
from iclflow.prediction.batches import Batches, with_batches
from iclflow.prediction.optimizers import NO_MUON, ByMuon, with_optimizer
from iclflow.prediction.problem import Problem
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import Directions

__all__ = ["Regime", "strata"]

ODD_TASKS = (
    "The forecast is that of the label blocks, which is exact with mirror_tasks or freeze_vectors; otherwise the odd"
    " moments of the tasks train the vector blocks too (theory.task_sets.odd_drive), and drops come earlier."
)


UNMEASURED = (
    "For this combination of settings no coverage of 95 % was measured, so the intervals are not called reliable."
)


def strata(*terms: str) -> frozenset[frozenset[str]]:
    """Combinations of terms (`Problem.terms`), each written with blanks."""
    return frozenset(frozenset(each.split()) for each in terms)


class Regime:
    """How theory predicts the training of one kind of model. Subclass it, and return the class from `Model.theory`.

    Only `flow` or `descent` is needed; what else a regime has no theory of is said in a note, or refused.
    """

    quick: ClassVar[bool] = False  # whether a forecast takes milliseconds
    measured: ClassVar[frozenset[frozenset[str]]] = frozenset()  # terms whose coverage `benchmarks.forecasts` measures
    sequences: ClassVar[int] = 0  # that the noise of minibatches is averaged over; 0 where there is no theory of it

    @classmethod
    def predict(cls, problem: Problem) -> Prediction:
        """The prediction for a problem."""
        task = problem.task
        try:
            if problem.on_population and np.linalg.matrix_rank(covariances(task).token) < task.dim:
                raise np.linalg.LinAlgError
            changed = with_batches(with_optimizer(problem), problem)
        except np.linalg.LinAlgError:
            raise BadInput(
                "spectrum: must have full rank for a forecast; these data do not span all directions"
            ) from None
        if changed.reliable and problem.terms not in cls.measured:
            changed = replace(changed.noted(UNMEASURED), reliable=False)
        odd = task.tasks is not None and not task.symmetric and not problem.training.freeze_vectors
        return replace(changed.noted(ODD_TASKS), reliable=False) if odd else changed

    @classmethod
    def descent(cls, problem: Problem) -> Prediction:
        """The prediction for gradient flow, descent or momentum, with weight decay.

        By default there is none of decay, and finite steps count as none.
        """
        if problem.decay > 0:
            where = f"the theory of {problem.model.describe()}"
            where += " with shared task vectors" if problem.task.icl_fraction < 1 else ""
            raise BadInput(f"weight_decay: {problem.training.weight_decay} must be 0 with {where}")
        found = cls.flow(problem)
        return found if problem.training.lr is None else found.noted("the lag of finite steps is left out")

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        """The prediction for plain gradient flow."""
        raise NotImplementedError

    @classmethod
    def with_noise(cls, plain: Prediction, problem: Problem, batches: Batches) -> Prediction:
        """Drops at the times and with the spread that the noise of minibatches gives them."""
        raise NotImplementedError

    @classmethod
    def by_muon(cls, problem: Problem, d: Directions, unit: float) -> ByMuon | str:
        """The course of Muon, with what else changes; or why there is none."""
        return NO_MUON

    @classmethod
    def sharpness(cls, task: Task, model: Model) -> Float[np.ndarray, " plateaus"] | None:
        """The sharpness of every plateau that the model shows, on the population."""
        return None

    @classmethod
    def drop_times(cls, task: Task, heads: Reduced) -> Float[np.ndarray, "S m"] | None:
        """The drop times of many initial weights at once."""
        return None

    @classmethod
    def minimum(cls, task: Task, model: Model) -> float | None:
        """The lowest loss, where it is not one of the plateau losses of one layer."""
        return None
