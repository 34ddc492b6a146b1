"""Merged attention: two fixed points, one plateau, one drop, and least squares at the end."""

from collections.abc import Callable, Iterator

import jax
import numpy as np
import pandas as pd
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from matplotlib.axes import Axes

import iclflow as icl
from iclflow.comparison.comparing import compare_one, crossing
from iclflow.data.moments import AnyArray, AnyScalar
from iclflow.data.population import population_moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.figures.style import MODEL_COLOUR, THEORY, letters, plateau_lines, shades, theory_key
from iclflow.models import Model, equivalence
from iclflow.models.parts import empty, take
from iclflow.results.run import Run
from iclflow.studies.measures import compare_seeds, each_seed, few, loss_table, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.system.compiled import compiled
from iclflow.theory import landscape, merged, minimum
from iclflow.theory.laws import white

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Merged(heads=8)
WHITE = icl.Task(context=31, spectrum=(1.0, 1.0, 1.0, 1.0))

Matrix = Float[np.ndarray, "D D"]
Numbers = tuple[float, ...]


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


@claim(bound=0, source="Eq. 9", seeds="0", quick=True)
def merged_two_fixed_points(sabotage: bool = False, offset: int = 0) -> float:
    """In function space, merged attention has two fixed points and no others: zero and the global minimum (2 heads, D =
    3, N = 7; searches from random weights of order one).
    Measured: end points of 40 searches that are neither, plus one for each of the two that no search reached
    """
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


@claim(bound=0, seeds="0-4", quick=True)
def merged_zero_index(sabotage: bool = False, offset: int = 0) -> float:
    """Every fixed point at the zero function (v = 0, every U orthogonal to the drive) is a strict saddle with as many
    unstable directions as heads.
    Measured: random fixed points, out of 10, with a different number of unstable directions or a non-zero gradient
    """
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


def white_run(task: icl.Task, values: Numbers, traces: Numbers, **settings: int) -> Run:
    """The flow from heads with the given v and U = y I / sqrt(D)."""
    first = np.outer(traces, np.eye(task.dim) / np.sqrt(task.dim))
    weights = equivalence.from_two_layer({"first": first, "second": np.array([values])})
    return train(task, icl.Merged(heads=len(values)), weights=weights, tolerance=1e-12, **settings)


def gap_to_gain(run: Run, gain: Float[np.ndarray, " T"]) -> float:
    """Largest distance of an entry of the effective matrix from that of the gain times the identity."""
    return float(np.abs(effective_matrices(run) - gain[:, None, None] * np.eye(run.task.dim)).max())


@claim(bound=1e-8)
def merged_white_riccati(sabotage: bool = False, offset: int = 0) -> float:
    """With white tokens the whole time course solves a Riccati equation, whatever the balance and signs of the layers.
    Measured: largest gap of the effective matrix along the flow, three unbalanced heads
    """
    values, traces = (0.03, -0.02, 0.04), (0.01, 0.05, -0.01)
    task = icl.Task(dim=4, context=31, spectrum="white")
    run = white_run(task, values, traces)
    a, y = np.array(values), np.array(traces)
    alpha, beta = np.sum((a + y) ** 2) / 4, np.sum((a - y) ** 2) / 4
    return gap_to_gain(run, white.gain(task, alpha, 0.0 if sabotage else beta, run.weights["time"].values))


@claim(bound=1e-8, source="Eq. 10")
def merged_white_paper(sabotage: bool = False, offset: int = 0) -> float:
    """With identity covariance and balanced, aligned layers, the time course is the paper's formula.
    Measured: largest gap of the effective matrix along the flow
    """
    head = (0.01, 0.02, 0.02)
    run = white_run(WHITE, head, head)
    context = WHITE.context + 1 if sabotage else WHITE.context
    gain = white.paper_gain(WHITE.dim, context, float(np.linalg.norm(head)), run.weights["time"].values)
    return gap_to_gain(run, gain)


# --- any covariance: one drop -----------------------------------------------------------------------------------------

