"""Other regimes: large initial weights, and softmax in place of the linear sum."""

from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.claims.registry import claim
from iclflow.comparison.plateaus import Plateaus, count_main_drops, find_plateaus
from iclflow.data.sequences import Law, fresh
from iclflow.data.spectrum import covariances
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.results.run import Run
from iclflow.theory import landscape, lazy, minimum
from iclflow.training import train

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
PAIRS, LARGE = 50, 0.8
SOFTMAX_TASK = icl.Task(dim=3, context=31)
CONTEXTS = (64, 256, 1024, 4096)
SCALES = (0.01, 0.02, 0.03, 0.05, 0.1)


def drawn(model: Model, dim: int, scale: float) -> Weights:
    """Random initial weights."""
    task = icl.Task(dim=dim)
    return initial_weights(model, task, "entry", scale, 0, covariances(task))


def lazy_gap(model: icl.Merged | icl.Separate, sabotage: bool) -> float:
    """Largest gap between training and the frozen kernel, relative to the initial excess loss."""
    half = drawn(model.replace(heads=PAIRS), TASK.dim, LARGE)
    signs = {"value": -1}  # pairs of heads with opposite values compute nothing at the start
    weights = {name: np.concatenate([array, signs.get(name, 1) * array]) for name, array in half.items()}
    run = train(TASK, model, weights=weights, time=30.0)
    kernel = mean_kernel(model) if sabotage else empirical_kernel(model, weights)
    nothing = np.zeros((TASK.dim, TASK.dim))
    frozen = lazy.frozen_loss(landscape(TASK), kernel, nothing, run.time.values)
    return float(np.abs(frozen - run.loss.values).max() / (run.loss.values[0] - minimum(TASK)))


def empirical_kernel(model: Model, weights: Weights) -> Float[np.ndarray, "DD DD"]:
    """The tangent kernel of the given weights."""
    v, U, K, Q = model.reduced(weights, TASK)
    return lazy.kernel_merged(v, U) if K is None or Q is None else lazy.kernel_separate(v, K, Q)


def mean_kernel(model: icl.Merged | icl.Separate) -> float:
    """The rate of the kernel averaged over random weights."""
    if model.one_by_one:
        return lazy.rate_separate(model.heads, 1, LARGE, LARGE, LARGE)
    return lazy.rate_merged(model.heads, LARGE, LARGE)


@claim(
    "lazy-merged",
    "Large initial weights of merged attention hardly move: the loss follows the initial kernel.",
    source="beyond the paper",
    quantity="largest gap of the loss, relative to the initial excess loss (100 heads in opposite pairs)",
    bound=2e-3,
    seeds="0",
    quick=True,
)
def lazy_merged(sabotage: bool = False) -> float:
    return lazy_gap(icl.Merged(heads=2 * PAIRS), sabotage)


@claim(
    "lazy-separate",
    "The same holds with separate key and query.",
    source="beyond the paper",
    quantity="largest gap of the loss, relative to the initial excess loss (100 heads in opposite pairs)",
    bound=2e-3,
    seeds="0",
    quick=True,
)
def lazy_separate(sabotage: bool = False) -> float:
    return lazy_gap(icl.Separate(heads=2 * PAIRS), sabotage)


@cache
def plateaus(init: float, **options: Any) -> list[Plateaus]:
    """The plateaus of three seeds of rank-one heads."""
    run = train(TASK, icl.Separate(heads=5), init=init, seeds=3, **options)
    return [find_plateaus(one.time.values, one.loss.values) for one in map(run.select, run.seeds)]


@claim(
    "larger-init-shorter-plateaus",
    "Larger initial weights shorten the time spent on plateaus but do not change the number of plateaus.",
    source="Fig. 6",
    quantity="pairs of a seed and a step of the scale (.01 to .02, .03, .05 and .1) where that time does not fall",
    bound=0,
    seeds="0-2",
    quick=True,
)
def larger_weights_shorten_plateaus(sabotage: bool = False) -> float:
    waited = np.array([[time_on_plateaus(one) for one in plateaus(init, engine="moments")] for init in SCALES])
    steps = np.diff(waited[::-1] if sabotage else waited, axis=0)
    return float(np.sum(~(steps < 0)))


