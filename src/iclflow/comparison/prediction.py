"""The loss curve that theory predicts from a task and initial weights alone.

Separate attention has a staircase of drops (`theory.staircase`), merged attention and the two-layer network have one
drop (`theory.merged`). Merged attention with shared task vectors and white tokens is reduced to five numbers
(`theory.in_weight`). Given the moments of a finite sample, theory uses them instead of those of the population.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.models.parts import check_weights
from iclflow.theory import in_weight, merged
from iclflow.theory.landscape import Landscape, landscape
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.staircase import staircase
from iclflow.units import to_paper_weights

__all__ = ["Prediction", "predict"]

Times = Float[np.ndarray, " T"]
Curve = Callable[[Times], np.ndarray]


@dataclass(frozen=True)
class Prediction:
    """The predicted training run; all times are t/tau."""

    levels: Float[np.ndarray, " levels"]  # loss before the first drop and after each of the m drops
    drop_times: Float[np.ndarray, " m"]  # when half of each drop is done
    heads: Int[np.ndarray, " m"]  # which head learns; -1 if all learn at once
    directions: Int[np.ndarray, " m"]  # which eigen-direction (from 0) is learned; -1 if all are learned at once
    loss: Callable[[Times], Times]
    values: Callable[[Times], Float[np.ndarray, "T H"]]

    @property
    def end(self) -> float:
        """A time well after the last drop."""
        last = self.drop_times[-1] if len(self.drop_times) else 1.0
        return 1.25 * float(last) + 1.0


def predict(
    task: Task,
    model: Model,
    *,
    weights: Weights | None = None,
    init: float = 1e-2,
    init_law: str = "entry",
    seed: int = 0,
    sample: SampleLandscape | None = None,
) -> Prediction:
    """Predict loss, value weights and drop times of a training run.

    Args:
        task: the task to train on.
        model: the model to train.
        weights: initial weights; by default they are drawn from `init`, `init_law` and `seed` as in `train`.
        init: scale of the initial weights.
        init_law: law of the initial weights.
        seed: seed of the initial weights.
        sample: the moments of a finite sample in the paper's units; by default those of the population.

    Returns:
        Plateau levels, drop times, and the loss and value weights as functions of time.

    Raises:
        BadInput: if there is no theory for this model and task, or if the weights do not fit the model.

    >>> import iclflow as icl
    >>> icl.predict(icl.Task(), icl.Separate(heads=5), init=1e-3).levels.round(4)
    array([1.    , 0.6406, 0.3774, 0.2098, 0.136 ])
    """
    name = model.theory(task)
    if name is None:
        raise BadInput(no_theory(task, model))
    if weights is None:
        weights = initial_weights(model, task, init_law, init, seed, covariances(task))
    weights = check_weights(model, task, weights)
    scaled = {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}
    return THEORIES[name](task, model, scaled, sample)


def no_theory(task: Task, model: Model) -> str:
    """The error message for a model and task without a theory."""
    if task.icl_fraction < 1 and model.theory(task.replace(icl_fraction=1.0)) is not None:
        return f"icl_fraction: {task.icl_fraction} has a theory only for merged attention, not {model.kind}"
    return f"model: {model.describe()} has no theory of its loss curve; compare its levels or its weights instead"


def staircase_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction for separate key and query: one drop per direction."""
    heads = model.reduced(weights, task)
    stairs = staircase(task if sample is None else sample, heads.value, *heads.keys_and_queries)
    return Prediction(stairs.levels, stairs.drop_times, stairs.heads, stairs.directions, stairs.loss, stairs.values)


def drop_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction for merged attention and the two-layer network: one drop."""
    heads = model.reduced(weights, task)
    quadratic = landscape(task) if sample is None else sample
    start = merged.alignment(quadratic, heads.value, heads.key_query)
    course: Callable[[Times], merged.Course | merged.MatrixCourse]
    if isinstance(quadratic, Landscape):
        course = partial(merged.course, quadratic, start.alpha)
        lowest, half_time = merged.lowest_loss(quadratic), merged.half_time(quadratic, start.alpha)
    else:
        lowest = quadratic.loss(rank_optimum(quadratic, task.dim))
        course = sample_course = partial(merged.matrix_course, quadratic, start.alpha, lowest)
        half_time = sample_course(np.zeros(1)).half_time
    return single_drop(
        levels=(quadratic.base, lowest),
        half_time=half_time,
        loss=lambda times: course(np.asarray(times, dtype=float)).loss,
        values=lambda times: course(np.asarray(times, dtype=float)).value[:, None] * start.share,
    )


def mixture_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction for merged attention when some sequences share a task vector: five numbers."""
    dim = task.dim
    alpha = in_weight.growing_part(task, weights["value"][:, dim], weights["key_query"][:, :, :dim])
    return single_drop(
        levels=(in_weight.form(task).power, in_weight.resting_point(task).train),
        half_time=in_weight.half_time(task, alpha),
        loss=lambda times: in_weight.course(task, alpha, np.asarray(times, dtype=float)).train,
        values=lambda times: np.full((len(times), len(weights["value"])), np.nan),
    )


def single_drop(levels: tuple[float, float], half_time: float, loss: Curve, values: Curve) -> Prediction:
    """A prediction with one drop, in which all heads learn all directions at once."""
    all_at_once = np.array([-1])
    return Prediction(np.array(levels), np.array([half_time]), all_at_once, all_at_once, loss, values)


THEORIES = {"staircase": staircase_prediction, "drop": drop_prediction, "mixture": mixture_prediction}
