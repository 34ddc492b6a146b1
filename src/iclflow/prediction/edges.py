"""The largest stable learning rate on each plateau, and a warning for one that is stable only at first."""

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model
from iclflow.theory.laws.edge import first_unstable, largest_steps
from iclflow.units import clock_rate

__all__ = ["edge_warning", "stable_rates"]


def stable_rates(task: Task, model: Model, beta: float = 0.0) -> Float[np.ndarray, " plateaus"] | None:
    """The largest stable learning rate on every plateau that the model shows, on the population.

    Args:
        task: the task.
        model: the model.
        beta: momentum.

    Returns:
        One number per plateau, infinite at zero weights; `None` where theory has none (heads of rank above one,
        softmax, shared task vectors, covariances that do not commute).
    """
    regime = model.theory(task)
    sharp = None if regime is None else regime.sharpness(task, model)
    return None if sharp is None else largest_steps(sharp, beta) / clock_rate(task, model)


def edge_warning(task: Task, model: Model, lr: float, beta: float = 0.0) -> str | None:
    """Which drop makes a learning rate unstable, in a sentence; `None` if none does, or if theory does not know."""
    rates = stable_rates(task, model, beta)
    drop = None if rates is None else first_unstable(rates, lr)
    if rates is None or drop is None:
        return None
    until = f"is stable until drop {drop} and not after it" if drop > 1 else "is not stable after drop 1"
    return f"lr = {lr:.4g} {until}: the largest stable lr there is {rates[drop]:.4g}"
