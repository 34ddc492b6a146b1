"""Other regimes: large initial weights, and softmax in place of the linear sum."""

from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import crossing
from iclflow.comparison.plateaus import count_main_drops, find_drops, find_plateaus
from iclflow.data.sequences import Law, fresh
from iclflow.data.spectrum import covariances
from iclflow.models import Model, Weights
from iclflow.models.initial import initial_weights
from iclflow.results.run import Run
from iclflow.system.compiled import compiled
from iclflow.theory import landscape, minimum, plateau_losses
from iclflow.theory.laws import lazy
from iclflow.training import train

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
PAIRS, LARGE = 50, 0.8
SOFTMAX_TASK = icl.Task(dim=3, context=31)
CONTEXTS = (64, 256, 1024, 4096)
SCALES = (0.01, 0.02, 0.03, 0.05, 0.1)


def drawn(model: Model, task: icl.Task, scale: float, seed: int) -> Weights:
    """Random initial weights."""
    return initial_weights(model, task, "entry", scale, seed, covariances(task))


def lazy_gap(model: icl.Merged | icl.Separate, sabotage: bool, offset: int) -> float:
    """Largest gap between training and the frozen kernel, relative to the initial excess loss."""
    task = shifted(TASK, offset)
    half = drawn(model.replace(heads=PAIRS), task, LARGE, offset)
    signs = {"value": -1}  # pairs of heads with opposite values compute nothing at the start
    weights = {name: np.concatenate([array, signs.get(name, 1) * array]) for name, array in half.items()}
    run = train(task, model, weights=weights, time=30.0)
    kernel = mean_kernel(model) if sabotage else empirical_kernel(model, weights)
    nothing = np.zeros((TASK.dim, TASK.dim))
    frozen = lazy.frozen_loss(landscape(task), kernel, nothing, run.time.values)
    return float(np.abs(frozen - run.loss.values).max() / (run.loss.values[0] - minimum(TASK)))


def empirical_kernel(model: Model, weights: Weights) -> Float[np.ndarray, "DD DD"]:
    """The tangent kernel of the given weights."""
    v, U, K, Q = model.reduced(weights, TASK)[:4]
    return lazy.kernel_merged(v, U) if K is None or Q is None else lazy.kernel_separate(v, K, Q)


def mean_kernel(model: icl.Merged | icl.Separate) -> float:
    """The rate of the kernel averaged over random weights."""
    if model.one_by_one:
        return lazy.rate_separate(model.heads, 1, LARGE, LARGE, LARGE)
    return lazy.rate_merged(model.heads, LARGE, LARGE)


@claim(
    "lazy-merged",
    "Large initial weights of merged attention (100 heads in pairs with opposite values, 0.8 an entry) hardly move: the"
    " loss follows the initial kernel.",
    source="beyond the paper",
    quantity="largest gap of the loss, relative to the initial excess loss",
    bound=4e-4,
    seeds="0",
    quick=True,
)
def lazy_merged(sabotage: bool = False, offset: int = 0) -> float:
    return lazy_gap(icl.Merged(heads=2 * PAIRS), sabotage, offset)


@claim(
    "lazy-separate",
    "The same holds with separate key and query (100 heads of rank one in pairs with opposite values, 0.8 an entry).",
    source="beyond the paper",
    quantity="largest gap of the loss, relative to the initial excess loss",
    bound=1.5e-3,
    seeds="0",
    quick=True,
)
def lazy_separate(sabotage: bool = False, offset: int = 0) -> float:
    return lazy_gap(icl.Separate(heads=2 * PAIRS), sabotage, offset)


@claim(
    "larger-init-shorter-plateaus",
    "Larger initial weights (the same draw times .01, .02, .03, .05 and .1; 5 heads of rank one) bring the end of the"
    " last plateau forward, but for rare near ties; how many plateaus show may change.",
    source="Fig. 6",
    quantity="pairs of a seed and a step of the scale, out of 32, where the last drop does not come earlier",
    bound=2,
    seeds="0-7",
    quick=True,
)
def larger_weights_shorten_plateaus(sabotage: bool = False, offset: int = 0) -> float:
    ends = np.array([last_drops(init, offset) for init in SCALES])
    steps = np.diff(ends[::-1] if sabotage else ends, axis=0)
    return float(np.sum(~(steps < 0)))


@cache
def last_drops(init: float, offset: int) -> list[float]:
    """For eight seeds the time at which the loss is halfway between the last two levels."""
    settings: dict[str, Any] = {"engine": "moments", "seed": offset, "seeds": 8}
    run = train(shifted(TASK, offset), icl.Separate(heads=5), init=init, **settings)
    middle = plateau_losses(TASK)[-2:].mean()
    times = [crossing(one.time.values, one.loss.values, middle) for one in map(run.select, run.seeds)]
    return [np.nan if time is None else time for time in times]


