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
from iclflow.theory.decay import decayed_level, decayed_time, merged_course, merged_matrix, stretched_time
from iclflow.theory.landscape import Landscape, directions, landscape
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.staircase import staircase
from iclflow.units import clock_rate, to_paper_weights

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
    never: tuple[int, ...] = ()  # eigen-directions (from 0) that weight decay keeps from being learned

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
    weight_decay: float = 0.0,
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
        weight_decay: decoupled weight decay, as in `train`.

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
    plain = THEORIES[name](task, model, scaled, sample)
    if weight_decay == 0:
        return plain
    if sample is not None or name not in DECAYS:
        where = (
            "a finite sample" if sample is not None else f"the theory of {model.describe()} with shared task vectors"
        )
        raise BadInput(f"weight_decay: {weight_decay} must be 0 with {where}; use source='population'")
    return DECAYS[name](task, model, scaled, plain, weight_decay / clock_rate(task, model))


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


def decayed_staircase(task: Task, model: Model, weights: Weights, plain: Prediction, decay: float) -> Prediction:
    """The staircase with weight decay: drops come later or never, and learned directions rest at smaller strengths."""
    if model.reduced(weights, task).keys_and_queries[0].shape[1] > 1:
        raise BadInput(
            "weight_decay: must be 0 for heads of rank above 1, whose further components follow another rule"
        )
    if not (np.diff(plain.drop_times, prepend=0.0) > 0).all():
        raise BadInput(
            "weights: are too large for the theory of weight decay, whose drop times must be positive and rise"
        )
    d, times = directions(task), decayed_time(plain.drop_times, decay)
    comes = int(np.sum(np.isfinite(times)))
    held = np.array([np.isin(np.arange(task.dim), plain.directions[:m]) for m in range(comes + 1)])
    levels = np.array([decayed_level(d, learned, decay) for learned in held])
    # The loss without decay at the time that has passed there, its levels replaced by those with decay.
    before = plain.levels[: comes + 1]
    loss = lambda t: np.interp(
        plain.loss(stretched_time(np.asarray(t, dtype=float), decay)), before[::-1], levels[::-1]
    )
    values = lambda t: np.full((len(t), plain.values(np.zeros(1)).shape[1]), np.nan)
    never = tuple(int(i) for i in plain.directions[comes:])
    return Prediction(levels, times[:comes], plain.heads[:comes], plain.directions[:comes], loss, values, never)


def decayed_drop(task: Task, model: Model, weights: Weights, plain: Prediction, decay: float) -> Prediction:
    """The single drop with weight decay: slower, or none at all."""
    heads, L = model.reduced(weights, task), landscape(task)
    alpha = merged.alignment(L, heads.value, heads.key_query).alpha
    half_time = merged_course(L, alpha, decay, np.zeros(0)).half_time
    loss = lambda t: merged_course(L, alpha, decay, np.asarray(t, dtype=float)).loss
    values = lambda t: np.full((len(t), len(heads.value)), np.nan)
    if np.isinf(half_time):
        nobody = np.array([], dtype=int)
        return Prediction(plain.levels[:1], np.array([]), nobody, nobody, loss, values, tuple(range(task.dim)))
    return single_drop((L.base, L.loss(merged_matrix(L, decay))), half_time, loss, values)


def single_drop(levels: tuple[float, float], half_time: float, loss: Curve, values: Curve) -> Prediction:
    """A prediction with one drop, in which all heads learn all directions at once."""
    all_at_once = np.array([-1])
    return Prediction(np.array(levels), np.array([half_time]), all_at_once, all_at_once, loss, values)


THEORIES = {"staircase": staircase_prediction, "drop": drop_prediction, "mixture": mixture_prediction}
DECAYS = {"staircase": decayed_staircase, "drop": decayed_drop}
