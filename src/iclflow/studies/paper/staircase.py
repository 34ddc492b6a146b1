"""Separate attention of rank one: a staircase of plateaus and drops, predicted from the initial weights."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from scipy.integrate import quad

import iclflow as icl
from iclflow.comparison.comparing import Comparison, compare_one, gaps, observed_drops, observed_plateaus
from iclflow.data.sequences import TRAIN, Law, Sample, as_array
from iclflow.figures.style import (
    COLOURS,
    GREY,
    MODEL_COLOUR,
    THEORY,
    letters,
    log_time,
    plateau_lines,
    shades,
    theory_key,
)
from iclflow.models import Model
from iclflow.prediction.sample import sample_landscape
from iclflow.results.run import Run
from iclflow.studies.measures import (
    compare_seeds,
    drop_errors,
    drop_times,
    each_seed,
    few,
    loss_table,
    panels,
    shifted,
    stacked,
    train,
)
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import directions, plateau_losses
from iclflow.theory.algorithm import identify, plateau_matrix
from iclflow.theory.separate import rank_optimum
from iclflow.theory.single_mode import time_to_reach, value_at

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
PUBLIC = TASK.replace(normalize="none")
LEVELS = TASK.dim + 1


# --- plateau levels of a finite run -----------------------------------------------------------------------------------

SAMPLES = 80_000
FEW = 2  # runs that show what a wrong assumption breaks


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


def observed_levels(offset: int, sabotage: bool) -> Float[np.ndarray, " levels"]:
    """The level of every plateau, detected on the curves alone: the median over runs."""
    observed: list[list[float]] = [[] for _ in range(LEVELS)]
    runs = finite_runs(offset, sabotage)
    for run in each_seed(runs):
        prediction = icl.predict(run.task, MODEL, weights=run.initial_weights)
        for plateau in observed_plateaus(run.time.values, run.loss.values, prediction):
            nearest = int(np.argmin(np.abs(prediction.levels - plateau.observed_level)))
            observed[nearest].append(plateau.observed_level)
    return np.array([np.median(levels) for levels in observed])


@claim(bound=2e-3, source="Eq. 19, Fig. 3a", seeds="0-7")
def staircase_levels_sample(sabotage: bool = False, offset: int = 0) -> float:
    """The plateaus of runs on one sample of 80000 sequences (5 heads of rank one, 0.03 an entry) are the lowest losses
    of rank 0, 1, .., D on that sample.
    Measured: largest relative error of a plateau's level (median over 8 initial weights)
    """
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


@claim(bound=4, source="Eq. 19, Fig. 3a", seeds="0-7")
def staircase_levels_population(sabotage: bool = False, offset: int = 0) -> float:
    """These plateaus lie at the losses of the fixed points in order of falling eigenvalue, up to the error of the
    sample.
    Measured: largest distance of a plateau's level (median of 8 runs) in standard errors of the sample, P = 80000
    """
    predicted = plateau_losses(TASK.replace(context=15) if sabotage else TASK)
    return float(np.abs((observed_levels(offset, sabotage) - predicted) / standard_errors(offset)).max())


# --- one head, one direction ------------------------------------------------------------------------------------------


@claim(bound=1e-8, source="Eq. 20, 21")
def scalar_equation(sabotage: bool = False, offset: int = 0) -> float:
    """When heads start aligned and balanced (law aligned, 0.1), every value weight follows the scalar equation of its
    eigenvalue.
    Measured: largest gap of a value weight along the flow
    """
    init = 0.1
    run, d = aligned_run(init), directions(TASK)
    time, values = run.weights["time"].values, run.reduced.value[:, : TASK.dim]
    curvature = d.query**3 if sabotage else d.curvature  # sabotage: no correction for a finite context
    predicted = [value_at(time, init, g, m) for g, m in zip(d.drive, curvature, strict=True)]
    return float(np.abs(values - np.stack(predicted, axis=1)).max())


def aligned_run(init: float) -> Run:
    return train(TASK, MODEL, init=init, init_law="aligned", tolerance=1e-12)


@claim(bound=1e-10, quick=True)
def scalar_closed_form(sabotage: bool = False, offset: int = 0) -> float:
    """The scalar equation has a closed-form solution: time as a function of the value weight.
    Measured: largest relative error against quadrature, all eigenvalues, v from 1 to 99 % of its final value
    """
    d, power = directions(TASK), 4 if sabotage else 5
    errors = []
    for g, m, strength in zip(d.drive, d.curvature, d.strength, strict=True):
        start, *ends = np.cbrt(strength) * np.array([0.01, 0.05, 0.3, 0.8, 0.99])
        for end in ends:
            numeric = quad(lambda v, g=g, m=m: 1 / (g * v**2 - m * v**power), start, end, epsabs=0, epsrel=1e-12)[0]
            errors.append(abs(time_to_reach(end, start, g, m) / numeric - 1))
    return float(max(errors))


# --- the whole staircase from the initial weights ---------------------------------------------------------------------


def population_runs(offset: int, sabotage: bool) -> Run:
    """The flow on the population from twenty initial weights."""
    many = {"seed": offset, "seeds": FEW if sabotage else 20}
    return train(shifted(TASK, offset), MODEL, init=1e-3, init_law="public", records=400, **many)


class Assumed(NamedTuple):
    """What theory assumes, correctly or, when sabotaged, wrongly."""

    context: int = TASK.context
    scale: float = 1.0  # of the initial weights
    order: int = 1  # of the heads; -1 reverses it


class Errors(NamedTuple):
    """How one run differs from theory."""

    wrong_heads: int
    drop_errors: list[float]
    mean_gap: float


@cache
def all_errors(assumed: Assumed, offset: int) -> list[Errors]:
    return [errors_of(run, assumed) for run in each_seed(population_runs(offset, assumed != Assumed()))]


def errors_of(run: Run, assumed: Assumed) -> Errors:
    weights = {name: assumed.scale * array[:: assumed.order] for name, array in run.initial_weights.items()}
    prediction = icl.predict(run.task.replace(context=assumed.context), MODEL, weights=weights)
    time, loss = run.time.values, run.loss.values
    drops = observed_drops(run, time, loss, prediction)
    wrong = sum(drop.predicted_head != drop.observed_head for drop in drops)
    return Errors(wrong, drop_errors(drops), gaps(time, loss, prediction)[1])


@claim(bound=4, seeds="0-19")
def staircase_heads(sabotage: bool = False, offset: int = 0) -> float:
    """Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,
    eigenvalues .4 .3 .2 .1) determine which head learns which direction, but for near ties.
    Measured: wrong heads among 80 drops of the population flow
    """
    return float(sum(one.wrong_heads for one in all_errors(Assumed(order=-1) if sabotage else Assumed(), offset)))


@claim(bound=6e-5, seeds="0-19")
def staircase_drop_times(sabotage: bool = False, offset: int = 0) -> float:
    """Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,
    eigenvalues .4 .3 .2 .1) determine when every drop comes.
    Measured: relative error of the time of a drop, mean over 80 of the population flow
    """
    return float(
        np.mean([one.drop_errors for one in all_errors(Assumed(scale=1.01) if sabotage else Assumed(), offset)])
    )


@claim(bound=1.5e-5, source="Fig. 3a", seeds="0-19")
def staircase_loss_curve(sabotage: bool = False, offset: int = 0) -> float:
    """Small initial weights (law public, 1e-3: 2e-4 a key and query entry, 9e-5 a value entry; 5 heads of rank one,
    eigenvalues .4 .3 .2 .1) determine the whole loss curve.
    Measured: gap of the loss, mean over time and 20 runs of the population flow
    """
    assumed = Assumed(context=TASK.context - 1) if sabotage else Assumed()
    return float(np.mean([one.mean_gap for one in all_errors(assumed, offset)]))


@claim(bound=5, source="Sec. 4, Fig. 3a", seeds="0-19")
def staircase_order(sabotage: bool = False, offset: int = 0) -> float:
    """From small initial weights (law public, 1e-3: 2e-4 a key and query entry; eigenvalues .4 .3 .2 .1, none within a
    factor 1.3 of the next), the network has learned on a plateau the eigenvectors of the largest eigenvalues and no
    others, but for near ties.
    Measured: plateaus, out of 100 of 20 runs, in the middle of which a different set is learned
    """
    runs = population_runs(offset, sabotage)
    return float(sum(wrong_sets(runs.select(seed), rising=sabotage) for seed in runs.seeds))


def wrong_sets(run: Run, rising: bool) -> int:
    """Plateaus in the middle of which the learned eigenvectors are not the first by falling (or rising) eigenvalue."""
    ends = np.array([0.0, *drop_times(run, plateau_losses(TASK)), run.time.values[-1]])
    wrong = 0
    for count, middle in enumerate((ends[:-1] + ends[1:]) / 2):
        record = int(np.abs(run.weights["time"].values - middle).argmin())
        A = np.einsum("h,hij->ij", run.reduced.value[record], run.reduced.key_query[record])
        identified = identify(run.task, A)
        rank = np.arange(TASK.dim)[:: -1 if rising else 1]
        wrong += not identified.clean or bool(np.any(identified.learned != (rank < count)))
    return wrong


# --- the same on a finite sample --------------------------------------------------------------------------------------


@claim(bound=0.035, seeds="0-9")
def staircase_finite_sample(sabotage: bool = False, offset: int = 0) -> float:
    """Descent on 5000 sequences (law public, 1e-2: 2e-3 a key and query entry; 5 heads of rank one, no 1/N) follows the
    same theory when it is given the moments of the sample; where two heads are nearly tied a drop can be far off.
    Measured: relative error of the time of a drop, median over the first three drops of 10 runs
    """
    descent = {"init": 1e-2, "init_law": "public", "lr": 0.02, "steps": 40_000}
    many = {"seed": offset, "seeds": FEW if sabotage else 10}
    runs = train(shifted(PUBLIC, offset), MODEL, samples=5000, **many, **descent)
    comparisons = compare_seeds(runs, "population" if sabotage else "sample")
    return float(np.median([error for one in comparisons for error in drop_errors(one.drops[:3])]))


# --- how long a plateau lasts -----------------------------------------------------------------------------------------


@claim(bound=0.0025, seeds="0-4")
def staircase_one_over_init(sabotage: bool = False, offset: int = 0) -> float:
    """The length of every plateau of separate attention (5 heads of rank one, 1e-3 to 2.5e-4 an entry) is proportional
    to 1/init.
    Measured: |a + 1| in wait before a drop ~ init^a, median over 4 drops of 5 seeds
    """
    inits = [1e-3, 5e-4, 2.5e-4]
    model = icl.Merged(heads=8) if sabotage else MODEL
    waits = np.array([log_waits(model, init, offset).ravel() for init in inits])
    exponents = np.polyfit(np.log(inits), waits, 1)[0]
    return float(np.median(np.abs(exponents + 1)))


def log_waits(model: Model, init: float, offset: int) -> Float[np.ndarray, "seeds D"]:
    """The logarithm of the wait before every drop of every seed."""
    runs = train(shifted(TASK, offset), model, init=init, seed=offset, seeds=5)
    return np.array([np.log(waits(run)) for run in each_seed(runs)])


def waits(run: Run) -> Float[np.ndarray, " D"]:
    """The time before every drop, counted from the drop before it."""
    return np.diff(drop_times(run, plateau_losses(TASK)), prepend=0.0)


SEED, PUBLISHED_STEPS = 10, 10_001


@figure(source="Fig. 3a")
def saddle_to_saddle(fast: bool = False) -> Result:
    r"""Separate key and query of rank one: a staircase from saddle to saddle.

    (a) Six seeds at the published settings (5 heads, 80000 sequences, learning rate 0.02, initial weights with standard
    deviation 0.01 per entry), trained four times as long as the published 10001 steps (vertical line), so that all of
    them finish. Every plateau lies at a loss known in advance, $L(M_m)$, at which the $m$ leading eigenvectors of the
    token covariance have been learned. Dashed: the curve that theory predicts for each seed, from its initial weights
    and the moments of its sample. Theory leaves out that a sample pushes the vector blocks away from zero, which
    matters most for the last drop, whose drive is the weakest: that of seed 13 is off by a tenth. (b) The first of
    these seeds alone.
    """
    samples, seeds = (5000, 2) if fast else (80_000, 6)
    runs = train(PUBLIC, MODEL, samples=samples, init=1e-2, lr=0.02, steps=40_000, seed=SEED, seeds=seeds)
    comparisons = compare_seeds(runs)
    one, comparison = runs.select(SEED), comparisons[0]
    theory = comparison.prediction.loss(one.time.values)
    levels = plateau_losses(PUBLIC)
    figure, (left, right) = panels(2.7, 1, 2)
    kept = few(len(one.time))[1:]
    time = one.time.values
    for colour, seed, each in zip(shades(seeds), runs.seeds, comparisons, strict=True):
        left.plot(time[kept], runs.select(seed).loss.values[kept], color=colour, label=str(seed))
        left.plot(time[kept], each.prediction.loss(time[kept]), **{**THEORY, "lw": 0.8})
    theory_key(left)
    right.plot(time[kept], one.loss.values[kept], color=MODEL_COLOUR["separate"], lw=2.4, label=f"seed {SEED}")
    right.plot(time[kept], theory[kept], label="theory", **THEORY)

    first = 0.4 * min(each.prediction.drop_times[0] for each in comparisons)
    for ax, title in ((left, f"{seeds} seeds"), (right, "one seed")):
        ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05), title=title)
        ax.axvline(time[PUBLISHED_STEPS], ymax=0.3, color=GREY, lw=0.8, zorder=0)
        log_time(ax, first, time[-1])
        plateau_lines(ax, levels)
    left.legend(loc="upper right", title="seed", bbox_to_anchor=(1.02, 0.94), labelspacing=0.1)
    right.legend(loc="upper right", bbox_to_anchor=(1.02, 0.94))
    letters(left, right)
    tables = {f"seed {seed}": loss_table(runs.select(seed)) for seed in runs.seeds}
    errors = [error for each in comparisons for error in drop_errors(each.drops)]
    gaps = (
        Measured("median relative error of a drop time, all seeds", float(np.median(errors))),
        Measured(f"largest relative error of a drop time, seed {SEED}", max(drop_errors(comparison.drops))),
        Measured("median relative distance of a plateau from L(M_m), all seeds", plateau_error(comparisons, levels)),
    )
    predicted, numbered = loss_table(one, theory), pd.DataFrame({"m": np.arange(len(levels)), "level": levels})
    numbers = {"seeds": stacked(tables), "predicted": predicted, "levels": numbered}
    return Result(figure, numbers, gaps, {"seeds": runs.experiment})


def plateau_error(comparisons: list[Comparison], levels: Float[np.ndarray, " levels"]) -> float:
    """The median distance of the plateaus, detected on the curves alone, from the levels nearest to them."""
    observed = np.array([plateau.observed_level for comparison in comparisons for plateau in comparison.plateaus])
    return float(np.median(np.abs(observed[:, None] / levels - 1).min(axis=1)))


Times = Float[np.ndarray, " T"]
Values = Float[np.ndarray, "T H"]
Numbers = Int[np.ndarray, " m"]


@figure(source="Fig. 3b, Eq. 21")
def value_weights(fast: bool = False) -> Result:
    r"""Value weights: every head grows alone, by one scalar equation.

    (a) Heads that start aligned, each with one eigenvector. Their value weights follow the scalar equation of their
    eigenvalue $\lambda$ exactly; the wait grows as $\lambda^{-2}$. (b) Heads that start at random (flow on the
    population, standard deviation 0.001 per entry), in the colour of the eigenvector that they learn. The sizes, signs
    and times of the dashed curves are predicted from the initial weights. There is one head more than there are
    eigenvectors, and it stays silent (grey).
    """
    records = 200 if fast else 800
    aligned = train(TASK, icl.Separate(heads=4), init=0.05, init_law="aligned", records=records, tolerance=1e-11)
    end = 1.2 * icl.predict(TASK, MODEL, init=1e-3).end
    random = train(TASK, MODEL, init=1e-3, records=records, time=end)
    d = directions(TASK)
    figure, (left, right) = panels(2.7, 1, 2)
    time, alone = values(aligned)
    theory = np.stack([value_at(time, alone[0, h], d.drive[h], d.curvature[h]) for h in range(4)], axis=1)
    first = draw_values(left, time, alone, theory, {h: (rf"$\lambda = {x:.1f}$", h) for h, x in enumerate(d.query)})
    time, grown = values(random)
    prediction = compare_one(random, None).prediction
    predicted = prediction.values(time)
    second = draw_values(right, time, grown, predicted, learned(prediction.heads, prediction.directions))
    left.set(xlabel=r"time $t/\tau$", ylabel=r"value weight $v_i$", xlim=(0, None), title="aligned start")
    right.set(xlabel=r"time $t/\tau$", ylabel=r"value weight $v_i$", title="random start")
    log_time(right, 0.1 * prediction.drop_times[0], time[-1])
    left.legend(loc="center", bbox_to_anchor=(0.55, 0.42))
    right.legend(loc="lower left")
    letters(left, right)
    gaps = (
        Measured("largest gap between an aligned value weight and Eq. 21", float(np.abs(alone - theory).max())),
        Measured(
            "mean gap over ln t between a random one and its prediction", mean_over_log_time(time, grown - predicted)
        ),
    )
    experiments = {"aligned": aligned.experiment, "random": random.experiment}
    return Result(figure, {"aligned": first, "random": second}, gaps, experiments)


def values(run: icl.Run) -> tuple[Times, Values]:
    """The recorded times and the value weights of all heads."""
    return run.weights["time"].values, run.reduced.value


def learned(heads: Numbers, directions: Numbers) -> dict[int, tuple[str, int | None]]:
    """The heads in the order in which they grow, with the directions that they learn, then those that stay silent."""
    grow = {int(h): (rf"head {h + 1}: $e_{d + 1}$", int(d)) for h, d in zip(heads, directions, strict=True)}
    silent = [h for h in range(MODEL.heads) if h not in grow]
    return {**grow, **{h: (f"head {h + 1}", None) for h in silent}}


def draw_values(
    ax: Axes, time: Times, observed: Values, theory: Values, heads: Mapping[int, tuple[str, int | None]]
) -> pd.DataFrame:
    """Draw the value weights of heads with these names and directions, and return them as a table."""
    for h, (name, direction) in heads.items():
        colour = GREY if direction is None else COLOURS[direction]
        ax.plot(time, observed[:, h], color=colour, lw=2.2, label=name)
        ax.plot(time, theory[:, h], **THEORY)
    theory_key(ax)
    columns = {"time": time}
    for h in sorted(heads):
        columns |= {f"v{h}": observed[:, h], f"v{h}_theory": theory[:, h]}
    return pd.DataFrame(columns)


def mean_over_log_time(time: Times, difference: Values) -> float:
    """The absolute difference, averaged over heads and over the logarithm of time."""
    x = np.log(time[1:])
    return float(np.trapezoid(np.abs(difference[1:]).mean(axis=1), x) / (x[-1] - x[0]))


@figure(source="Fig. 3c")
def weight_maps(fast: bool = False) -> Result:
    r"""The weights on every plateau: one more head has learned one more eigenvector.

    Keys, queries and values of the five heads in the middle of each plateau of one run (flow on the population), in the
    eigenbasis $e_1, .., e_4$ of the token covariance, with eigenvalues decreasing from left to right. From one plateau
    to the next a single head grows, with its key and query along a single eigenvector and of equal size. Blue is
    positive and red is negative; all panels share one colour scale. Beside each row: the value weight of the newest
    head, and the cube root of the strength that theory predicts for it.
    """
    init = 3e-3 if fast else 1e-3
    prediction = icl.predict(TASK, MODEL, init=init)
    run = train(TASK, MODEL, init=init, records=1000, time=1.5 * prediction.end)
    d = directions(TASK)
    drops = prediction.drop_times
    middles = [drops[0] / 2, *((drops[:-1] + drops[1:]) / 2), run.time.values[-1]]
    records = [int(np.argmin(np.abs(run.weights["time"].values - t))) for t in middles]
    rows, worst = [], 0.0
    figure, axes = panels(6.6, len(records), 3, width_ratios=[4, 4, 1])
    for m, (record, line) in enumerate(zip(records, axes, strict=True)):
        key, query = (array[record, :, 0] for array in run.reduced.keys_and_queries)
        maps = {"key": key @ d.left, "query": query @ d.right, "value": run.reduced.value[record, :, None]}
        for ax, (name, array) in zip(line, maps.items(), strict=True):
            image = ax.imshow(array, cmap="RdBu", vmin=-2.0, vmax=2.0, aspect="auto")
            dress(ax, name, m, len(records))
            rows += [
                {"plateau": m, "weights": name, "head": h + 1, "direction": c + 1, "entry": x}
                for (h, c), x in np.ndenumerate(array)
            ]
        if m > 0:
            head, direction = prediction.heads[m - 1], prediction.directions[m - 1]
            size = d.strength[direction] ** (1 / 3)
            grown = [abs(maps["key"][head, direction]), abs(maps["query"][head, direction]),
                     abs(maps["value"][head, 0])]  # fmt: skip
            worst = max(worst, *(abs(x / size - 1) for x in grown))
            value = maps["value"][head, 0]
            text = f"head {head + 1}\n$v = {value:.3f}$\ntheory: ${np.sign(value) * size:.3f}$"
            line[2].annotate(text, (1.1, 0.5), xycoords="axes fraction", va="center", linespacing=1.4, fontsize=9)
    letters(*axes[0])
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("entry of the key, query or value")
    gap = Measured("largest relative distance of a newly grown key, query or value from theory", worst)
    return Result(figure, {"": pd.DataFrame(rows)}, (gap,), {"run": run.experiment})


def dress(ax: Axes, name: str, m: int, rows: int) -> None:
    """Label one map of row m."""
    ax.set_yticks(range(MODEL.heads), [str(h + 1) for h in range(MODEL.heads)] if name == "key" else [])
    ax.set_xticks(range(TASK.dim) if name != "value" else [])
    ax.set_xticklabels([f"$e_{i + 1}$" for i in range(TASK.dim)] if m == rows - 1 and name != "value" else [])
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color=GREY, lw=0.5)
    if name == "key":
        ax.set_ylabel(f"plateau $M_{m}$\nhead")
    if name != "value" and m == rows - 1:
        ax.set_xlabel("eigenvector")
    if m == 0:
        ax.set_title({"key": "keys", "query": "queries", "value": "values"}[name])
