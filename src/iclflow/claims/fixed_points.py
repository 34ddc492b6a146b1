"""The fixed points of separate attention, their instabilities, and what every flow conserves."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.data.population import population_moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models import Model, Weights
from iclflow.results.run import Run
from iclflow.system.compiled import compiled
from iclflow.theory import directions, merged, separate
from iclflow.training import train

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
OTHER = TASK.replace(context=30)  # the task that sabotaged theory assumes
MODEL = icl.Separate(heads=5)
LOSS = MomentLoss(population_moments(TASK, "context", "label"), (), None, MODEL)
TOLERANCE = 1e-10

Mask = Bool[np.ndarray, " D"]


def subsets() -> list[Mask]:
    """Every set of directions."""
    return [learned for learned, _ in separate.fixed_points(directions(TASK))]


def ansatz(task: icl.Task, learned: Mask) -> dict[str, np.ndarray]:
    """The label blocks at the fixed point of a set of directions, with one balanced head per direction."""
    v, key, query = separate.ansatz_weights(directions(task), learned, MODEL.heads)
    return {"value": v[:, None, None], "key": key, "query": query}


@claim(
    "fixed-points-stationary",
    "Each of the 2^D sets of eigenvectors gives a fixed point of separate attention.",
    source="Eq. 16-18, 20",
    quantity="largest entry of the gradient over all 16 sets, D = 4",
    bound=1e-12,
    quick=True,
)
def every_subset_is_stationary(sabotage: bool = False, offset: int = 0) -> float:
    slopes = [LOSS.loss_and_gradient(ansatz(OTHER if sabotage else TASK, learned))[1] for learned in subsets()]
    return float(max(np.abs(array).max() for slope in slopes for array in slope.values()))


@claim(
    "fixed-points-loss",
    "At the fixed point of a set of eigenvectors, each of them lowers the loss by its own share.",
    source="Eq. 19",
    quantity="largest gap of the loss over all 16 sets, D = 4",
    bound=1e-12,
    quick=True,
)
def loss_of_every_subset(sabotage: bool = False, offset: int = 0) -> float:
    d = directions(OTHER if sabotage else TASK)
    gaps = [float(LOSS.loss(ansatz(TASK, learned))) - d.loss(learned) for learned in subsets()]
    return float(np.abs(gaps).max())


def growth_rates(learned: Mask) -> Float[np.ndarray, " n"]:
    """Eigenvalues of minus half the Hessian of the engine's loss at a fixed point."""
    hessian, flatten = compiled_hessian()
    return np.linalg.eigvalsh(-np.asarray(hessian(flatten(ansatz(TASK, learned)))) / 2)


@cache
def compiled_hessian() -> tuple[Callable[[Array], Array], Callable[[Weights], Array]]:
    """The Hessian in all label-block weights laid end to end, and the function that lays them so."""
    flatten = lambda part: ravel_pytree(jax.tree.map(jnp.asarray, part))[0]
    restore = ravel_pytree(jax.tree.map(jnp.asarray, ansatz(TASK, subsets()[0])))[1]
    return compiled(jax.hessian(lambda flat: LOSS.loss(restore(flat)))), flatten


@claim(
    "fixed-points-index",
    "A fixed point has one unstable direction for every pair of a learned eigenvector and an unlearned one that would"
    " lower the loss more; the fixed points that training visits have none.",
    source="beyond the paper",
    quantity="sets, out of 16, with a different number of unstable directions, D = 4",
    bound=0,
    quick=True,
)
def index_of_every_subset(sabotage: bool = False, offset: int = 0) -> float:
    rates = {tuple(learned): growth_rates(learned) for learned in subsets()}
    threshold = 1e-9 * max(np.abs(values).max() for values in rates.values())
    d = directions(TASK)
    index = lambda learned: separate.escape_directions(d, ~learned if sabotage else learned)
    return float(sum(np.sum(rates[tuple(learned)] > threshold) != index(learned) for learned in subsets()))


@cache
def long_run(model: Model, descent: bool, offset: int) -> Run:
    """A whole training run by the flow, or by steps of descent, which conserve nothing."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 3000} if descent else {"tolerance": TOLERANCE}
    return train(shifted(TASK, offset), model, init=0.1, seed=offset, **settings)


def merged_quantities(run: Run) -> list[np.ndarray]:
    """What merged attention conserves, at every recorded time: one entry per pair of heads."""
    return [merged.conserved(v, U) for v, U in zip(run.reduced.value, run.reduced.key_query, strict=True)]


def separate_quantities(run: Run) -> list[tuple[np.ndarray, np.ndarray]]:
    """What separate attention conserves: one number per head, and one matrix over its ranks."""
    layers = zip(run.reduced.value, *run.reduced.keys_and_queries, strict=True)
    return [separate.conserved(v, K, Q) for v, K, Q in layers]


@cache
def rank_two_quantities(descent: bool, offset: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return separate_quantities(long_run(icl.Separate(heads=3, rank=2), descent, offset))


def drift(series: list[np.ndarray]) -> float:
    """Largest change of any entry since the start."""
    return float(np.abs(np.array(series) - series[0]).max())


@claim(
    "conserved-merged",
    "The flow of merged attention (8 heads, 0.1 an entry) conserves <U_i, U_j> - v_i v_j for every pair of heads.",
    source="beyond the paper",
    quantity="largest drift over a whole training run at tolerance 1e-10",
    bound=20 * TOLERANCE,
    seeds="0",
    quick=True,
)
def merged_conservation(sabotage: bool = False, offset: int = 0) -> float:
    return drift(merged_quantities(long_run(icl.Merged(heads=8), sabotage, offset)))


@claim(
    "conserved-separate-norms",
    "The flow of separate attention (3 heads of rank two, 0.1 an entry) conserves the difference of the squared norms"
    " of a head's value and key.",
    source="Sec. 4",
    quantity="largest drift over a whole training run at tolerance 1e-10, rank 2",
    bound=20 * TOLERANCE,
    seeds="0",
)
def separate_norm_conservation(sabotage: bool = False, offset: int = 0) -> float:
    return drift([norms for norms, _ in rank_two_quantities(sabotage, offset)])


@claim(
    "conserved-separate-matrix",
    "The flow of separate attention (3 heads of rank two, 0.1 an entry) conserves the whole matrix KK' - QQ' of every"
    " head, not only its trace.",
    source="beyond the paper",
    quantity="largest drift over a whole training run at tolerance 1e-10, rank 2",
    bound=20 * TOLERANCE,
    seeds="0",
)
def separate_matrix_conservation(sabotage: bool = False, offset: int = 0) -> float:
    return drift([grams for _, grams in rank_two_quantities(sabotage, offset)])
