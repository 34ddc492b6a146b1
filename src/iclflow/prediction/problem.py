"""What is asked of theory: a task, a model, a training, data and initial weights, of which each is decided once."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from iclflow.config import Task, Training
from iclflow.errors import BadInput, NoTheory
from iclflow.models import Model, Weights
from iclflow.models.reduced import Reduced
from iclflow.system.digest import digest
from iclflow.theory.equations import Layout, Parts
from iclflow.theory.landscape import Landscape, landscape
from iclflow.theory.minibatches import Draws
from iclflow.theory.race import Momentum
from iclflow.theory.separate import SampleLandscape
from iclflow.units import Clock, clock_of, to_paper_weights

if TYPE_CHECKING:
    from iclflow.prediction.regimes.regime import Regime

__all__ = ["Problem", "no_theory", "parts_of"]

UPDATES = ("optimizer", "beta", "muon", "weight_decay", "lr", "batch", "freeze_vectors")  # what a forecast depends on


@dataclass(frozen=True, eq=False)
class Problem:
    """A task, a model and a training, with initial weights, and the sample that training sees."""

    task: Task
    model: Model
    training: Training
    weights: Weights  # initial ones, in the paper's units
    sample: SampleLandscape | None = None  # of the data; None for the population
    draws: Draws | None = None  # the sequences that batches are cut from; None for fresh ones

    @classmethod
    def of(cls, task: Task, model: Model, training: Training, weights: Weights, **data: Any) -> "Problem":
        """The problem of weights as they are trained."""
        paper = {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}
        return cls(task, model, training, paper, **data)

    @cached_property
    def regime(self) -> "type[Regime]":
        """The theory of the model on this task."""
        found = self.model.theory(self.task)
        if found is None:
            raise NoTheory(no_theory(self.task, self.model))
        return found

    @property
    def source(self) -> Task | SampleLandscape:
        """Where theory takes the moments of the data from."""
        return self.task if self.sample is None else self.sample

    @cached_property
    def landscape(self) -> Landscape | SampleLandscape:
        """The loss as theory sees it, of the population or of the sample."""
        return landscape(self.task) if self.sample is None else self.sample

    @property
    def on_population(self) -> bool:
        """Whether training sees the law of the task, not a sample of it."""
        return self.sample is None

    @property
    def asymmetry(self) -> float:
        """How far the tasks of a sample are from having either sign equally often."""
        return 0.0 if self.sample is None else self.sample.asymmetry

    @property
    def drifting(self) -> bool:
        """Whether all blocks of a sample are followed, which push each other from zero."""
        return self.sample is not None and self.sample.features is not None

    @cached_property
    def heads(self) -> Reduced:
        """Every head's value weight, key and query at the start."""
        return self.model.reduced(self.weights, self.task)

    @cached_property
    def parts(self) -> Parts:
        """The same with vector blocks, where some are not zero."""
        return parts_of(self.heads, self.drifting)

    @cached_property
    def clock(self) -> Clock:
        """How long a step takes."""
        return clock_of(self.task, self.model, self.training)

    @property
    def rate(self) -> float:
        """t/tau that passes in one step of unit learning rate, without momentum."""
        return self.clock.rate

    @property
    def beta(self) -> float:
        """Momentum, as far as it changes the clock."""
        return self.clock.beta

    @property
    def decay(self) -> float:
        """Weight decay per t/tau."""
        return self.training.weight_decay / self.rate * (1 - self.beta)

    @property
    def step(self) -> float:
        """t/tau of one step on the rule's clock."""
        return self.clock.flow_time(self.lr)

    @property
    def lr(self) -> float:
        """The learning rate, where one was given."""
        if self.training.lr is None:
            raise BadInput(
                f"lr: must be given with batch = {self.training.batch}, because the noise of minibatches depends on it"
            )
        return self.training.lr

    @property
    def shrink(self) -> float:
        """The share of the weights that decay takes in one step."""
        return self.lr * self.training.weight_decay

    @property
    def pace(self) -> Momentum | None:
        """The steps, where a learning rate was given."""
        return None if self.training.lr is None else Momentum(self.lr * self.rate, self.beta, self.shrink)

    @property
    def lag_step(self) -> float:
        """The step of descent that lags as much as these steps do."""
        return 0.0 if self.pace is None else self.pace.lag

    @property
    def as_flow(self) -> "Problem":
        """The same by plain gradient flow."""
        return replace(self, training=Training(freeze_vectors=self.training.freeze_vectors), draws=None)

    @property
    def terms(self) -> frozenset[str]:
        """What a forecast has to take account of beside plain gradient flow on the population."""
        rows, labels = self.heads.value_rows, self.heads.key_labels
        asked = {
            "steps": self.training.lr is not None,
            "momentum": self.beta > 0,
            "decay": self.decay > 0,
            "batch": self.training.batch is not None,
            "sample": not self.on_population,
            "outputs": self.task.out_dim > 1,
            "tasks": self.task.tasks is not None,
            "vectors": rows is not None and labels is not None and bool(rows.any() or labels.any()),
        }
        return frozenset(name for name, holds in asked.items() if holds)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for problems with the same forecast."""
        sample = {} if self.sample is None else vars(self.sample)
        arrays = {**self.weights, **{name: array for name, array in sample.items() if array is not None}}
        parts = [(name, np.ascontiguousarray(array)) for name, array in sorted(arrays.items())]
        described = ((repr((name, array.shape, array.dtype)), array.data) for name, array in parts)
        numbers = digest(*(part for pair in described for part in pair))
        updates = tuple(getattr(self.training, name) for name in UPDATES)
        return self.task, self.model, updates, numbers


def no_theory(task: Task, model: Model) -> str:
    """The error message for a model and task without a theory."""
    if task.icl_fraction < 1 and model.theory(task.replace(icl_fraction=1.0)) is not None:
        return f"icl_fraction: {task.icl_fraction} has a theory only for merged attention, not {model.kind}"
    return f"model: {model.describe()} has no theory of its loss curve; compare its levels or its weights instead"


def parts_of(heads: Reduced, drifting: bool = False) -> Parts:
    """The initial weights as the forecast takes them; vector blocks only where some are not zero, or will not be."""
    key, query = heads.keys_and_queries
    rows, labels, blocks = heads.value_rows, heads.key_labels, heads.label_blocks
    if rows is None or labels is None or blocks is None or not (drifting or rows.any() or labels.any()):
        return Parts.plain(heads.value, key, query)
    basis = Layout(key.shape[1], key.shape[2], blocks.shape[-1], 1.0).label_basis
    return Parts(heads.value, key, query, rows, labels, np.einsum("hop,mop->hm", blocks, basis[1:]))
