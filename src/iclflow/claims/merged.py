"""Merged attention: two fixed points, one plateau, one drop, and least squares at the end."""

from collections.abc import Callable
from functools import cache

import jax
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import Comparison, compare_one, crossing
from iclflow.data.moments import AnyArray, AnyScalar
from iclflow.data.population import population_moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models import Model, equivalence
from iclflow.models.parts import empty, take
from iclflow.results.run import Run
from iclflow.system.compiled import compiled
from iclflow.theory import landscape, merged
from iclflow.theory.laws import white
from iclflow.training import train

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Merged(heads=8)

Matrix = Float[np.ndarray, "D D"]


def effective_matrices(run: Run) -> Float[np.ndarray, "T D D"]:
    """The matrix that the network applies, at every recorded time."""
    return np.einsum("th,thij->tij", run.reduced.value, run.reduced.key_query)


# --- fixed points -----------------------------------------------------------------------------------------------------

SMALL = icl.Task(dim=3, context=7)


def flat_loss(model: Model) -> tuple[Callable[[Array], AnyScalar], Callable[[Array], AnyArray], int]:
    """Population loss and effective matrix as functions of all label-block weights laid end to end; their number."""
    loss = MomentLoss(population_moments(SMALL, "context", "label"), (), None, model)
    flat, restore = ravel_pytree(take(model, empty(model, SMALL), SMALL, "label"))
    return lambda x: loss.loss(restore(x)), lambda x: model.theta(restore(x))[0, 0], len(flat)


def root_search(model: Model, starts: int, seed: int) -> list[Matrix]:
    """The matrices at which searches for a vanishing gradient end, from random weights of order one."""
    loss, matrix, size = flat_loss(model)
    slope, bend = compiled(jax.grad(loss)), compiled(jax.hessian(loss))
    draws = 1.5 * np.random.default_rng(seed).standard_normal((starts, size))
    options = {"xtol": 1e-14, "maxiter": 300}
    ends = [scipy.optimize.root(slope, x, jac=bend, method="lm", options=options) for x in draws]
    return [np.asarray(matrix(end.x)) for end in ends if np.abs(end.fun).max() < 1e-12]


@claim(
    "merged-two-fixed-points",
    "In function space, merged attention has two fixed points and no others: zero and the global minimum (2 heads,"
    " D = 3, N = 7; searches from random weights of order one).",
    source="Eq. 9",
    quantity="end points of 40 searches that are neither, plus one for each of the two that no search reached",
    bound=0,
    seeds="0",
    quick=True,
)
def two_fixed_points(sabotage: bool = False, offset: int = 0) -> float:
    model = icl.Separate(heads=3) if sabotage else icl.Merged(heads=2)
    ends, known = root_search(model, 40, offset), [np.zeros((3, 3)), merged.minimiser(landscape(SMALL))]
    near = np.array([[np.abs(end - point).max() < 1e-6 for point in known] for end in ends]).reshape(-1, 2)
    return float(np.sum(~near.any(axis=1)) + np.sum(~near.any(axis=0)))


def silent_weights(heads: int, seed: int) -> Float[np.ndarray, " n"]:
    """Random weights of a fixed point at the zero function: v = 0, every U orthogonal to the drive."""
    drive = landscape(SMALL).cross
    U = np.random.default_rng(seed).standard_normal((heads, 3, 3))
    U -= np.einsum("hij,ij->h", U, drive)[:, None, None] * drive / np.sum(drive**2)
    return np.asarray(ravel_pytree({"key_query": U, "value": np.zeros((heads, 1, 1))})[0])


@claim(
    "merged-zero-index",
    "Every fixed point at the zero function (v = 0, every U orthogonal to the drive) is a strict saddle with as many"
    " unstable directions as heads.",
    source="beyond the paper",
    quantity="random fixed points, out of 10, with a different number of unstable directions or a non-zero gradient",
    bound=0,
    seeds="0-4",
    quick=True,
)
def index_of_the_zero_set(sabotage: bool = False, offset: int = 0) -> float:
    mismatches = 0
    for heads in (1, 3):
        loss, _, _ = flat_loss(icl.Merged(heads=heads))
        slope, bend = compiled(jax.grad(loss)), compiled(jax.hessian(loss))
        for seed in range(5):
            x = silent_weights(heads, seed + offset)
            rates = np.linalg.eigvalsh(-np.asarray(bend(x)) / 2)
            index = np.sum(rates > 1e-9 * np.abs(rates).max())
            mismatches += index != (1 if sabotage else heads) or np.abs(slope(x)).max() > 1e-14
    return float(mismatches)


