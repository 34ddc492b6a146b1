"""The loss curve that theory predicts from a task and initial weights alone.

Separate attention has a staircase of drops (`theory.forecast`), merged attention and the two-layer network have one
drop (`theory.merged`). Merged attention with shared task vectors and white tokens is reduced to five numbers
(`theory.in_weight`). Given the moments of a finite sample, theory uses them instead of those of the population.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from iclflow.config import Task, Training
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput, NoTheory
from iclflow.models import Model, Weights
from iclflow.models.base import check_order
from iclflow.models.initial import initial_weights
from iclflow.models.parts import check_weights
from iclflow.prediction.asked import asked
from iclflow.prediction.margins import (
    DOUBTFUL,
    Margin,
    closed_prediction,
    depth_widths,
    drop_margin,
    interval,
    mixture_margin,
    staircase_prediction,
)
from iclflow.prediction.optimizers import optimised
from iclflow.prediction.result import Curve, Prediction, Times
from iclflow.prediction.setting import Setting
from iclflow.results.weights import fitted, read_weights
from iclflow.theory import depth, in_weight, merged
from iclflow.theory.landscape import Landscape, landscape
from iclflow.theory.minibatches import Draws
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.units import to_paper_weights

__all__ = ["Prediction", "last_drop_time", "no_theory", "predict"]


def predict(
    task: Task,
    model: Model,
    *,
    weights: Any = None,
    init: float = 1e-2,
    init_law: str = "entry",
    seed: int = 0,
    sample: SampleLandscape | None = None,
    weight_decay: int | float = 0.0,
    optimizer: str = "sgd",
    beta: int | float = 0.9,
    muon: str = "stacked",
    lr: int | float | None = None,
    batch: int | None = None,
    draws: Draws | None = None,
    freeze_vectors: bool = False,
) -> Prediction:
    """Predict loss, value weights and drop times of a training run.

    Args:
        task: the task to train on.
        model: the model to train.
        weights: initial weights, named arrays or tensors (also under the names of the public code), or `FILE[:PREFIX]`;
            by default they are drawn from `init`, `init_law` and `seed` as in `train`.
        init: scale of the initial weights.
        init_law: law of the initial weights.
        seed: seed of the initial weights.
        sample: the moments of a finite sample in the paper's units; by default those of the population.
        weight_decay: decoupled weight decay, as in `train`.
        optimizer: update rule, as in `train`; times are then on the clock of its runs.
        beta: momentum of the rule.
        muon: whether muon stacks the heads or takes each alone.
        lr: learning rate; with it, descent and momentum get the lag of finite steps.
        batch: sequences per step, for the noise of minibatches; needs `lr`.
        draws: the sequences of the sample that batches are cut from; by default every step draws fresh ones.
        freeze_vectors: whether the vector blocks, which minibatches shake too, stay where they are.

    Returns:
        Plateau levels, drop times, and the loss and value weights as functions of time.

    Raises:
        BadInput: if there is no theory for this model and task, or if the weights do not fit the model.

    >>> import iclflow as icl
    >>> icl.predict(icl.Task(), icl.Separate(heads=5), init=1e-3).levels.round(4)
    array([1.    , 0.6406, 0.3774, 0.2098, 0.136 ])
    """
    check_order(task, model)
    if weights is not None:
        given = read_weights(weights)
        weights = given.weights
        model, task = fitted(given, model, task)
    name = model.theory(task)
    if name is None:
        raise NoTheory(no_theory(task, model))
    if weights is None:
        weights = initial_weights(model, task, init_law, init, seed, covariances(task))
    weights = check_weights(model, task, weights)
    scaled = {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}
    how = Training(
        weight_decay=weight_decay, optimizer=optimizer, beta=beta, muon=muon, lr=lr, batch=batch,
        freeze_vectors=freeze_vectors,
    )  # fmt: skip
    return asked(of_training, Setting(name, task, model, scaled, sample, how, draws))


def of_training(setting: Setting) -> Prediction:
    """The prediction for the optimiser of the setting."""
    return optimised(asked(of_flow, replace(setting, training=Training(), draws=None)), setting)


def of_flow(setting: Setting) -> Prediction:
    """The prediction for plain gradient flow."""
    task = setting.task
    plain = THEORIES[setting.theory](task, setting.model, setting.weights, setting.sample)
    if task.tasks is not None and not task.symmetric:
        plain = replace(plain, reliable=False, notes=(*plain.notes, ODD_TASKS))
    return plain


def last_drop_time(task: Task, model: Model, weights: Weights) -> float | None:
    """A quick estimate of when the last drop comes, by closed theory; `None` where there is none.

    Args:
        task: the task to train on.
        model: the model to train.
        weights: initial weights.

    Raises:
        BadInput: if theory does not cover the task.
    """
    name = model.theory(task)
    if name is None:
        return None
    scaled = {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}
    return max(CLOSED[name](task, model, scaled, None).drop_times, default=None)


def no_theory(task: Task, model: Model) -> str:
    """The error message for a model and task without a theory."""
    if task.icl_fraction < 1 and model.theory(task.replace(icl_fraction=1.0)) is not None:
        return f"icl_fraction: {task.icl_fraction} has a theory only for merged attention, not {model.kind}"
    return f"model: {model.describe()} has no theory of its loss curve; compare its levels or its weights instead"


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
    vectors = any(np.any(weights[name][where]) for name, where in model.vectors(task).items())
    return single_drop(
        levels=(quadratic.base, lowest),
        half_time=half_time,
        loss=lambda times: course(np.asarray(times, dtype=float)).loss,
        values=lambda times: course(np.asarray(times, dtype=float)).value[:, None] * start.share,
        margin=drop_margin(quadratic, heads, start.alpha, vectors, half_time),
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
        margin=mixture_margin(task),
    )


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


def depth_prediction(task: Task, model: Model, weights: Weights, sample: SampleLandscape | None) -> Prediction:
    """The prediction for several layers of separate key and query: two staircases; heads count through the layers."""
    if sample is not None:
        raise BadInput("source: must be 'population' for the theory of depth")
    if task.tasks is not None:
        raise BadInput(f"tasks: {task.tasks} must not be given for the theory of depth, where every task is a new one")
    heads, basis = model.reduced(weights, task), covariances(task).basis
    key, query = (array[:, 0] @ basis for array in heads.keys_and_queries)
    settings = model.model_dump()
    per_layer, looped = settings["heads"], settings["looped"]
    rows = lambda array: array.reshape(-1, per_layer, *array.shape[1:])
    loops = settings["layers"] if looped else 1
    start = rows(heads.value), rows(key), rows(query)
    stairs, coarse = (
        depth.ladder(depth.contexts(task, draws, loops=loops), *start) for draws in (depth.DRAWS, depth.DRAWS // 4)
    )
    half = depth_widths(stairs, coarse, task.dim)
    notes = [
        "the theory of depth is for the label blocks (freeze_vectors); with all blocks trained the token stream learns"
        " too, and the later drops come at other times and end lower"
    ]
    if stairs.close:
        notes.append("two heads nearly tie for a direction; the drops behind it can be off by ten per cent or more")
    if not stairs.close and (half > DOUBTFUL).any():
        notes.append("the wait for a drop depends on small differences between contexts, so that its interval is wide")
    many = settings["layers"] > 2 and not looped and task.dim > 1
    if many:
        notes.append("with three or more layers the later drops can come at other times, outside their intervals")
    if looped:
        notes.append("looped layers: drives and levels are exact, the course of a drop between them is approximate")
    return Prediction(
        stairs.levels,
        stairs.drop_times,
        np.array([rung.layer * per_layer + rung.head for rung in stairs.rungs], dtype=int),
        np.array([rung.direction for rung in stairs.rungs], dtype=int),
        stairs.loss,
        values=lambda times: np.full((len(times), len(heads.value)), np.nan),
        reliable=not stairs.close and not many and bool((half <= DOUBTFUL).all()),
        notes=tuple(notes),
        drop_intervals=interval(stairs.drop_times, half),
    )


ODD_TASKS = (
    "The forecast is that of the label blocks, which is exact with mirror_tasks or freeze_vectors; otherwise the odd"
    " moments of the tasks train the vector blocks too (theory.task_sets.odd_drive), and drops come earlier."
)
THEORIES = {
    "staircase": staircase_prediction,
    "drop": drop_prediction,
    "mixture": mixture_prediction,
    "depth": depth_prediction,
}
CLOSED = {**THEORIES, "staircase": closed_prediction}