def time_on_plateaus(observed: Plateaus) -> float:
    """The total time on plateaus before the last drop; not a number where a plateau is missing."""
    return float(observed.lengths[:-1].sum()) if len(observed.levels) == TASK.dim + 1 else np.nan


@claim(
    "large-init-no-plateau",
    "From very large initial weights, the loss shows no plateau at all.",
    source="Fig. 6",
    quantity="plateaus in three runs from initial weights of standard deviation 2",
    bound=0,
    seeds="0-2",
)
def very_large_weights_have_no_plateau(sabotage: bool = False) -> float:
    return float(sum(len(one.levels) for one in plateaus(0.1 if sabotage else 2.0, time=3000.0)))


def softmax_distance(context: int, normalize: str) -> float:
    """Root mean square distance between softmax and linear attention with the same weights, on the same tokens."""
    dim, linear, task = SOFTMAX_TASK.dim, icl.Merged(heads=4), SOFTMAX_TASK.replace(context=context)
    weights = drawn(linear, dim, 0.5)
    sequences = fresh(Law.of(task), (0,), 0, 400)
    sequences[:, -1, dim:] = 0  # the query's label is hidden
    predict = lambda model, task: jax.vmap(lambda sequence: model.predict(weights, sequence, task))
    scaled = task.replace(normalize=normalize)
    gap = jax.jit(lambda x: predict(linear.replace(softmax=True), task)(x) - predict(linear, scaled)(x))(sequences)
    return float(np.sqrt(np.mean(np.asarray(gap) ** 2)))


@claim(
    "softmax-long-contexts",
    "As the context N grows, softmax attention approaches linear attention as 1/sqrt(N).",
    source="beyond the paper",
    quantity="|a + 1/2| in distance ~ N^a, N = 64 .. 4096, 400 sequences",
    bound=0.1,
    seeds="0",
    quick=True,
)
def softmax_becomes_linear(sabotage: bool = False) -> float:
    normalize = "none" if sabotage else "context"  # sabotage: the linear sum without its 1/N
    distances = [softmax_distance(n, normalize) for n in CONTEXTS]
    return float(abs(np.polyfit(np.log(CONTEXTS), np.log(distances), 1)[0] + 0.5))


@cache
def softmax_run(kind: str) -> Run:
    Attention, steps = (icl.Merged, 1500) if kind == "merged" else (icl.Separate, 5000)
    model = Attention(heads=4, softmax=True)
    return train(SOFTMAX_TASK, model, samples=1000, init=0.03, lr=0.1, steps=steps, dtype="float32", seeds=2)


def mistaken_counts(kind: str, drops: int) -> float:
    """How many seeds do not show this number of drops."""
    run = softmax_run(kind)
    counts = [count_main_drops(one.time.values, one.loss.values) for one in map(run.select, run.seeds)]
    return float(sum(count != drops for count in counts))


@claim(
    "softmax-merged-one-drop",
    "Softmax attention with merged key and query shows one main drop.",
    source="Fig. 5",
    quantity="seeds, out of two, with a different number of drops (D = 3, 1000 sequences, smoothed by 0.1 in ln t)",
    bound=0,
    seeds="0, 1",
)
def one_drop_of_merged_softmax(sabotage: bool = False) -> float:
    return mistaken_counts("separate" if sabotage else "merged", 1)


@claim(
    "softmax-separate-drops",
    "Softmax attention with separate key and query of rank one shows as many drops as directions.",
    source="Fig. 5",
    quantity="seeds, out of two, with a different number of drops (D = 3, 1000 sequences, smoothed by 0.1 in ln t)",
    bound=0,
    seeds="0, 1",
)
def drops_of_separate_softmax(sabotage: bool = False) -> float:
    return mistaken_counts("merged" if sabotage else "separate", SOFTMAX_TASK.dim)
