"""What all seeds of an experiment share: engine, clock and data, each made when it is first asked for."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from iclflow.config import Task, Training
from iclflow.data.features import Blocks
from iclflow.data.grams import balanced_grams, grams_of
from iclflow.data.moments import Moments
from iclflow.data.own import OwnData
from iclflow.data.population import population_moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import TEST_ICL, TEST_IWL, TRAIN, Given, Law, Sample, Sequences, as_array
from iclflow.data.spectrum import Covariances, covariances
from iclflow.engines.choose import Choice, choose
from iclflow.engines.gram_loss import GramLoss
from iclflow.engines.minimum import fits_noise, lowest_loss
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.optimizers import Rule, rule_of
from iclflow.engines.token_loss import TokenLoss, check_predict
from iclflow.experiment import Experiment
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.models.parts import take, vector_mask, vectors_are_zero
from iclflow.system.memory import require
from iclflow.system.progress import Report
from iclflow.training.cost import token_bytes
from iclflow.training.data_key import data_key
from iclflow.units import Clock, clock_of

if TYPE_CHECKING:
    import optax

    import iclflow.results.run

__all__ = ["Plan"]

SETTLED = 1e-4  # share of the way from the zero loss to the lowest loss
POPULATION_GRAMS = 7  # stream drawn from `data_seed`
GUIDE = 4096  # sequences that size the default learning rate of a model without moments
ENOUGH = 20_000  # sequences of the user's that tell whether vector blocks learn more than noise


@dataclass(frozen=True, eq=False)
class Plan:
    """How an experiment is carried out; frozen, but for what it keeps between seeds."""

    experiment: Experiment
    own: OwnData | None = None  # the user's sequences
    given: Weights | None = None  # the user's initial weights
    earlier: "iclflow.results.run.Run | None" = None  # the run that is resumed
    optimizer: "optax.GradientTransformation | None" = None  # the user's own rule
    roomy: bool = False  # train in a larger shape that many settings share (`padding`)
    with_moments: bool = True  # whether outcomes carry their label moments
    with_stable_step: bool = True  # and what is known of the stable step
    kept: dict[Any, Any] = field(default_factory=dict)
    making: threading.Lock = field(default_factory=threading.Lock)
    choice: Choice = field(init=False)  # of the engine

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", choose(self.experiment))

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
        return self.choice.engine

    @property
    def engine_reason(self) -> str:
        return self.choice.why

    @property
    def flows(self) -> bool:
        """Whether the engine follows the flow instead of descending."""
        return self.choice.flows

    @property
    def normalize(self) -> str:
        return self.model.normalize(self.task)

    @property
    def clock(self) -> Clock:
        """How long a step takes."""
        return clock_of(self.task, self.model, self.training)

    @property
    def rule(self) -> Rule:
        """How a gradient becomes an update."""
        return rule_of(self.training, self.optimizer)

    # --- what the seeds share ---------------------------------------------------------------------------------------

    @property
    def data_is_shared(self) -> bool:
        return self.own is not None or self.experiment.population or self.training.data_seed is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for plans that can share what they have made of their data; a file may change under the same name."""
        return (*data_key(self.experiment, self.engine), None if self.own is None else self.own.digest)

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
        fresh = self.experiment.population and self.engine in ("tokens", "gram")
        exact = self.experiment.population and not fresh and self.task.has_other_tests
        return list(self.tests) if exact or (self.training.test_samples > 0 and not fresh) else []

    @property
    def tests(self) -> dict[str, tuple[int, Task, float]]:
        """The test laws by the name of their loss: random stream, task and in-context fraction.

        The tests of K fixed tasks are new tasks; there is no in-weight task.
        """
        new = self.task.new_tasks
        laws = {"loss_icl": (TEST_ICL, new, 1.0), "loss_iwl": (TEST_IWL, new, 0.0)}
        return laws if self.task.tasks is None else {"loss_icl": laws["loss_icl"]}

    @cached_property
    def covariances(self) -> Covariances:
        """Of the task, or of the user's tokens."""
        return covariances(self.task) if self.own is None else self.own.covariances

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
            return "label" if self.model.linear else "all"
        by_law = self.model.linear and self.experiment.population and self.task.symmetric
        stay = self.training.freeze_vectors or by_law
        return "label" if stay and vectors_are_zero(self.model, weights, self.task) else "all"

    def trained_part(self, weights: Weights, blocks: Blocks) -> Weights:
        return take(self.model, weights, self.task, blocks)

    def loss(self, seed: int, weights: Weights, blocks: Blocks, report: Report) -> MomentLoss | TokenLoss | GramLoss:
        """What the engine descends."""
        frozen = self.training.freeze_vectors and blocks == "all"
        mask = vector_mask(self.model, self.task, blocks) if frozen else None
        if self.engine in ("moments", "flow"):
            moments = self.moments(seed, blocks, report)
            return MomentLoss(moments[0], tuple(moments[1:]), mask, self.model)
        check_predict(self.model, self.task, self.training.dtype)
        dtype = np.dtype(self.training.dtype)
        cast = lambda tree: jax.tree.map(lambda a: np.asarray(a, dtype), tree)
        task = self.model.compiled_for(self.task)
        if self.engine == "gram":
            first, *tests = cast(self.grams(seed, blocks))
            return GramLoss(cast(weights), first, tuple(tests), cast(mask), self.model, task, blocks)
        sets: list[np.ndarray] = [] if self.experiment.population else cast(self.sequences(seed))
        first = sets[0] if sets else None
        return TokenLoss(cast(weights), first, tuple(sets[1:]), cast(mask), self.model, task)

    # --- data ---------------------------------------------------------------------------------------------------------

    def samples(self, seed: int) -> list[Sequences]:
        """The training sample and the test samples."""
        if self.own is not None:
            return [self.own.training, *self.own.tests.values()]
        training, number = self.training, self.data_seed(seed)
        sets: list[Sequences] = [Sample(Law.of(self.task), int(training.samples), (number, TRAIN), training.whiten)]
        if self.test_names:
            for stream, task, fraction in self.tests.values():
                law = Law.of(task, fraction)
                sets.append(Sample(law, training.test_samples, (number, stream), training.whiten))
        return sets

    def moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        """Of the training law or sample, then of the tests."""
        return self.keep(("moments", blocks), lambda: self.make_moments(seed, blocks, report))

    def make_moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if self.experiment.population:
            tests = [(task, p) for _, task, p in self.tests.values()] if self.test_names else []
            laws = [(self.task, self.task.icl_fraction), *tests]
            return [population_moments(task, self.normalize, blocks, p) for task, p in laws]
        tell = lambda share: report(0.0, f"moments {share:.0%}")
        sets, normalize, prefixes = self.samples(seed), self.normalize, self.task.prefix_loss
        return [sampled_moments(s, normalize, prefixes, blocks, tell) for s in sets]

    def sequences(self, seed: int) -> list[np.ndarray]:
        """The same as whole arrays."""
        return self.keep("sequences", lambda: self.make_sequences(seed))

    def make_sequences(self, seed: int) -> list[np.ndarray]:
        sets = self.samples(seed)
        needed = token_bytes(self.experiment, sets[0].count, sum(s.count for s in sets[1:]))
        require(needed, f"{sets[0].count} sequences on the tokens engine")
        return [as_array(s) for s in sets]

    def grams(self, seed: int, blocks: Blocks) -> list[np.ndarray | None]:
        """Gram matrices and queries of the same; those of the population, or none where every step draws its own."""
        if not self.experiment.population:
            return self.keep("grams", lambda: [grams_of(s) for s in self.samples(seed)])
        if self.training.batch is not None:
            return [None]
        count, seeds, label = (
            self.training.gram_samples,
            (self.training.data_seed or 0, POPULATION_GRAMS),
            blocks == "label",
        )
        return self.keep(("grams", label), lambda: [balanced_grams(Law.of(self.task), count, seeds, label)])

    def label_moments(self, seed: int, loss: MomentLoss | TokenLoss | GramLoss) -> Moments | None:
        """The moments that a run carries: of the label blocks of its sample, from what training has made of it."""
        if self.experiment.population or not self.with_moments:
            return None
        if isinstance(loss, MomentLoss):
            return self.keep("label moments", loss.moments.label_part)
        if self.earlier is not None or isinstance(loss, GramLoss):
            return None  # the earlier run carries them, or nobody will ask
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

    @cached_property
    def label_only(self) -> bool:
        """Where task vectors have either sign, vector blocks that start at zero only fit sampling noise.

        A user's own sequences are asked: what these blocks learn on one half of them must hold on the other half.
        """
        drawn, given = self.training.init_law != "random", self.given
        if self.own is None:
            return drawn and (self.task.symmetric or (self.task.tasks is not None and self.training.freeze_vectors))
        zero = drawn if given is None else vectors_are_zero(self.model, given, self.task)
        if not zero or not self.model.vectors(self.task):
            return False
        mine = self.own.training.sequences[:ENOUGH]
        halves = (Given(rows, self.task.out_dim) for rows in (mine[::2], mine[1::2]))
        return fits_noise(*(sampled_moments(half, self.normalize, self.task.prefix_loss, "all") for half in halves))

    def floor(self, loss: MomentLoss) -> float:
        """The lowest loss that the model can reach on its data."""
        return self.keep(("floor", loss.moments.blocks, self.model), lambda: lowest_loss(loss, self.label_only))

    def zero_loss(self, loss: MomentLoss | TokenLoss | GramLoss) -> float:
        """The loss of predicting nothing."""
        if isinstance(loss, MomentLoss):
            return float(loss.moments.zero_loss)
        if isinstance(loss, GramLoss):
            if loss.grams is not None:
                return float(np.mean(np.asarray(loss.grams)[:, self.task.dim :, -1] ** 2))
        elif loss.sequences is not None:
            return float(np.mean(np.asarray(loss.sequences)[:, -1, self.task.dim :] ** 2))
        return float(np.trace(self.covariances.token @ self.covariances.task))

    def goal(self, floor: float, zero: float) -> float:
        """Settled means at or below this; no plateau is."""
        return floor + SETTLED * (zero - floor)