# --- white tokens: closed form ----------------------------------------------------------------------------------------


@cache
def white_run(task: icl.Task, values: tuple[float, ...], traces: tuple[float, ...]) -> Run:
    """The flow from heads with the given v and U = y I / sqrt(D)."""
    first = np.outer(traces, np.eye(task.dim) / np.sqrt(task.dim))
    weights = equivalence.from_two_layer({"first": first, "second": np.array([values])})
    return train(task, weights=weights, model=icl.Merged(heads=len(values)), tolerance=1e-12)


def gap_to_gain(run: Run, gain: Float[np.ndarray, " T"]) -> float:
    """Largest distance of an entry of the effective matrix from that of the gain times the identity."""
    return float(np.abs(effective_matrices(run) - gain[:, None, None] * np.eye(run.task.dim)).max())


@claim(
    "merged-white-riccati",
    "With white tokens the whole time course solves a Riccati equation, whatever the balance and signs of the layers.",
    source="beyond the paper",
    quantity="largest gap of the effective matrix along the flow, three unbalanced heads",
    bound=1e-8,
)
def white_time_course(sabotage: bool = False, offset: int = 0) -> float:
    values, traces = (0.03, -0.02, 0.04), (0.01, 0.05, -0.01)
    task = icl.Task(dim=4, context=31, spectrum="white")
    run = white_run(task, values, traces)
    a, y = np.array(values), np.array(traces)
    alpha, beta = np.sum((a + y) ** 2) / 4, np.sum((a - y) ** 2) / 4
    return gap_to_gain(run, white.gain(task, alpha, 0.0 if sabotage else beta, run.weights["time"].values))


@claim(
    "merged-white-paper",
    "With identity covariance and balanced, aligned layers, the time course is the paper's formula.",
    source="Eq. 10",
    quantity="largest gap of the effective matrix along the flow",
    bound=1e-8,
)
def paper_time_course(sabotage: bool = False, offset: int = 0) -> float:
    task, head = icl.Task(context=31, spectrum=(1.0, 1.0, 1.0, 1.0)), (0.01, 0.02, 0.02)
    run = white_run(task, head, head)
    context = task.context + 1 if sabotage else task.context
    gain = white.paper_gain(task.dim, context, float(np.linalg.norm(head)), run.weights["time"].values)
    return gap_to_gain(run, gain)


# --- any covariance: one drop -----------------------------------------------------------------------------------------

TILTED = 1.0 + np.diag([0.0, 0.5, 1.0, 2.0])  # does not commute with the token covariance
COVARIANCES = (
    TASK,
    TASK.replace(spectrum="power:1", label_noise=0.5),
    TASK.replace(task_spectrum=TILTED),
)


@cache
def small_runs(task: icl.Task, offset: int) -> Run:
    return train(shifted(task, offset), MODEL, init=1e-3, seed=offset, seeds=10)


@cache
def comparisons(task: icl.Task, offset: int) -> list[Comparison]:
    runs = small_runs(task, offset)
    return [compare_one(runs.select(seed), None) for seed in runs.seeds]


def layer_norm_half_time(run: Run) -> float:
    """The half-drop time if the squared norm of the value layer were the part that grows."""
    value = run.model.reduced(run.initial_weights, run.task).value
    return merged.half_time(landscape(run.task), float(value @ value))


@claim(
    "merged-half-time",
    "Whatever the covariances, the growing part of small initial weights (8 heads, 1e-3 an entry) determines the time"
    " of the drop.",
    source="beyond the paper",
    quantity="relative error of the half-drop time, mean over 10 seeds, worst of 3 tasks",
    bound=2e-4,
    seeds="0-9",
)
def half_time_from_initial_weights(sabotage: bool = False, offset: int = 0) -> float:
    if sabotage:
        runs = small_runs(TASK, offset)
        observed = np.array([c.drops[0].observed_time for c in comparisons(TASK, offset)], dtype=float)
        predicted = np.array([layer_norm_half_time(runs.select(seed)) for seed in runs.seeds])
        return float(np.mean(np.abs(predicted / observed - 1)))
    return max(float(np.mean([c.drops[0].error for c in comparisons(task, offset)])) for task in COVARIANCES)


