"""Which engine serves an experiment, and why."""

from typing import NamedTuple

from iclflow.experiment import Setup

__all__ = ["Choice", "choose"]


class Choice(NamedTuple):
    """An engine's name says what its loss is made of; two of them, `gram` and `flow`, can follow the flow."""

    engine: str
    why: str
    flows: bool


def choose(experiment: Setup) -> Choice:
    """The engine, a sentence for the record, and whether it follows the flow instead of descending."""
    training, model = experiment.training, experiment.model
    if training.engine == "gram" or (not model.linear and experiment.on_grams):
        why = "as asked" if training.engine != "auto" else f"Gram matrices are enough for {model.describe()}"
        drawn = f"; {training.gram_samples} of them, drawn from their law, stand for the population"
        full = experiment.population and training.batch is None
        return Choice("gram", why + drawn * full, not training.descends)
    if training.engine != "auto":
        return Choice(training.engine, "as asked", training.engine == "flow")
    if not model.linear:
        return Choice("tokens", f"not a function of moments: {model.describe()}", False)
    if training.batch is not None:
        return Choice("tokens", "minibatches need the sequences themselves", False)
    if training.descends:
        return Choice("moments", "full-batch descent of a linear model needs only moments of the data", False)
    if training.time is not None:
        return Choice("flow", "a length in t/tau is given: gradient flow", True)
    return Choice("flow", "no learning rate and no steps given: gradient flow until the loss has settled", True)