TILTED = 1.0 + np.diag([0.0, 0.5, 1.0, 2.0])  # does not commute with the token covariance
COVARIANCES = (TASK, TASK.replace(spectrum="power:1", label_noise=0.5), TASK.replace(task_spectrum=TILTED))


def small_runs(task: icl.Task, offset: int) -> Run:
    return train(shifted(task, offset), MODEL, init=1e-3, seed=offset, seeds=10)


def layer_norm_half_time(run: Run) -> float:
    """The half-drop time if the squared norm of the value layer were the part that grows."""
    value = run.model.reduced(run.initial_weights, run.task).value
    return merged.half_time(landscape(run.task), float(value @ value))


@claim(bound=2e-4, seeds="0-9")
def merged_half_time(sabotage: bool = False, offset: int = 0) -> float:
    """Whatever the covariances, the growing part of small initial weights (8 heads, 1e-3 an entry) determines the time
    of the drop.
    Measured: relative error of the half-drop time, mean over 10 seeds, worst of 3 tasks
    """
    if sabotage:
        runs = small_runs(TASK, offset)
        observed = np.array([c.drops[0].observed_time for c in compare_seeds(runs)], dtype=float)
        predicted = np.array([layer_norm_half_time(run) for run in each_seed(runs)])
        return float(np.mean(np.abs(predicted / observed - 1)))
    return max(
        float(np.mean([c.drops[0].error for c in compare_seeds(small_runs(task, offset))])) for task in COVARIANCES
    )


@claim(bound=5e-4, source="Fig. 1", seeds="0-9")
def merged_loss_curve(sabotage: bool = False, offset: int = 0) -> float:
    """Whatever the covariances, the whole loss curve follows D + 1 equations that start from that part (8 heads, 1e-3
    an entry).
    Measured: largest gap of the loss, mean over 10 seeds, worst of 3 tasks
    """
    if sabotage:
        runs = small_runs(TASK, offset)
        return float(np.mean([gap_with_other_context(run) for run in each_seed(runs)]))
    return max(float(np.mean([c.largest_gap for c in compare_seeds(small_runs(task, offset))])) for task in COVARIANCES)


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


@claim(bound=1e-5, source="Sec. 3", quick=True)
def merged_escape_slope(sabotage: bool = False, offset: int = 0) -> float:
    """Along the growing direction, the plateau lengthens by 1/||Lambda^2||_F for every factor of e by which the initial
    weights shrink.
    Measured: relative error of the slope of the half-drop time against ln(1/init), init 1e-3 to 1e-7
    """
    inits = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7]
    times = [half_drop(aligned_run(init)) for init in inits]
    slope = np.polyfit(np.log(1 / np.array(inits)), times, 1)[0]
    drive = landscape(TASK).cross
    return float(abs(slope * (np.linalg.norm(drive, 2) if sabotage else np.linalg.norm(drive)) - 1))


def aligned_run(init: float) -> Run:
    return train(TASK, MODEL, init=init, init_law="aligned", tolerance=1e-11)


