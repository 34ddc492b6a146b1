"""Which engine serves an experiment, and why."""

from iclflow.experiment import Experiment

__all__ = ["choose"]


def choose(experiment: Experiment) -> tuple[str, str]:
    """The engine's name and a sentence for the record."""
    training, model = experiment.training, experiment.model
    if training.engine != "auto":
        return training.engine, "as asked"
    if not model.linear:
        return "tokens", f"not a function of moments: {model.describe()}"
    if training.batch is not None:
        return "tokens", "minibatches need the sequences themselves"
    if (
        training.lr is not None
        or training.steps is not None
        or training.optimizer != "sgd"
        or training.dtype == "float32"
    ):
        return "moments", "full-batch descent of a linear model needs only moments of the data"
    if training.time is not None:
        return "flow", "a length in t/tau is given: gradient flow"
    return "flow", "no learning rate and no steps given: gradient flow until the loss has settled"
