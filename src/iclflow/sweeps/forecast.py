"""What theory expects of the runs of a sweep, from their settings alone."""

from functools import cache

import numpy as np

from iclflow.comparison.prediction import Prediction, predict
from iclflow.errors import BadInput
from iclflow.experiment import Experiment

__all__ = ["expected_of", "expected_quantity"]


@cache
def expected_of(experiment: Experiment) -> Prediction | None:
    """What theory expects of a run, on the population even where its sample is finite.

    `None` where there is no theory: for softmax, for a user's own data, for any rule but plain descent.
    """
    training = experiment.training
    if experiment.data is not None or training.optimizer != "sgd":
        return None
    try:
        return predict(
            experiment.task, experiment.model, init=training.init, init_law=training.init_law, seed=training.seed
        )
    except BadInput:
        return None


def components(experiment: Experiment, found: Prediction) -> int:
    """Directions that are learned in the end: all at once without a rank, else no more than the heads have room for."""
    most = experiment.model.components(experiment.task)
    return min(len(found.drop_times), most) if experiment.model.one_by_one else most


def expected_quantity(experiment: Experiment, name: str, slot: int | None) -> float:
    """What theory says of one quantity of a run; NaN where it says nothing."""
    found = expected_of(experiment)
    if found is None:
        return np.nan
    known = {
        "final_loss": found.levels[-1:],
        "drops": np.array([len(found.drop_times)]),
        "components": np.array([components(experiment, found)]),
        "drop_times": found.drop_times,
        "plateau_losses": found.levels,
    }.get(name, np.array([]))
    place = slot or 0
    return float(known[place]) if place < len(known) else np.nan
