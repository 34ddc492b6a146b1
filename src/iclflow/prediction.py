"""The curve that theory expects, from a task and initial weights alone.

Which theory: separate attention has a staircase of drops (`theory.staircase`), merged attention and the two-layer
network one drop (`theory.merged`), merged attention with shared task vectors and white tokens the five-number reduction
(`theory.in_weight`). A finite sample has moments of its own; given them, theory uses these instead of the population's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Model, Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Weights, check_weights
from iclflow.models.initial import initial_weights
from iclflow.theory import in_weight, merged
from iclflow.theory.landscape import Landscape, landscape
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.staircase import staircase
from iclflow.units import to_paper_weights

__all__ = ["Prediction", "predict"]

Times = Float[np.ndarray, " T"]


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
    if model.softmax:
        raise BadInput("softmax: has no closed theory of its curve; `theory.softmax` holds what is known")
    if weights is None:
        cov = covariances(task)
        drive = cov.token @ cov.task @ cov.token
        weights = initial_weights(model, task.dim, task.out_dim, init_law, init, seed, cov.basis, drive)
    weights = check_weights(model, task, weights)
    if task.icl_fraction < 1:
        return in_weight_prediction(task, model, weights)
    scaled = {name: to_paper_weights(task, model, array) for name, array in weights.items()}
    source = sample if sample is not None else task
    if model.kind == "separate":
        return staircase_prediction(source, scaled, task)
    if sample is None:
        return drop_prediction(landscape(task), scaled, task)
    return sample_drop_prediction(sample, scaled, task)


def label_values(weights: Weights, task: Task) -> Float[np.ndarray, " H"]:
    """tr V_h / sqrt(O), the part of a head's value block that grows."""
    if "second" in weights:
        return weights["second"][0]
    block = weights["value"][:, task.dim :, task.dim :]
    return np.trace(block, axis1=1, axis2=2) / np.sqrt(task.out_dim)


def staircase_prediction(source: Task | SampleLandscape, weights: Weights, task: Task) -> Prediction:
    key, query = weights["key"][:, :, : task.dim], weights["query"][:, :, : task.dim]
    stairs = staircase(source, label_values(weights, task), key, query)
    return Prediction(stairs.levels, stairs.drop_times, stairs.heads, stairs.directions, stairs.loss, stairs.values)


def key_query_matrices(weights: Weights, task: Task) -> Float[np.ndarray, "H D D"]:
    dim = task.dim
    return weights["first"].reshape(-1, dim, dim) if "first" in weights else weights["key_query"][:, :dim, :dim]


def drop_prediction(scene: Landscape, weights: Weights, task: Task) -> Prediction:
    start = merged.alignment(scene, label_values(weights, task), key_query_matrices(weights, task))
    course = lambda times: merged.course(scene, start.alpha, np.asarray(times, dtype=float))
    return Prediction(
        levels=np.array([scene.base, merged.lowest_loss(scene)]),
        drop_times=np.array([merged.half_time(scene, start.alpha)]),
        heads=np.array([-1]),
        directions=np.array([-1]),
        loss=lambda times: course(times).loss,
        values=lambda times: course(times).value[:, None] * start.share,
    )


def sample_drop_prediction(sample: SampleLandscape, weights: Weights, task: Task) -> Prediction:
    start = merged.alignment(sample, label_values(weights, task), key_query_matrices(weights, task))
    lowest = sample.loss(rank_optimum(sample, task.dim))
    course = lambda times: merged.matrix_course(sample, start.alpha, lowest, np.asarray(times, dtype=float))
    return Prediction(
        levels=np.array([sample.base, lowest]),
        drop_times=np.array([course(np.zeros(1)).half_time]),
        heads=np.array([-1]),
        directions=np.array([-1]),
        loss=lambda times: course(times).loss,
        values=lambda times: course(times).value[:, None] * start.share,
    )


def in_weight_prediction(task: Task, model: Model, weights: Weights) -> Prediction:
    if model.kind != "merged":
        raise BadInput(f"icl_fraction: {task.icl_fraction} has a theory only for merged attention, not {model.kind}")
    dim = task.dim
    scaled = {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}
    alpha = in_weight.growing_part(task, scaled["value"][:, dim], scaled["key_query"][:, :, :dim])
    course = lambda times: in_weight.course(task, alpha, np.asarray(times, dtype=float))
    rest = in_weight.resting_point(task)
    return Prediction(
        levels=np.array([in_weight.form(task).power, rest.train]),
        drop_times=np.array([in_weight.half_time(task, alpha)]),
        heads=np.array([-1]),
        directions=np.array([-1]),
        loss=lambda times: course(times).train,
        values=lambda times: np.full((len(times), len(scaled["value"])), np.nan),
    )
