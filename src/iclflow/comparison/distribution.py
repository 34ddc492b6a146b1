"""Drop times over initial weights: the spread that people see when they change the seed.

Reached as `icl.theory.drop_time_distribution`.
"""

import numpy as np
import xarray as xr

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.models.initial import initial_weights
from iclflow.models.parts import vectors_are_zero
from iclflow.models.reduced import Reduced
from iclflow.units import to_paper_weights

__all__ = ["drop_time_distribution"]


def drop_time_distribution(
    task: Task, model: Model, *, init: float = 1e-2, init_law: str = "entry", seeds: int = 1000, seed: int = 0
) -> xr.DataArray:
    """Predicted drop times over many initial weights.

    The races of all draws are followed side by side, as `predict` follows that of one.

    Args:
        task: the task to train on.
        model: the model to train.
        init: scale of the initial weights.
        init_law: law of the initial weights; it must leave the vector blocks at zero.
        seeds: the number of initial weights.
        seed: the first seed; the initial weights are those of `train` with seed, seed + 1, ..

    Returns:
        Times t/tau with the dimensions `seed` and `drop_number` (from 1), infinite for drops that never come. A drop is
        timed where the loss crosses the middle between two plateaus. `.quantile([.05, .5, .95], "seed")` is the spread.

    Raises:
        BadInput: if there is no theory for this model and task, or the law fills the vector blocks.

    >>> import iclflow as icl
    >>> times = icl.theory.drop_time_distribution(icl.Task(), icl.Separate(heads=5), init=1e-3, seeds=20)
    >>> times.dims, times.shape
    (('seed', 'drop_number'), (20, 4))
    """
    if seeds < 1:
        raise BadInput(f"seeds: {seeds} must be at least 1")
    regime = model.theory(task)
    weights = drawn(task, model, init, init_law, range(seed, seed + seeds)) if regime is not None else None
    times = None if regime is None or weights is None else regime.drop_times(task, weights)
    if times is None:
        raise BadInput(f"model: {model.describe()} has no theory of its drop times on this task")
    return xr.DataArray(
        times,
        dims=("seed", "drop_number"),
        coords={"seed": np.arange(seed, seed + seeds), "drop_number": np.arange(1, times.shape[1] + 1)},
        name="drop_time",
        attrs={"long_name": "time t/tau of a drop", "init": init, "init_law": init_law, "model": model.title()},
    )


def drawn(task: Task, model: Model, init: float, law: str, seeds: range) -> Reduced:
    """The reduced initial weights of all seeds, in the paper's units."""
    cov = covariances(task)
    draws = [initial_weights(model, task, law, init, number, cov) for number in seeds]
    if not vectors_are_zero(model, draws[0], task):
        raise BadInput(f"init_law: {law!r} must leave the vector blocks at zero for the theory of drop times")
    weights = {name: np.stack([draw[name] for draw in draws]) for name in draws[0]}
    return model.reduced({name: np.asarray(to_paper_weights(task, model, w)) for name, w in weights.items()}, task)
