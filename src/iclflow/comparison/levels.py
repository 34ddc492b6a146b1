r"""A run beside the levels of linear attention, where theory predicts no curve: your own model, softmax, Adam.

The levels $L(M_m)$ are the lowest losses of linear attention with $m$ components, from the moments of the data alone,
so no optimiser changes them. A model that is not linear may rest elsewhere, and may end below the last level. How far
its last predictions are from those of linear attention is

$$d_m = \langle|\hat y - \beta' M_m x_q|^2\rangle / \langle|y_q|^2\rangle,\qquad \beta = \tfrac1N\sum_n y_n x_n',$$

over sequences of the task, or of the data that the run was trained on.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.comparing import Plateau, refuse_unknown_population
from iclflow.comparison.plateaus import before_blow_up, find_drops, find_plateaus
from iclflow.data.sequences import sample
from iclflow.errors import NoTheory
from iclflow.models import Model, Weights
from iclflow.models.base import Unknown
from iclflow.prediction.sample import sample_landscape
from iclflow.results.card import Card, WithCard
from iclflow.results.run import Run
from iclflow.system.precision import double_precision
from iclflow.theory.landscape import landscape
from iclflow.theory.separate import rank_optimum

__all__ = ["LevelComparison", "compare_levels"]

SEQUENCES = 2000  # that predictions are compared on
SEED = 7  # of these sequences


@dataclass(frozen=True, repr=False)
class LevelComparison(WithCard):
    """A run and the levels of linear attention; there is no predicted curve, and `why` says why not."""

    seed: int
    why: str
    source: str  # whose moments the levels are from, population or sample
    levels: Float[np.ndarray, " levels"]
    plateaus: tuple[Plateau, ...]
    drops: Float[np.ndarray, " m"]  # when half of each observed drop is done
    distances: Float[np.ndarray, " levels"] | None  # of the last predictions to linear attention with m components
    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]
    clock: str  # what `time` is
    blown_up: bool = False  # whether the loss blew up; the curve ends before

    @property
    def nearest(self) -> int | None:
        """With how many components linear attention is nearest to the last predictions."""
        return None if self.distances is None else int(np.argmin(self.distances))

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curve, ready for JSON."""
        return {
            "seed": self.seed,
            "why": self.why,
            "source": self.source,
            "levels": self.levels.tolist(),
            "plateaus": [asdict(plateau) for plateau in self.plateaus],
            "drops": self.drops.tolist(),
            "distances": None if self.distances is None else self.distances.tolist(),
            "final_loss": float(self.loss[-1]),
        }

    def linear(self) -> str:
        """The distance to linear attention, as a sentence."""
        if self.distances is None or self.nearest is None:
            if self.blown_up:
                return f"The loss blows up after {self.clock} = {self.time[-1]:.4g}."
            return "The class of the model is not known here, so its predictions cannot be compared."
        return (
            f"The last predictions are nearest to linear attention with {self.nearest} of {len(self.levels) - 1}"
            f" components: squared distance {self.distances[self.nearest]:.3g} of the loss of predicting zero."
        )

    def card(self) -> Card:
        """The curve over the levels, its plateaus, and how far the model is from linear attention."""
        from iclflow.comparison.card import levels_card

        return levels_card(self)


def compare_levels(run: Run, source: str | None, why: NoTheory) -> LevelComparison:
    """Compare the run of a single seed with the levels of linear attention.

    Raises:
        NoTheory: the levels are not those of linear attention either, because of weight decay or shared task vectors.
    """
    if run.training.weight_decay > 0 or run.task.icl_fraction < 1:
        raise why
    source = source or ("population" if run.experiment.population else "sample")
    refuse_unknown_population(run, source)
    quadratic = landscape(run.task) if source == "population" else sample_landscape(run)
    matrices = [rank_optimum(quadratic, m) for m in range(run.task.dim + 1)]
    levels = np.array([quadratic.loss(A) for A in matrices])
    sound = before_blow_up(run.loss.values, float(levels[0]))
    time, loss = run.time.values[:sound], run.loss.values[:sound]
    drops, plateaus = np.array([]), []
    if len(time) > 2:
        drops = find_drops(time, loss).times
        for level, start, length in zip(*find_plateaus(time, loss), strict=True):
            near = float(levels[np.argmin(np.abs(levels - level))])
            plateaus.append(Plateau(float(level), near, float(start), float(length), None))
    blown_up = sound < len(run.loss)
    distances = None if blown_up or isinstance(run.model, Unknown) else linear_distances(run, matrices)
    clock = str(run.time.attrs.get("long_name", "time t/tau"))
    found = tuple(plateaus), drops, distances, time, loss, clock, blown_up
    return LevelComparison(run.seeds[0], str(why), source, levels, *found)


def linear_distances(run: Run, matrices: list[Float[np.ndarray, "D D"]]) -> Float[np.ndarray, " levels"]:
    """The distance of the last predictions to those of linear attention with each of some matrices."""
    task, dim = run.task, run.task.dim
    own = None if run.own is None else run.own.training.sequences[:SEQUENCES]
    sequences = sample(task, SEQUENCES, SEED) if own is None else np.array(own)
    target = sequences[:, -1, dim:].copy()
    sequences[:, -1, dim:] = 0
    rho = task.context + (run.model.normalize(task) == "tokens")
    beta = np.einsum("pno,pnd->pod", sequences[:, :, dim:], sequences[:, :, :dim]) / rho
    guess = predictions(run.model, run.final_weights, sequences, task)
    linear = [np.einsum("pod,de,pe->po", beta, A, sequences[:, -1, :dim], optimize=True) for A in matrices]
    return np.array([np.mean((guess - one) ** 2) for one in linear]) / np.mean(target**2)


def predictions(
    model: Model, weights: Weights, sequences: Float[np.ndarray, "P tokens E"], task: Any
) -> Float[np.ndarray, "P O"]:
    """What the model itself says about every sequence."""
    import jax

    from iclflow.system.compiled import compiled

    with double_precision():
        batch = compiled(jax.vmap(lambda arrays, one: model.predict(arrays, one, task), in_axes=(None, 0)))
        return np.asarray(batch(weights, sequences))
