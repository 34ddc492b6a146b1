"""Which runs share their data: the key by which a plan, and all runs of a sweep, keep what they have made of them."""

from typing import Any

from iclflow.engines.choose import choose
from iclflow.experiment import Experiment

__all__ = ["data_key"]


def data_key(experiment: Experiment, engine: str | None = None) -> tuple[Any, ...]:
    """Equal for runs whose data, and all moments made of them, are the same."""
    engine = engine or choose(experiment).engine
    task, model, training = experiment.task, experiment.model, experiment.training
    seed = None
    if experiment.data is None and not experiment.population:
        seed = training.seed if training.data_seed is None else training.data_seed
    drawn = (training.gram_samples, training.data_seed)  # what stands for the population on the gram engine
    blocks = (training.freeze_vectors, training.init_law, bool(model.vectors(task)))  # which moments a model asks for
    return (
        task, experiment.data, training.samples, training.whiten, training.test_samples, seed,
        model.normalize(task), blocks, engine, training.dtype,
        drawn if engine == "gram" else None,
    )  # fmt: skip
