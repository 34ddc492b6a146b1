"""What theory expects of the runs of a sweep, from their settings alone."""

from functools import cache

import numpy as np

from iclflow.config import Experiment
from iclflow.errors import BadInput
from iclflow.prediction import Prediction, predict

__all__ = ["expected_of", "expected_quantity"]


@cache
def expected_of(experiment: Experiment) -> Prediction | None:
    """The prediction for a run on the population; `None` where there is no theory, as for softmax."""
    if experiment.data is not None:
        return None
    training = experiment.training
    try:
        return predict(
            experiment.task, experiment.model, init=training.init, init_law=training.init_law, seed=training.seed
        )
    except BadInput:
        return None


def expected_quantity(experiment: Experiment, name: str, slot: int | None) -> float:
    """What theory says of one quantity of a run; NaN where it says nothing."""
    found = expected_of(experiment)
    if found is None:
        return np.nan
    every = experiment.model.kind != "separate"  # one drop learns all directions at once
    known = {
        "final_loss": found.levels[-1:],
        "drops": np.array([len(found.drop_times)]),
        "components": np.array([experiment.task.dim if every else len(found.drop_times)]),
        "drop_times": found.drop_times,
        "plateau_losses": found.levels,
    }.get(name, np.array([]))
    place = slot or 0
    return float(known[place]) if place < len(known) else np.nan