@claim(
    "large-init-no-plateau",
    "From very large initial weights (5 heads of rank one, 2 an entry), the loss shows no plateau at all.",
    source="Fig. 6",
    quantity="plateaus in three runs by the flow until t/tau = 3000",
    bound=0,
    seeds="0-2",
)
def very_large_weights_have_no_plateau(sabotage: bool = False, offset: int = 0) -> float:
    init = 0.1 if sabotage else 2.0
    run = train(shifted(TASK, offset), icl.Separate(heads=5), init=init, time=3000.0, seed=offset, seeds=3)
    return float(sum(len(find_plateaus(o.time.values, o.loss.values).levels) for o in map(run.select, run.seeds)))


def softmax_distance(context: int, normalize: str, offset: int) -> float:
    """Root mean square distance between softmax and linear attention with the same weights, on the same tokens."""
    linear, task = icl.Merged(heads=4), shifted(SOFTMAX_TASK, offset).replace(context=context)
    weights = drawn(linear, task, 0.5, offset)
    sequences = fresh(Law.of(task), (offset,), 0, 400)
    sequences[:, -1, task.dim :] = 0  # the query's label is hidden
    predict = lambda model, task: jax.vmap(lambda sequence: model.predict(weights, sequence, task))
    scaled = task.replace(normalize=normalize)
    gap = compiled(lambda x: predict(linear.replace(softmax=True), task)(x) - predict(linear, scaled)(x))(sequences)
    return float(np.sqrt(np.mean(np.asarray(gap) ** 2)))


@claim(
    "softmax-long-contexts",
    "As the context N grows, softmax attention approaches linear attention with the same weights (merged, 4 heads, D ="
    " 3, 0.5 an entry) as 1/sqrt(N).",
    source="beyond the paper",
    quantity="|a + 1/2| in distance ~ N^a, N = 64 .. 4096, 400 sequences, median over five draws of weights and tokens",
    bound=0.088,
    seeds="0-4",
)
def softmax_becomes_linear(sabotage: bool = False, offset: int = 0) -> float:
    normalize = "none" if sabotage else "context"  # sabotage: the linear sum without its 1/N
    distances = [
        [softmax_distance(n, normalize, offset + seed) for seed in range(1 if sabotage else 5)] for n in CONTEXTS
    ]
    return float(np.median(np.abs(np.polyfit(np.log(CONTEXTS), np.log(distances), 1)[0] + 0.5)))


@cache
def softmax_run(kind: str, offset: int, sabotage: bool) -> Run:
    Attention, steps = (icl.Merged, 1500) if kind == "merged" else (icl.Separate, 5000)
    model = Attention(heads=4, softmax=True)
    task, descent = shifted(SOFTMAX_TASK, offset), {"lr": 0.1, "steps": steps, "dtype": "float32"}
    return train(task, model, samples=1000, init=0.03, seed=offset, seeds=1 if sabotage else 2, **descent)


def drop_counts(kind: str, offset: int, sabotage: bool) -> list[int]:
    """How many drops every seed shows."""
    run = softmax_run(kind, offset, sabotage)
    return [count_main_drops(one.time.values, one.loss.values) for one in map(run.select, run.seeds)]


@claim(
    "softmax-merged-one-drop",
    "Softmax attention with merged key and query (4 heads, D = 3, 0.03 an entry, 1000 sequences) falls in one drop,"
    " without a plateau on its way.",
    source="Fig. 5",
    quantity="seeds, out of two, whose loss shows more than one drop",
    bound=0,
    seeds="0, 1",
)
def one_drop_of_merged_softmax(sabotage: bool = False, offset: int = 0) -> float:
    run = softmax_run("separate" if sabotage else "merged", offset, sabotage)
    return float(sum(len(find_drops(o.time.values, o.loss.values).times) > 1 for o in map(run.select, run.seeds)))


@claim(
    "softmax-separate-drops",
    "Softmax attention with separate key and query of rank one (4 heads, D = 3, 0.03 an entry, 1000 sequences) shows"
    " several drops; not always as many as directions.",
    source="Fig. 5",
    quantity="seeds, out of two, with fewer than two drops in the loss smoothed by 0.1 in ln t",
    bound=0,
    seeds="0, 1",
)
def drops_of_separate_softmax(sabotage: bool = False, offset: int = 0) -> float:
    return float(sum(count < 2 for count in drop_counts("merged" if sabotage else "separate", offset, sabotage)))
