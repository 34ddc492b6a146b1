"""The curve that theory expects, from a task and initial weights alone.

Which theory: separate attention has a staircase of drops (`theory.staircase`), merged attention and the two-layer
network one drop (`theory.merged`), merged attention with shared task vectors and white tokens the five-number reduction
(`theory.in_weight`). A finite sample has moments of its own; given them, theory uses these instead of the population's.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    """What theory expects of a training run; all times are t/tau."""

    levels: Float[np.ndarray, " m+1"]  # loss before the first drop and after each
    drop_times: Float[np.ndarray, " m"]  # when half of each drop is done
    heads: Int[np.ndarray, " m"]  # which head drops; -1 where all do at once
    directions: Int[np.ndarray, " m"]  # which eigen-direction (from 0) is learned; -1 where all are at once
    loss: Callable[[Times], Times]
    values: Callable[[Times], Float[np.ndarray, "T H"]]

    @property
    def end(self) -> float:
        """A time by which the last drop is well over."""
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
    """Loss, value weights and drop times that theory expects.

    Args:
        weights: initial weights; without them those that `init`, `init_law` and `seed` draw, as in `train`.
        sample: the moments of a finite sample, in the paper's units; without them the population's.

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
    """Why there is no prediction."""
    if task.icl_fraction < 1 and model.theory(task.replace(icl_fraction=1.0)) is not None:
        return f"icl_fraction: {task.icl_fraction} has a theory only for merged attention, not {model.kind}"
    return f"model: {model.describe()} has no theory of its loss curve; compare its levels or its weights instead"


def staircase_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """Separate key and query: one drop per direction."""
    heads = model.reduced(weights, task)
    stairs = staircase(task if sample is None else sample, heads.value, *heads.keys_and_queries)
    return Prediction(stairs.levels, stairs.drop_times, stairs.heads, stairs.directions, stairs.loss, stairs.values)


def drop_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """Merged attention and the two-layer network: one drop."""
    scene, heads = landscape(task) if sample is None else sample, model.reduced(weights, task)
    start = merged.alignment(scene, heads.value, heads.key_query)
    if isinstance(scene, Landscape):
        lowest = merged.lowest_loss(scene)
        course = lambda times: merged.course(scene, start.alpha, np.asarray(times, dtype=float))
        half = merged.half_time(scene, start.alpha)
    else:
        lowest = scene.loss(rank_optimum(scene, task.dim))
        course = lambda times: merged.matrix_course(scene, start.alpha, lowest, np.asarray(times, dtype=float))
        half = course(np.zeros(1)).half_time
    return single_drop(
        levels=(scene.base, lowest),
        half_time=half,
        loss=lambda times: course(times).loss,
        values=lambda times: course(times).value[:, None] * start.share,
    )


def mixture_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """Merged attention on tasks some of which are shared: five numbers."""
    dim = task.dim
    alpha = in_weight.growing_part(task, weights["value"][:, dim], weights["key_query"][:, :, :dim])
    course = lambda times: in_weight.course(task, alpha, np.asarray(times, dtype=float))
    return single_drop(
        levels=(in_weight.form(task).power, in_weight.resting_point(task).train),
        half_time=in_weight.half_time(task, alpha),
        loss=lambda times: course(times).train,
        values=lambda times: np.full((len(times), len(weights["value"])), np.nan),
    )


def single_drop(levels: tuple[float, float], half_time: float, loss: Curve, values: Curve) -> Prediction:
    nobody = np.array([-1])
    return Prediction(np.array(levels), np.array([half_time]), nobody, nobody, loss, values)


THEORIES = {"staircase": staircase_prediction, "drop": drop_prediction, "mixture": mixture_prediction}
