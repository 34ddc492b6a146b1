"""Separate attention of rank one: a staircase of plateaus and drops, predicted from the initial weights."""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import Comparison, compare_one, crossing, gaps, observed_drops, observed_plateaus
from iclflow.data.sequences import TRAIN, Law, Sample, as_array
from iclflow.models import Model
from iclflow.prediction.predict import predict
from iclflow.prediction.sample import sample_landscape
from iclflow.results.run import Run
from iclflow.theory import directions, plateau_losses
from iclflow.theory.algorithm import identify, plateau_matrix
from iclflow.theory.separate import rank_optimum
from iclflow.theory.single_mode import time_to_reach, value_at
from iclflow.training import train

__all__ = ["observed_drop_times"]

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
LEVELS = TASK.dim + 1


def observed_drop_times(run: Run, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels-1"]:
    """The times at which the loss is halfway between neighbouring levels; infinite where it never gets there."""
    middles = (levels[:-1] + levels[1:]) / 2
    times = [crossing(run.time.values, run.loss.values, level) for level in middles]
    return np.array([np.inf if time is None else time for time in times])


# --- plateau levels of a finite run -----------------------------------------------------------------------------------

SAMPLES = 80_000


FEW = 2  # runs that show what a wrong assumption breaks


@cache
def finite_runs(offset: int, sabotage: bool) -> Run:
    """Descent from eight initial weights on one sample."""
    descent = {"init": 0.03, "lr": 0.2, "steps": 25_000}
    many = {"data_seed": offset, "seed": offset, "seeds": FEW if sabotage else 8}
    return train(shifted(TASK, offset), MODEL, samples=SAMPLES, **many, **descent)


@cache
def sample_levels(offset: int) -> Float[np.ndarray, " levels"]:
    """The lowest losses of rank 0 to D on that sample."""
    landscape = sample_landscape(finite_runs(offset, sabotage=False).select(offset))
    return np.array([landscape.loss(rank_optimum(landscape, rank)) for rank in range(LEVELS)])


@cache
def observed_levels(offset: int, sabotage: bool) -> Float[np.ndarray, " levels"]:
    """The level of every plateau, detected on the curves alone: the median over runs."""
    observed: list[list[float]] = [[] for _ in range(LEVELS)]
    runs = finite_runs(offset, sabotage)
    for run in map(runs.select, runs.seeds):
        prediction = predict(run.task, MODEL, weights=run.initial_weights)
        for plateau in observed_plateaus(run.time.values, run.loss.values, prediction):
            nearest = int(np.argmin(np.abs(prediction.levels - plateau.observed_level)))
            observed[nearest].append(plateau.observed_level)
    return np.array([np.median(levels) for levels in observed])


@claim(
    "staircase-levels-sample",
    "The plateaus of runs on one sample of 80000 sequences (5 heads of rank one, 0.03 an entry) are the lowest losses"
    " of rank 0, 1, .., D on that sample.",
    source="Eq. 19, Fig. 3a",
    quantity="largest relative error of a plateau's level (median over 8 initial weights)",
    bound=2e-3,
    seeds="0-7",
)
def levels_against_the_sample(sabotage: bool = False, offset: int = 0) -> float:
    predicted = plateau_losses(TASK) if sabotage else sample_levels(offset)
    return float(np.abs(observed_levels(offset, sabotage) / predicted - 1).max())


@cache
def standard_errors(offset: int) -> Float[np.ndarray, " levels"]:
    """The standard error of the loss of every fixed point on that sample, from the squared errors of its sequences."""
    task = shifted(TASK, offset)
    matrices = np.stack([plateau_matrix(task, m) for m in range(LEVELS)])
    squares = squared_errors(as_array(Sample(Law.of(task), SAMPLES, (offset, TRAIN))), matrices)
    return squares.std(axis=0, ddof=1) / np.sqrt(SAMPLES)


def squared_errors(
    sequences: Float[np.ndarray, "P tokens E"], matrices: Float[np.ndarray, "M D D"]
) -> Float[np.ndarray, "P M"]:
    """The squared error of every effective matrix on every sequence."""
    x, y, query = sequences[:, :-1, :-1], sequences[:, :-1, -1], sequences[:, -1]
    beta = np.einsum("pn,pnd->pd", y, x) / TASK.context
    predictions = np.einsum("pd,mde,pe->pm", beta, matrices, query[:, :-1], optimize=True)
    return (query[:, -1:] - predictions) ** 2


@claim(
    "staircase-levels-population",
    "These plateaus lie at the losses of the fixed points in order of falling eigenvalue, up to the error of the"
    " sample.",
    source="Eq. 19, Fig. 3a",
    quantity="largest distance of a plateau's level (median of 8 runs) in standard errors of the sample, P = 80000",
    bound=4,
    seeds="0-7",
)
def levels_against_the_population(sabotage: bool = False, offset: int = 0) -> float:
    predicted = plateau_losses(TASK.replace(context=15) if sabotage else TASK)
    return float(np.abs((observed_levels(offset, sabotage) - predicted) / standard_errors(offset)).max())


# --- one head, one direction ------------------------------------------------------------------------------------------


@claim(
    "scalar-equation",
    "When heads start aligned and balanced (law aligned, 0.1), every value weight follows the scalar equation of its"
    " eigenvalue.",
    source="Eq. 20, 21",
    quantity="largest gap of a value weight along the flow",
    bound=1e-8,
)
def aligned_value_weights(sabotage: bool = False, offset: int = 0) -> float:
    init = 0.1
    run, d = aligned_run(init), directions(TASK)
    time, values = run.weights["time"].values, run.reduced.value[:, : TASK.dim]
    curvature = d.query**3 if sabotage else d.curvature  # sabotage: no correction for a finite context
    predicted = [value_at(time, init, g, m) for g, m in zip(d.drive, curvature, strict=True)]
    return float(np.abs(values - np.stack(predicted, axis=1)).max())


@cache
def aligned_run(init: float) -> Run:
    return train(TASK, MODEL, init=init, init_law="aligned", tolerance=1e-12)


@claim(
    "scalar-closed-form",
    "The scalar equation has a closed-form solution: time as a function of the value weight.",
    source="beyond the paper",
    quantity="largest relative error against quadrature, all eigenvalues, v from 1 to 99 % of its final value",
    bound=1e-10,
    quick=True,
)
def closed_form_of_the_scalar_equation(sabotage: bool = False, offset: int = 0) -> float:
    d, power = directions(TASK), 4 if sabotage else 5
    errors = []
    for g, m, strength in zip(d.drive, d.curvature, d.strength, strict=True):
        start, *ends = np.cbrt(strength) * np.array([0.01, 0.05, 0.3, 0.8, 0.99])
        for end in ends:
            numeric = quad(lambda v, g=g, m=m: 1 / (g * v**2 - m * v**power), start, end, epsabs=0, epsrel=1e-12)[0]
            errors.append(abs(time_to_reach(end, start, g, m) / numeric - 1))
    return float(max(errors))


# --- the whole staircase from the initial weights ---------------------------------------------------------------------


@cache
def population_runs(offset: int, sabotage: bool) -> Run:
    """The flow on the population from twenty initial weights."""
    many = {"seed": offset, "seeds": FEW if sabotage else 20}
    return train(shifted(TASK, offset), MODEL, init=1e-3, init_law="public", records=400, **many)


class Told(NamedTuple):
    """What theory assumes, correctly or, when sabotaged, wrongly."""

    context: int = TASK.context
    scale: float = 1.0  # of the initial weights
    order: int = 1  # of the heads; -1 reverses it


class Beside(NamedTuple):
    """How one run differs from theory."""

    wrong_heads: int
    drop_errors: list[float]
    mean_gap: float


@cache
def besides(assumed: Told, offset: int) -> list[Beside]:
    runs = population_runs(offset, assumed != Told())
    return [beside(runs.select(seed), assumed) for seed in runs.seeds]


def beside(run: Run, assumed: Told) -> Beside:
    weights = {name: assumed.scale * array[:: assumed.order] for name, array in run.initial_weights.items()}
    prediction = predict(run.task.replace(context=assumed.context), MODEL, weights=weights)
    time, loss = run.time.values, run.loss.values
    drops = observed_drops(run, time, loss, prediction)
    wrong = sum(drop.predicted_head != drop.observed_head for drop in drops)
    errors = [np.inf if drop.error is None else drop.error for drop in drops]
    return Beside(wrong, errors, gaps(time, loss, prediction)[1])


@claim(
    "staircase-heads",
    "Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,"
    " eigenvalues .4 .3 .2 .1) determine which head learns which direction, but for near ties.",
    source="beyond the paper",
    quantity="wrong heads among 80 drops of the population flow",
    bound=4,
    seeds="0-19",
)
def winning_heads(sabotage: bool = False, offset: int = 0) -> float:
    return float(sum(one.wrong_heads for one in besides(Told(order=-1) if sabotage else Told(), offset)))


@claim(
    "staircase-drop-times",
    "Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,"
    " eigenvalues .4 .3 .2 .1) determine when every drop comes.",
    source="beyond the paper",
    quantity="relative error of the time of a drop, mean over 80 of the population flow",
    bound=6e-5,
    seeds="0-19",
)
def drop_times(sabotage: bool = False, offset: int = 0) -> float:
    return float(np.mean([one.drop_errors for one in besides(Told(scale=1.01) if sabotage else Told(), offset)]))


@claim(
    "staircase-loss-curve",
    "Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,"
    " eigenvalues .4 .3 .2 .1) determine the whole loss curve.",
    source="Fig. 3a",
    quantity="gap of the loss, mean over time and 20 runs of the population flow",
    bound=1.5e-5,
    seeds="0-19",
)
def loss_curves(sabotage: bool = False, offset: int = 0) -> float:
    assumed = Told(context=TASK.context - 1) if sabotage else Told()
    return float(np.mean([one.mean_gap for one in besides(assumed, offset)]))


@claim(
    "staircase-order",
    "From small initial weights (law public, 1e-3: 2e-4 a key and query entry; eigenvalues .4 .3 .2 .1, none within a"
    " factor 1.3 of the next), the network has learned on a plateau the eigenvectors of the largest eigenvalues and no"
    " others, but for near ties.",
    source="Sec. 4, Fig. 3a",
    quantity="plateaus, out of 100 of 20 runs, in the middle of which a different set is learned",
    bound=5,
    seeds="0-19",
)
def order_of_learning(sabotage: bool = False, offset: int = 0) -> float:
    runs = population_runs(offset, sabotage)
    return float(sum(wrong_sets(runs.select(seed), rising=sabotage) for seed in runs.seeds))


def wrong_sets(run: Run, rising: bool) -> int:
    """Plateaus in the middle of which the learned eigenvectors are not the first by falling (or rising) eigenvalue."""
    ends = np.array([0.0, *observed_drop_times(run, plateau_losses(TASK)), run.time.values[-1]])
    wrong = 0
    for count, middle in enumerate((ends[:-1] + ends[1:]) / 2):
        record = int(np.abs(run.weights["time"].values - middle).argmin())
        A = np.einsum("h,hij->ij", run.reduced.value[record], run.reduced.key_query[record])
        identified = identify(run.task, A)
        rank = np.arange(TASK.dim)[:: -1 if rising else 1]
        wrong += not identified.clean or bool(np.any(identified.learned != (rank < count)))
    return wrong


# --- the same on a finite sample --------------------------------------------------------------------------------------

PUBLIC = TASK.replace(normalize="none")


@cache
def sampled_comparisons(source: str, offset: int) -> list[Comparison]:
    descent = {"init": 1e-2, "init_law": "public", "lr": 0.02, "steps": 40_000}
    many = {"seed": offset, "seeds": 10 if source == "sample" else FEW}
    runs = train(shifted(PUBLIC, offset), MODEL, samples=5000, **many, **descent)
    return [compare_one(runs.select(seed), source) for seed in runs.seeds]


@claim(
    "staircase-finite-sample",
    "Descent on 5000 sequences (law public, 1e-2: 2e-3 a key and query entry; 5 heads of rank one, no 1/N) follows the"
    " same theory when it is given the moments of the sample; where two heads are nearly tied a drop can be far off.",
    source="beyond the paper",
    quantity="relative error of the time of a drop, median over the first three drops of 10 runs",
    bound=0.035,
    seeds="0-9",
)
def drop_times_on_a_sample(sabotage: bool = False, offset: int = 0) -> float:
    comparisons = sampled_comparisons("population" if sabotage else "sample", offset)
    errors = [drop.error for one in comparisons for drop in one.drops[:3]]
    return float(np.median([np.inf if error is None else error for error in errors]))


# --- how long a plateau lasts -----------------------------------------------------------------------------------------


@claim(
    "staircase-one-over-init",
    "The length of every plateau of separate attention (5 heads of rank one, 1e-3 to 2.5e-4 an entry) is proportional"
    " to 1/init.",
    source="beyond the paper",
    quantity="|a + 1| in wait before a drop ~ init^a, median over 4 drops of 5 seeds",
    bound=0.0025,
    seeds="0-4",
)
def plateaus_last_one_over_init(sabotage: bool = False, offset: int = 0) -> float:
    inits = [1e-3, 5e-4, 2.5e-4]
    model = icl.Merged(heads=8) if sabotage else MODEL
    waits = np.array([log_waits(model, init, offset).ravel() for init in inits])
    exponents = np.polyfit(np.log(inits), waits, 1)[0]
    return float(np.median(np.abs(exponents + 1)))


@cache
def log_waits(model: Model, init: float, offset: int) -> Float[np.ndarray, "seeds D"]:
    """The logarithm of the wait before every drop of every seed."""
    runs = train(shifted(TASK, offset), model, init=init, seed=offset, seeds=5)
    return np.array([np.log(waits(runs.select(seed))) for seed in runs.seeds])


def waits(run: Run) -> Float[np.ndarray, " D"]:
    """The time before every drop, counted from the drop before it."""
    return np.diff(observed_drop_times(run, plateau_losses(TASK)), prepend=0.0)
