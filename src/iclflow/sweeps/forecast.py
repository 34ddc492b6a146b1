"""What theory predicts for the runs of a sweep, from their settings alone."""

import math

import numpy as np

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction

__all__ = ["expected_of", "expected_quantity"]


def expected_of(experiment: Experiment) -> Prediction | None:
    """What theory predicts for a run with its training, on the population even if its sample is finite.

    `None` without a theory: for softmax, for a user's own data, and for an own model whose class is not known here.
    Without `lr` the noise of batches is not known.
    """
    training = experiment.training.replace(samples=math.inf, seeds=1)
    if training.lr is None:
        training = training.replace(batch=None)
    try:
        return None if experiment.data else predict(experiment.task, experiment.model, training=training)
    except BadInput:
        return None


def components(experiment: Experiment, prediction: Prediction) -> int:
    """The number of directions learned in the end: one per drop, up to the number that the heads can hold.

    A model that learns all directions at once holds as many as it can.
    """
    most = experiment.model.components(experiment.task)
    return min(len(prediction.levels) - 1, most) if experiment.model.one_by_one else most


def expected_quantity(experiment: Experiment, name: str, slot: int | None) -> float:
    """The predicted value of one quantity of a run; NaN if theory does not predict it."""
    prediction = expected_of(experiment)
    if prediction is None:
        return np.nan
    values = {
        "final_loss": prediction.levels[-1:],
        "drops": np.array([len(prediction.levels) - 1]),
        "components": np.array([components(experiment, prediction)]),
        "drop_times": prediction.drop_times,
        "plateau_losses": prediction.levels,
    }.get(name, np.array([]))
    index = slot or 0
    return float(values[index]) if index < len(values) else np.nan