@claim(bound=2e-3, source="Sec. 3", seeds="0-8")
def merged_log_init(sabotage: bool = False, offset: int = 0) -> float:
    """From random weights (8 heads, `init` an entry), the plateau of merged attention lengthens in proportion to
    ln(1/init) and to no other power of it.
    Measured: |a - 1| in t(init) - t(1e-2) ~ ln(1e-2/init)^a, t the half-drop time, init 1e-3 to 1e-6; median of 9
    """
    inits = np.array([1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
    model = icl.Separate(heads=1) if sabotage else MODEL
    times = np.array([half_drops(model, init, offset) for init in inits])
    steps = np.log(inits[0] / inits[1:])
    return float(np.median(np.abs(np.polyfit(np.log(steps), np.log(times[1:] - times[0]), 1)[0] - 1)))


def half_drops(model: Model, init: float, offset: int) -> list[float]:
    runs = train(shifted(TASK, offset), model, init=init, seed=offset, seeds=9)
    return [half_drop(run) for run in each_seed(runs)]


# --- the end ----------------------------------------------------------------------------------------------------------


@claim(bound=1e-8, source="Eq. 11", seeds="0")
def merged_least_squares(sabotage: bool = False, offset: int = 0) -> float:
    """The converged network (merged, 8 heads, 0.01 an entry, t/tau = 2500) is in-context least squares, shrunk because
    the context is finite.
    Measured: largest gap between entries of the effective and the predicted matrix, relative to the largest entry
    """
    task = shifted(TASK, offset)
    end = effective_matrices(train(task, MODEL, init=1e-2, time=2500, seed=offset))[-1]
    token, n = landscape(task).query, task.context
    without_trace = np.linalg.inv(token + token / n)
    predicted = without_trace if sabotage else merged.minimiser(landscape(task))
    return float(np.abs(end - predicted).max() / np.abs(predicted).max())


PUBLISHED = icl.Task(dim=4, context=31, normalize="none")
LAST = 150.0
SPECTRA = {"white": "white", "linear": "linear", "power law": "power:2"}


@figure(source="Fig. 1")
def abrupt_drop(fast: bool = False) -> Result:
    r"""Merged key and query: one plateau, one abrupt drop.

    (a) The published run (8 heads, 5000 sequences, 6001 steps of gradient descent at learning rate 0.001): linear
    attention with merged key and query, and the two-layer linear network on the cubic feature from the same weights. On
    the population the two are one function trained in one way. On a sample the vector blocks of attention drift from
    zero, so that it drops a little earlier and ends a little lower; the caption gives the largest gap. The dashed curve
    is computed from the initial weights and the moments of the sample. (b) Gradient flow on the population for three
    token covariances. For each of them, $D + 1$ scalar equations give the whole curve.
    """
    samples, steps = (1000, 2000) if fast else (5000, 6000)
    lr = 3e-3 if fast else 1e-3
    merged = train(PUBLISHED, icl.Merged(heads=8), init=1e-6, samples=samples, lr=lr, steps=steps, seed=10)
    start = equivalence.to_two_layer(merged.initial_weights)
    mlp = train(PUBLISHED, icl.MLP(heads=8), weights=start, samples=samples, lr=lr, steps=steps, seed=10)
    flows = {
        name: train(icl.Task(dim=4, context=31, spectrum=law), icl.Merged(heads=8), init=1e-3, time=LAST)
        for name, law in SPECTRA.items()
    }
    figure, (left, right) = panels(2.7, 1, 2)
    published = draw_published(left, merged, mlp)
    curves, worst = draw_flows(right, flows)
    letters(left, right)
    return Result(
        figure,
        {"published": published, "covariances": curves},
        (
            Measured("largest gap between the flow's loss and D + 1 equations, relative to the initial loss", worst),
            Measured("the same for the published run and theory of its sample", compare_one(merged, None).largest_gap),
            Measured("largest gap between attention and the two-layer network", largest_distance(merged, mlp)),
        ),
        {"merged": merged.experiment, "mlp": mlp.experiment, **{n: r.experiment for n, r in flows.items()}},
        {"mlp": start},
    )


def draw_published(ax: Axes, merged: Run, mlp: Run) -> pd.DataFrame:
    prediction = compare_one(merged, None).prediction
    kept = few(len(merged.time))
    time = merged.time.values[kept]
    theory = prediction.loss(merged.time.values)
    ax.plot(time, merged.loss.values[kept], color=MODEL_COLOUR["merged"], lw=2.6, label="merged attention")
    ax.plot(time, mlp.loss.values[kept], color=MODEL_COLOUR["network"], lw=1.2, label="two-layer network")
    ax.plot(time, theory[kept], label="theory", **THEORY)
    ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.1), xlim=(0, time[-1]), title="published run")
    ax.legend(loc="center right")
    plateau_lines(ax, prediction.levels, ["zero", "min."])
    return stacked({"merged": loss_table(merged, theory), "mlp": loss_table(mlp)})


