"""What theory predicts for the runs of a sweep, from their settings alone."""

from functools import cache

import numpy as np

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction

__all__ = ["expected_of", "expected_quantity"]


@cache
def expected_of(experiment: Experiment) -> Prediction | None:
    """What theory predicts for a run, on the population even if its sample is finite.

    `None` if there is no theory: for softmax, and for a user's own data.
    """
    training = experiment.training
    if experiment.data is not None:
        return None
    try:
        return predict(
            experiment.task, experiment.model, init=training.init, init_law=training.init_law, seed=training.seed,
            weight_decay=training.weight_decay, optimizer=training.optimizer, beta=training.beta, muon=training.muon,
            lr=None if training.optimizer == "sgd" and training.batch is None else training.lr,
            batch=training.batch if training.lr is not None else None, freeze_vectors=training.freeze_vectors,
        )  # fmt: skip
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
