"""What all seeds of an experiment share: engine, clock, data; computed when first asked for."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from iclflow.config import Experiment
from iclflow.data.moments import Blocks, Moments
from iclflow.data.own import OwnData
from iclflow.data.population import population_moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TEST_ICL, TEST_IWL, TRAIN, Given, Law, Sample, Sequences, gathered
from iclflow.data.spectrum import Covariances, covariances
from iclflow.engines.choose import choose
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.reach import lowest_loss
from iclflow.engines.token_loss import TokenLoss
from iclflow.engines.verdict import Verdict
from iclflow.memory import require
from iclflow.models import Weights, take, vector_mask, vectors_are_zero
from iclflow.models.initial import initial_weights
from iclflow.progress import Report
from iclflow.run import Run
from iclflow.units import clock_rate

__all__ = ["Plan", "Walked"]

SETTLED = 1e-4  # share of the way from the zero loss to the lowest loss


@dataclass
class Walked:
    """One seed's way down, on the common clock."""

    losses: np.ndarray  # (T, columns)
    times: np.ndarray  # (T,)
    recorded: np.ndarray  # indices into the T times
    parts: list[Weights]
    verdict: Verdict
    optimizer_state: list[np.ndarray]
    detail: dict[str, Any]


@dataclass
class Plan:
    experiment: Experiment
    own: OwnData | None = None
    given: Weights | None = None
    earlier: Run | None = None
    roomy: bool = False  # train in a larger shape that many settings share (`padding`)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.task, self.model, self.training = (
            self.experiment.task,
            self.experiment.model,
            self.experiment.training,
        )
        self.engine, self.reason = choose(self.experiment)
        self.normalize = self.task.normalize or ("none" if self.model.softmax else "context")
        self.rate = clock_rate(self.task, self.model)
        self._shared: dict[Any, Any] = {}
        self._making = threading.Lock()

    # --- what the seeds share ---------------------------------------------------------------------------------------

    @property
    def data_is_shared(self) -> bool:
        return self.own is not None or self.experiment.population or self.training.data_seed is not None

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Made once where the seeds share their data, anew otherwise."""
        if not self.data_is_shared:
            return make()
        with self._making:
            if key not in self._shared:
                self._shared[key] = make()
        return self._shared[key]

    @property
    def test_names(self) -> list[str]:
        if self.own is not None:
            return [name.replace("sequences", "loss") for name in self.own.tests]
        exact = self.experiment.population and self.engine != "tokens" and self.task.icl_fraction < 1
        wanted = exact or (
            self.training.test_samples > 0 and not (self.experiment.population and self.engine == "tokens")
        )
        return ["loss_icl", "loss_iwl"] if wanted else []

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
        cov, training = self.covariances, self.training
        return initial_weights(
            self.model, self.task.dim, self.task.out_dim, training.init_law, training.init, seed,
            cov.basis, cov.token @ cov.task @ cov.token,
        )  # fmt: skip

    def blocks(self, weights: Weights) -> Blocks:
        """Label blocks are enough where the vector blocks start at zero and stay there."""
        if self.engine == "tokens":
            return "all"
        if self.model.kind == "mlp":
            return "label"
        stay = self.training.freeze_vectors or (self.experiment.population and self.task.icl_fraction == 1)
        return "label" if stay and vectors_are_zero(self.model, weights, self.task.dim) else "all"

    def loss(self, seed: int, weights: Weights, blocks: Blocks, report: Report) -> MomentLoss | TokenLoss:
        frozen = self.training.freeze_vectors and blocks == "all"
        mask = vector_mask(self.model, weights, self.task.dim, blocks) if frozen else None
        if self.engine != "tokens":
            moments = self.moments(seed, blocks, report)
            return MomentLoss(moments[0], tuple(moments[1:]), mask, self.model)
        dtype = np.dtype(self.training.dtype)
        cast = lambda tree: jax.tree.map(lambda a: np.asarray(a, dtype), tree)
        sets = [None] if self.experiment.population else cast(self.sequences(seed))
        return TokenLoss(
            cast(weights), sets[0], tuple(sets[1:]), cast(mask), self.model, self.task.dim, self.normalize,
            self.task.prefix_loss,
        )  # fmt: skip

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

        def make() -> list[Moments]:
            if self.experiment.population:
                fractions = [self.task.icl_fraction, *((1.0, 0.0) if self.test_names else ())]
                return [population_moments(self.task, self.normalize, blocks, p) for p in fractions]
            tell = lambda share: report(0.0, f"moments {share:.0%}")
            sets = self.samples(seed)
            return [sampled_moments(s, self.normalize, self.task.prefix_loss, blocks, tell) for s in sets]

        return self.shared(("moments", blocks), make)

    def sequences(self, seed: int) -> list[np.ndarray]:
        """The same as whole arrays."""

        def make() -> list[np.ndarray]:
            sets, tokens = self.samples(seed), self.task.context + 1
            held = sum(s.count for s in sets) * tokens * (self.task.dim + self.task.out_dim)
            positions = self.task.context if self.task.prefix_loss else 1
            worked = (self.training.batch or sets[0].count) * tokens * positions * 4 * self.model.heads
            require(8 * (2 * held + worked), f"{sets[0].count} sequences on the tokens engine")
            return [gathered(s) for s in sets]

        return self.shared("sequences", make)

    def linear_twin(self, seed: int) -> MomentLoss:
        """The linear model of the same shape and data, to size step and horizon where moments do not apply."""
        model = self.model.replace(softmax=False) if self.model.softmax else self.model
        normalize = "context" if self.model.softmax else self.normalize
        if self.experiment.population:
            return MomentLoss(population_moments(self.task, normalize, "label", 1.0), (), None, model)
        sample = Given(self.sequences(seed)[0][:4096], self.task.out_dim)
        return MomentLoss(sampled_moments(sample, normalize, self.task.prefix_loss, "label"), (), None, model)

    # --- where training can go ----------------------------------------------------------------------------------------

    @property
    def label_only(self) -> bool:
        """Where every sequence has its own task, vector blocks that start at zero only fit sampling noise."""
        return self.own is None and self.task.icl_fraction == 1 and self.training.init_law != "random"

    def floor(self, loss: MomentLoss) -> float:
        """The lowest loss that the model can reach on its data."""
        return self.shared(("floor", loss.moments.blocks), lambda: lowest_loss(loss, self.label_only))

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

    def trained_part(self, weights: Weights, blocks: Blocks) -> Weights:
        return take(self.model, weights, self.task.dim, blocks)
