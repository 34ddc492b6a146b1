"""What all seeds of an experiment share: engine, clock and data, each made when it is first asked for."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
import optax

from iclflow.config import Task, Training
from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.own import OwnData
from iclflow.data.population import population_moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TEST_ICL, TEST_IWL, TRAIN, Given, Law, Sample, Sequences, as_array
from iclflow.data.spectrum import Covariances, covariances
from iclflow.engines.choose import choose
from iclflow.engines.minimum import lowest_loss
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.optimizers import Rule, rule_of
from iclflow.engines.token_loss import TokenLoss, check_predict
from iclflow.experiment import Experiment
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.models.parts import take, vector_mask, vectors_are_zero
from iclflow.results.run import Run
from iclflow.system.memory import require
from iclflow.system.progress import Report
from iclflow.training.cost import token_bytes
from iclflow.training.data_key import data_key
from iclflow.units import clock_rate

__all__ = ["Plan"]

SETTLED = 1e-4  # share of the way from the zero loss to the lowest loss
GUIDE = 4096  # sequences that size the default learning rate of a model without moments


@dataclass(frozen=True, eq=False)
class Plan:
    """How an experiment is carried out; frozen, but for what it keeps between seeds."""

    experiment: Experiment
    own: OwnData | None = None  # the user's sequences
    given: Weights | None = None  # the user's initial weights
    earlier: Run | None = None  # the run that is resumed
    optimizer: optax.GradientTransformation | None = None  # the user's own rule
    roomy: bool = False  # train in a larger shape that many settings share (`padding`)
    with_moments: bool = True  # whether outcomes carry their label moments
    kept: dict[Any, Any] = field(default_factory=dict)
    making: threading.Lock = field(default_factory=threading.Lock)

    @property
    def task(self) -> Task:
        return self.experiment.task

    @property
    def model(self) -> Model:
        return self.experiment.model

    @property
    def training(self) -> Training:
        return self.experiment.training

    @property
    def engine(self) -> str:
        return choose(self.experiment)[0]

    @property
    def engine_reason(self) -> str:
        return choose(self.experiment)[1]

    @property
    def normalize(self) -> str:
        return self.model.normalize(self.task)

    @property
    def rate(self) -> float:
        """t/tau that passes in one step of unit learning rate."""
        return clock_rate(self.task, self.model)

    @property
    def rule(self) -> Rule:
        """How a gradient becomes an update."""
        return rule_of(self.training, self.optimizer)

    def clock(self, lr: float) -> float:
        """The time of one step: t/tau for descent and momentum, the learning rate for rules without a common clock."""
        if self.training.optimizer == "sgd":
            return self.rate * lr
        return self.rate * lr / (1 - self.training.beta) if self.training.optimizer == "momentum" else lr

    # --- what the seeds share ---------------------------------------------------------------------------------------

    @property
    def data_is_shared(self) -> bool:
        return self.own is not None or self.experiment.population or self.training.data_seed is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for plans that can share what they have made of their data; a file may change under the same name."""
        return (*data_key(self.experiment), None if self.own is None else self.own.digest)

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """Made once where the seeds share their data, anew otherwise."""
        if not self.data_is_shared:
            return make()
        with self.making:
            if key not in self.kept:
                self.kept[key] = make()
        return self.kept[key]

    @property
    def test_names(self) -> list[str]:
        if self.own is not None:
            return [name.replace("sequences", "loss") for name in self.own.tests]
        fresh = self.experiment.population and self.engine == "tokens"
        exact = self.experiment.population and not fresh and self.task.icl_fraction < 1
        return ["loss_icl", "loss_iwl"] if exact or (self.training.test_samples > 0 and not fresh) else []

    @cached_property
    def covariances(self) -> Covariances:
        """Of the task, or of the user's tokens."""
        if self.own is None:
            return covariances(self.task)
        dim = self.task.dim
        tokens = self.own.training.sequences[:, :, :dim].reshape(-1, dim)
        token = np.cov(tokens.T).reshape(dim, dim)
        values, vectors = np.linalg.eigh(token)
        return Covariances(token, np.eye(dim), values[::-1], vectors[:, ::-1])

    # --- one seed's start ---------------------------------------------------------------------------------------------

    def data_seed(self, seed: int) -> int:
        return seed if self.training.data_seed is None else self.training.data_seed

    def initial(self, seed: int) -> Weights:
        """The weights before the first step."""
        if self.earlier is not None:
            return self.earlier.initial_weights
        if self.given is not None:
            return self.given
        training = self.training
        return initial_weights(self.model, self.task, training.init_law, training.init, seed, self.covariances)

    def blocks(self, weights: Weights) -> Blocks:
        """Label blocks are enough where the vector blocks start at zero and stay there."""
        if self.engine == "tokens":
            return "all"
        if not self.model.vectors(self.task):
            return "label"
        stay = self.training.freeze_vectors or (self.experiment.population and self.task.icl_fraction == 1)
        return "label" if stay and vectors_are_zero(self.model, weights, self.task) else "all"

    def trained_part(self, weights: Weights, blocks: Blocks) -> Weights:
        return take(self.model, weights, self.task, blocks)

    def loss(self, seed: int, weights: Weights, blocks: Blocks, report: Report) -> MomentLoss | TokenLoss:
        """What the engine descends."""
        frozen = self.training.freeze_vectors and blocks == "all"
        mask = vector_mask(self.model, self.task, blocks) if frozen else None
        if self.engine != "tokens":
            moments = self.moments(seed, blocks, report)
            return MomentLoss(moments[0], tuple(moments[1:]), mask, self.model)
        check_predict(self.model, self.task, self.training.dtype)
        dtype = np.dtype(self.training.dtype)
        cast = lambda tree: jax.tree.map(lambda a: np.asarray(a, dtype), tree)
        sets: list[np.ndarray] = [] if self.experiment.population else cast(self.sequences(seed))
        task, first = self.model.compiled_for(self.task), sets[0] if sets else None
        return TokenLoss(cast(weights), first, tuple(sets[1:]), cast(mask), self.model, task)

    # --- data ---------------------------------------------------------------------------------------------------------

    def samples(self, seed: int) -> list[Sequences]:
        """The training sample and the test samples."""
        if self.own is not None:
            return [self.own.training, *self.own.tests.values()]
        training, number = self.training, self.data_seed(seed)
        sets: list[Sequences] = [Sample(Law.of(self.task), int(training.samples), (number, TRAIN), training.whiten)]
        if self.test_names:
            for stream, fraction in ((TEST_ICL, 1.0), (TEST_IWL, 0.0)):
                law = Law.of(self.task, fraction)
                sets.append(Sample(law, training.test_samples, (number, stream), training.whiten))
        return sets

    def moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        """Of the training law or sample, then of the tests."""
        return self.keep(("moments", blocks), lambda: self.make_moments(seed, blocks, report))

    def make_moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if self.experiment.population:
            fractions = [self.task.icl_fraction, *((1.0, 0.0) if self.test_names else ())]
            return [population_moments(self.task, self.normalize, blocks, p) for p in fractions]
        tell = lambda share: report(0.0, f"moments {share:.0%}")
        return [sampled_moments(s, self.normalize, self.task.prefix_loss, blocks, tell) for s in self.samples(seed)]

    def sequences(self, seed: int) -> list[np.ndarray]:
        """The same as whole arrays."""
        return self.keep("sequences", lambda: self.make_sequences(seed))

    def make_sequences(self, seed: int) -> list[np.ndarray]:
        sets = self.samples(seed)
        needed = token_bytes(self.experiment, sets[0].count, sum(s.count for s in sets[1:]))
        require(needed, f"{sets[0].count} sequences on the tokens engine")
        return [as_array(s) for s in sets]

    def label_moments(self, seed: int, loss: MomentLoss | TokenLoss) -> Moments | None:
        """The moments that a run carries: of the label blocks of its sample, from what training has made of it."""
        if self.experiment.population or not self.with_moments:
            return None
        if isinstance(loss, MomentLoss):
            return self.keep("label moments", loss.moments.label_part)
        if self.earlier is not None:
            return None  # the earlier run carries them
        whole = Given(self.sequences(seed)[0], self.task.out_dim)
        label = self.model.linear_twin()
        normalize = self.normalize if label is None else label.normalize(self.task)
        make = lambda: sampled_moments(whole, normalize, self.task.prefix_loss, "label")
        return self.keep("label moments", make)

    def linear_twin(self, seed: int) -> MomentLoss | None:
        """The linear model of the same shape and data, to size step and horizon where moments do not apply."""
        model = self.model.linear_twin()
        if model is None:
            return None
        normalize = self.normalize if self.model.linear else "context"
        if self.experiment.population:
            return MomentLoss(population_moments(self.task, normalize, "label", 1.0), (), None, model)
        sample = Given(self.sequences(seed)[0][:GUIDE], self.task.out_dim)
        return MomentLoss(sampled_moments(sample, normalize, self.task.prefix_loss, "label"), (), None, model)

    # --- where training can go ----------------------------------------------------------------------------------------

    @property
    def label_only(self) -> bool:
        """Where every sequence has its own task, vector blocks that start at zero only fit sampling noise."""
        return self.own is None and self.task.icl_fraction == 1 and self.training.init_law != "random"

    def floor(self, loss: MomentLoss) -> float:
        """The lowest loss that the model can reach on its data."""
        return self.keep(("floor", loss.moments.blocks, self.model), lambda: lowest_loss(loss, self.label_only))

    def zero_loss(self, loss: MomentLoss | TokenLoss) -> float:
        """The loss of predicting nothing."""
        if isinstance(loss, MomentLoss):
            return float(loss.moments.zero_loss)
        if loss.sequences is not None:
            return float(np.mean(np.asarray(loss.sequences)[:, -1, self.task.dim :] ** 2))
        return float(np.trace(self.covariances.token @ self.covariances.task))

    def goal(self, floor: float, zero: float) -> float:
        """Settled means at or below this; no plateau is."""
        return floor + SETTLED * (zero - floor)