@claim(
    "merged-loss-curve",
    "Whatever the covariances, the whole loss curve follows D + 1 equations that start from that part (8 heads, 1e-3 an"
    " entry).",
    source="Fig. 1",
    quantity="largest gap of the loss, mean over 10 seeds, worst of 3 tasks",
    bound=5e-4,
    seeds="0-9",
)
def loss_curve_from_initial_weights(sabotage: bool = False, offset: int = 0) -> float:
    if sabotage:
        runs = small_runs(TASK, offset)
        return float(np.mean([gap_with_other_context(runs.select(seed)) for seed in runs.seeds]))
    return max(float(np.mean([c.largest_gap for c in comparisons(task, offset)])) for task in COVARIANCES)


def gap_with_other_context(run: Run) -> float:
    """Largest gap of the loss when theory assumes a context that is one token too long."""
    prediction = icl.predict(run.task.replace(context=TASK.context + 1), MODEL, weights=run.initial_weights)
    return float(np.abs(run.loss.values - prediction.loss(run.time.values)).max())


# --- the plateau ------------------------------------------------------------------------------------------------------


def half_drop(run: Run) -> float:
    """The time at which the loss of a run has fallen halfway, read off its curve alone."""
    loss = run.loss.values
    when = crossing(run.time.values, loss, (loss[0] + loss[-1]) / 2)
    assert when is not None
    return when


@claim(
    "merged-escape-slope",
    "Along the growing direction, the plateau lengthens by 1/||Lambda^2||_F for every factor of e by which the initial"
    " weights shrink.",
    source="Sec. 3",
    quantity="relative error of the slope of the half-drop time against ln(1/init), init 1e-3 to 1e-7",
    bound=1e-5,
    quick=True,
)
def escape_slope(sabotage: bool = False, offset: int = 0) -> float:
    inits = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7]
    times = [half_drop(aligned_run(init)) for init in inits]
    slope = np.polyfit(np.log(1 / np.array(inits)), times, 1)[0]
    drive = landscape(TASK).cross
    return float(abs(slope * (np.linalg.norm(drive, 2) if sabotage else np.linalg.norm(drive)) - 1))


@cache
def aligned_run(init: float) -> Run:
    return train(TASK, MODEL, init=init, init_law="aligned", tolerance=1e-11)


@claim(
    "merged-log-init",
    "From random weights (8 heads, `init` an entry), the plateau of merged attention lengthens in proportion to"
    " ln(1/init) and to no other power of it.",
    source="Sec. 3",
    quantity="|a - 1| in t(init) - t(1e-2) ~ ln(1e-2/init)^a, t the half-drop time, init 1e-3 to 1e-6; median of 9",
    bound=2e-3,
    seeds="0-8",
)
def logarithm_of_the_initial_scale(sabotage: bool = False, offset: int = 0) -> float:
    inits = np.array([1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
    model = icl.Separate(heads=1) if sabotage else MODEL
    times = np.array([half_drops(model, init, offset) for init in inits])
    steps = np.log(inits[0] / inits[1:])
    return float(np.median(np.abs(np.polyfit(np.log(steps), np.log(times[1:] - times[0]), 1)[0] - 1)))


@cache
def half_drops(model: Model, init: float, offset: int) -> list[float]:
    runs = train(shifted(TASK, offset), model, init=init, seed=offset, seeds=9)
    return [half_drop(runs.select(seed)) for seed in runs.seeds]


# --- the end ----------------------------------------------------------------------------------------------------------


@claim(
    "merged-least-squares",
    "The converged network (merged, 8 heads, 0.01 an entry, t/tau = 2500) is in-context least squares, shrunk because"
    " the context is finite.",
    source="Eq. 11",
    quantity="largest gap between entries of the effective and the predicted matrix, relative to the largest entry",
    bound=1e-8,
    seeds="0",
)
def least_squares_at_the_end(sabotage: bool = False, offset: int = 0) -> float:
    task = shifted(TASK, offset)
    end = effective_matrices(train(task, MODEL, init=1e-2, time=2500, seed=offset))[-1]
    token, n = landscape(task).query, task.context
    without_trace = np.linalg.inv(token + token / n)
    predicted = without_trace if sabotage else merged.minimiser(landscape(task))
    return float(np.abs(end - predicted).max() / np.abs(predicted).max())
