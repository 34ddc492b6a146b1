"""The verb: the loss curve that theory predicts for a training run, before any training."""

from typing import Any

from iclflow.config import Task, Training
from iclflow.config.settings import showing_settings
from iclflow.models import Model
from iclflow.prediction.problem import Problem, problems
from iclflow.prediction.recent import recent
from iclflow.prediction.result import Prediction
from iclflow.theory.minibatches import Draws
from iclflow.theory.separate import SampleLandscape

__all__ = ["predict", "predicted"]


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
) -> Prediction:
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
        Plateau levels, drop times, and the loss and value weights as functions of time.

    Raises:
        BadInput: if there is no theory for this model and task, if the weights do not fit the model, or if a setting
            has no effect on a forecast.

    >>> import iclflow as icl
    >>> icl.predict(icl.Task(), icl.Separate(heads=5), init=1e-3).levels.round(4)
    array([1.    , 0.6406, 0.3774, 0.2098, 0.136 ])
    """
    given = {"weights": weights, "data": data, "sample": sample, "draws": draws, "training": training}
    found = [predicted(problem) for problem in problems(task, model, **given, **settings)]
    return found[0]


def predicted(problem: Problem) -> Prediction:
    """The prediction for a problem, by its regime."""
    return recent(problem.regime.predict, problem)
