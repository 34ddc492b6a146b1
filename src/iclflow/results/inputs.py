"""What the user gave, read once: sequences, weights and settings that must agree with each other."""

from pathlib import Path
from typing import Any, NamedTuple

from iclflow.config import Task, Training
from iclflow.data.own import OwnData, agreed_task, read_own_data
from iclflow.errors import BadInput
from iclflow.experiment import Experiment, Setup
from iclflow.models import Model, Separate, Weights
from iclflow.models.base import import_model
from iclflow.models.parts import check_weights
from iclflow.results.weights import GivenWeights, fitted, infer_model, read_weights

__all__ = ["Inputs", "inputs_from_flat", "read_inputs"]


class Inputs(NamedTuple):
    """An experiment with the sizes of its files, and what was in them."""

    experiment: Any  # an `Experiment`, or the `Setup` that was asked for
    own: OwnData | None
    weights: Weights | None


def read_inputs(
    task: Task | None,
    model: Model | None,
    training: Training,
    data: Any = None,
    weights: Any = None,
    record: type[Setup] = Experiment,
) -> Inputs:
    """Read data and weights, and fit task and model to their sizes; a contradiction is refused in one line."""
    own = None
    if data is not None:
        known = isinstance(data, OwnData)  # was read before
        own, task = (data, agreed_task(task, data.sizes)) if known else read_own_data(data, task)
    if weights is not None and not isinstance(weights, GivenWeights):
        weights = read_weights(weights)
    if weights is not None:
        model, task = fitted(weights, model, task)
    source = None if data is None else str(data) if isinstance(data, str | Path) else "array"
    experiment = record(task=task or Task(), model=model or Separate(), training=training, data=source)
    if weights is None:
        return Inputs(experiment, own, None)
    start = check_weights(experiment.model, experiment.task, weights.weights)
    refuse_idle_seeds(experiment)
    decay = experiment.training.weight_decay
    if decay > 0 and not any(array.any() for array in start.values()):
        raise BadInput(f"weight_decay: {decay} must be 0 with weights that are all zero, which leave nothing to decay")
    return Inputs(experiment, own, start)


def inputs_from_flat(settings: dict[str, Any], weights: Any = None) -> Inputs:
    """The same from settings under their flat names, as the command line has them."""
    settings, data = dict(settings), settings.get("data")
    if weights is not None:
        weights = read_weights(weights)
        settings.setdefault("model", infer_model(weights.weights).kind)
    record = import_model(str(settings.get("model", Separate.kind)))
    # With a data file sizes are not known yet: a rank is only compared with dim once they are.
    Experiment.from_flat({k: v for k, v in settings.items() if not (data is not None and k == "rank")}, record)
    pick = lambda of: {name: value for name, value in settings.items() if name in of.model_fields}
    task = Task(**pick(Task)) if pick(Task) else None
    return read_inputs(task, record(**pick(record)), Training(**pick(Training)), data, weights)


def refuse_idle_seeds(experiment: Setup) -> None:
    training = experiment.training
    seeds, fixed = training.seeds, training.data_seed is not None
    same = training.batch is None and (experiment.data is not None or experiment.population)
    if seeds > 1 and (fixed or same):  # minibatches are drawn anew for every seed
        raise BadInput(f"seeds: {seeds} must be 1 with given weights and fixed data, which leave nothing to draw")
