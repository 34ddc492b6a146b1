"""What a prediction is for."""

from dataclasses import dataclass

from iclflow.config import Task, Training
from iclflow.models import Model, Weights
from iclflow.theory.minibatches import Draws
from iclflow.theory.separate import SampleLandscape
from iclflow.units import clock_rate

__all__ = ["Setting"]


@dataclass(frozen=True)
class Setting:
    """What a prediction is for: the theory by name, its inputs, and how the weights are updated."""

    theory: str
    task: Task
    model: Model
    weights: Weights  # in the paper's units
    sample: SampleLandscape | None
    training: Training  # its optimiser, momentum, decay, learning rate and batch
    draws: Draws | None = None  # the sequences of a sample that batches are cut from

    @property
    def beta(self) -> float:
        """Momentum, as far as it changes the clock."""
        return self.training.beta if self.training.optimizer == "momentum" else 0.0

    @property
    def rate(self) -> float:
        """t/tau that passes in one step of unit learning rate, without momentum."""
        return clock_rate(self.task, self.model)
