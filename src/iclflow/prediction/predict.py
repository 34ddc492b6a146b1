"""The verb: the loss curve that theory predicts for a training run, before any training."""

from collections.abc import Iterator
from typing import Any

from iclflow.config import Task, Training
from iclflow.config.settings import named_optimizer, refuse_without_effect, showing_settings
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput, NoTheory
from iclflow.experiment import Setup
from iclflow.models import Model
from iclflow.models.base import check_order
from iclflow.models.initial import initial_weights
from iclflow.models.parts import check_weights
from iclflow.prediction.problem import Problem, no_theory
from iclflow.prediction.recent import recent
from iclflow.prediction.result import Prediction, Predictions
from iclflow.prediction.sample import landscape_of, sample_draws, training_sample
from iclflow.results.inputs import read_inputs
from iclflow.theory.minibatches import Draws
from iclflow.theory.separate import SampleLandscape

__all__ = ["predict", "predicted", "problems"]


@showing_settings
def predict(
    task: Task | None = None,
    model: Model | None = None,
    *,
    weights: Any = None,
    data: Any = None,
    sample: SampleLandscape | None = None,
    draws: Draws | None = None,
    training: Training | None = None,
    **settings: Any,
) -> Any:  # a Prediction, or Predictions of several seeds
    """Predict loss, value weights and drop times of a training run, for the settings of `train`.

    Without `lr` the forecast is that of gradient flow; with it, descent and momentum get the lag of finite steps, and
    batches their noise. `samples` makes the sample that `train` would draw, and the forecast is that of its moments.

    Args:
        task: the task to train on, `icl.Task()` by default.
        model: the model to train, `icl.Separate()` by default.
        weights: initial weights, named arrays or tensors (also under the names of the public code), or `FILE[:PREFIX]`;
            by default they are drawn as in `train`.
        data: your own sequences, an array (P, N+1, D+O) or an `.npz` file; sizes come from it.
        sample: the moments of a finite sample in the paper's units, in place of `samples` or `data`.
        draws: the sequences of the sample that batches are cut from.
        training: all other settings as one record; single ones can still be changed by name.

    Returns:
        A `Prediction`: plateau levels, drop times, and the loss and value weights as functions of time. Of several
        `seeds` a `Predictions`, a sequence of them that prints one table.

    Raises:
        BadInput: if there is no theory for this model and task, if the weights do not fit the model, or if a setting
            has no effect on a forecast.

    >>> import iclflow as icl
    >>> icl.predict(icl.Task(), icl.Separate(heads=5), init=1e-3).levels.round(4)
    array([1.    , 0.6406, 0.3774, 0.2098, 0.136 ])
    """
    check_order(task, model)
    given = {"weights": weights, "data": data, "sample": sample, "draws": draws, "training": training}
    asked = list(problems(task, model, **given, **settings))
    found = [predicted(problem) for problem in asked]
    return found[0] if len(found) == 1 else Predictions([problem.training.seed for problem in asked], found)


def predicted(problem: Problem) -> Prediction:
    """The prediction for a problem, by its regime."""
    return recent(problem.regime.predict, problem)


def problems(
    task: Any, model: Any, *, weights: Any = None, data: Any = None,
    sample: SampleLandscape | None = None, draws: Draws | None = None, training: Training | None = None,
    **settings: Any,
) -> Iterator[Problem]:  # fmt: skip
    """The problem of every seed, from what a user gave; settings mean what they mean to `train`."""
    settings, _ = named_optimizer(settings)
    chosen = Training(**settings) if training is None else training.replace(**settings)
    refuse_without_effect(settings)
    if sample is not None and (data is not None or "samples" in settings):
        raise BadInput("sample: brings the moments of the data; give neither data nor samples beside it")
    setup, own, start = read_inputs(task, model, chosen, data, weights, Setup)
    task, model, chosen = setup.task, setup.model, setup.training
    if model.theory(task) is None:
        raise NoTheory(no_theory(task, model))
    drawn = own is None and sample is None and not setup.population and task.icl_fraction == 1
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        one, moments, cut = chosen.replace(seed=seed, seeds=1), sample, draws
        if drawn or own is not None:
            sequences = training_sample(task, one) if own is None else own.training
            moments = landscape_of(sequences, task, model, one)
            if one.batch is not None and draws is None:
                cut = sample_draws(sequences, model.normalize(task) == "tokens")
        given = start
        if given is None:
            known = covariances(task) if own is None else own.covariances
            given = initial_weights(model, task, one.init_law, one.init, seed, known)
        yield Problem.of(task, model, one, check_weights(model, task, given), sample=moments, draws=cut)