def draw_flows(ax: Axes, flows: dict[str, Run]) -> tuple[pd.DataFrame, float]:
    tables, worst = {}, 0.0
    for colour, (name, run) in zip(shades(len(flows)), flows.items(), strict=True):
        comparison = compare_one(run, None)
        worst = max(worst, comparison.largest_gap)
        time = run.time.values
        theory = comparison.prediction.loss(time)
        ax.plot(time, run.loss.values, color=colour, lw=2.2, label=name)
        ax.plot(time, theory, **THEORY)
        tables[name] = loss_table(run, theory)
    theory_key(ax)
    ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.1), xlim=(0, LAST), title="population, three covariances")
    ax.legend(loc="center right", title="covariance")
    return stacked(tables), worst


def largest_distance(one: Run, other: Run) -> float:
    return float(np.abs(one.loss.values - other.loss.values).max() / one.loss.values[0])


SIZES = (0.3, 0.1, 0.01, 0.001)
UNBALANCED = ((0.03, -0.02, 0.04), (0.01, 0.05, -0.01))  # values, and traces of U over sqrt(D)


@figure(source="Eq. 10")
def white_time_course(fast: bool = False) -> Result:
    r"""White tokens: the whole time course in closed form.

    Merged attention on tokens with identity covariance. (a) The gain $\sigma$ in front of $\beta^\top x_q$ for four
    sizes $w$ of the initial weights. (b) The loss. Solid curves are gradient flow, dashed curves the paper's formula
    for balanced and aligned layers. One more curve (vermillion) starts from unbalanced heads, some with the wrong sign;
    here the dashed curve is the solution of the Riccati equation instead.
    """
    tables, experiments, weights, worst = {}, {}, {}, 0.0
    figure, (left, right) = panels(2.7, 1, 2)
    colours = [*shades(len(sizes(fast))), MODEL_COLOUR["merged"]]
    for colour, (name, values, traces) in zip(colours, starts(fast), strict=True):
        run = white_run(WHITE, values, traces, records=300)
        time, a, y = run.weights["time"].values, np.array(values), np.array(traces)
        theory = white.gain(WHITE, float(np.sum((a + y) ** 2) / 4), float(np.sum((a - y) ** 2) / 4), time)
        if values == traces:
            theory = white.paper_gain(WHITE.dim, WHITE.context, float(np.linalg.norm(a)), time)
        gain, loss = mean_gains(run), np.interp(time, run.time.values, run.loss.values)
        theory_loss = white.loss(WHITE, theory)
        worst = max(worst, float(np.abs(gain - theory).max()), float(np.abs(loss - theory_loss).max()))
        for ax, line, dashes in ((left, gain, theory), (right, loss, theory_loss)):
            ax.plot(time, line, color=colour, lw=2.2, label=name)
            ax.plot(time, dashes, label="theory" if name == "unbalanced" else None, **THEORY)
        columns = {"time": time, "gain": gain, "gain_theory": theory, "loss": loss, "loss_theory": theory_loss}
        tables[name], experiments[name] = pd.DataFrame(columns), run.experiment
        weights[name] = run.initial_weights
    left.set(xlabel=r"time $t/\tau$", ylabel=r"gain $\sigma$", xlim=(0, None))
    right.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 4.3), xlim=(0, None))
    letters(left, right)
    left.legend(loc="center right", bbox_to_anchor=(1.02, 0.4))
    left.set_xlim(0, 1.45 * left.get_xlim()[1])
    plateau_lines(right, np.array([float(WHITE.dim), minimum(WHITE)]), ["zero", "min."])
    gap = Measured("largest gap between gain or loss and the closed form", worst)
    return Result(figure, {"": stacked(tables)}, (gap,), experiments, weights)


def sizes(fast: bool) -> Numbers:
    """The norms of the balanced initial weights."""
    return SIZES[:2] if fast else SIZES


def starts(fast: bool) -> Iterator[tuple[str, Numbers, Numbers]]:
    """The name, the value weights and the traces of every curve; they agree for balanced heads."""
    for size in sizes(fast):
        head = tuple(size * np.array([1.0, 2.0, 2.0]) / 3)
        yield rf"$w = {size:g}$", head, head
    yield "unbalanced", *UNBALANCED


def mean_gains(run: Run) -> Float[np.ndarray, " T"]:
    """The mean diagonal entry of the effective matrix at every recorded time."""
    return np.einsum("th,thdd->t", run.reduced.value, run.reduced.key_query) / WHITE.dim
