"""Minibatches: the growth rate with noise, the floor above the minimum, and how drop times spread from run to run."""

from typing import Any

import numpy as np
import pandas as pd

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.experiment import Experiment
from iclflow.figures.style import COLOURS, THEORY, few_ticks, letters, plateau_lines, theory_key
from iclflow.models import Model
from iclflow.prediction.batches import GROWTH, balanced_heads, fresh_draws
from iclflow.prediction.result import Prediction
from iclflow.prediction.sample import sample_draws, sample_landscape, sequences_of
from iclflow.results.run import Run
from iclflow.studies.measures import each_seed, panels, shifted, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import directions, landscape, plateau_losses
from iclflow.theory.minibatches import merged_growth, noise_at
from iclflow.theory.separate import rank_optimum
from iclflow.units import clock_rate

TASK = icl.Task(dim=4, context=31)
SMALL = icl.Task(dim=2, context=31)  # for claims that need many runs
SAMPLE, BATCH = 4096, 64
MODELS: dict[str, Model] = {"merged": icl.Merged(heads=1), "separate": icl.Separate(heads=2)}


@claim(bound=0.015, seeds="0 to 63")
def minibatch_growth(sabotage: bool = False, offset: int = 0) -> float:
    """With minibatches of B fresh sequences merged attention leaves its plateau at the rate E log|1 + h z_B|/h.
    Measured: relative error of the mean growth rate of 64 runs of 1000 steps, B = 32, lr 1, vector blocks frozen
    """
    task, model, batch, lr, steps = shifted(TASK, offset), icl.Merged(heads=1), 32, 1.0, 1000
    _, grown = growth(task, model, batch, lr, steps, offset, 4 if sabotage else 64)
    step = clock_rate(task, model) * lr
    rate = merged_growth(fresh_draws(task, GROWTH), landscape(task).cross, batch // 4 if sabotage else batch, step).rate
    return abs(rate / (grown / (steps * step)) - 1)


def growth(task: icl.Task, model: Model, batch: int, lr: float, steps: int, seed: int, seeds: int) -> tuple[Run, float]:
    """Runs on the plateau of merged attention, and the mean logarithm by which their value grows."""
    settings: dict[str, Any] = {"init": 1e-150, "init_law": "aligned", "freeze_vectors": True, "records": 2}
    runs = train(task, model, batch=batch, lr=lr, steps=steps, seed=seed, seeds=seeds, **settings)
    size = lambda weights: float(np.log(np.abs(weights["value"]).max()))
    return runs, float(np.mean([size(run.final_weights) - size(run.initial_weights) for run in each_seed(runs)]))


@claim(bound=0.055, seeds="0 to 7")
def minibatch_floor(sabotage: bool = False, offset: int = 0) -> float:
    """Batches of B sequences of a sample keep the loss above its minimum by about h tr C/(2B), C the covariance of the
    force, less where a mode is slower than an epoch.
    Measured: relative error of the mean loss of epochs 6 to 40 above the minimum over eight samples of 4096, the larger
    of merged and separate; B = 64, lr .05, vector blocks frozen
    """
    task, worst = shifted(SMALL, offset), 0.0
    for model in MODELS.values():
        seeds = range(offset, offset + (1 if sabotage else 8))
        floors = [floor(task, model, 0.05, seed, 2 * BATCH if sabotage else BATCH) for seed in seeds]
        seen, expected = sum(seen for _, seen, _ in floors), sum(expected for *_, expected in floors)
        worst = max(worst, abs(expected / seen - 1))
    return worst


def floor(task: icl.Task, model: Model, lr: float, seed: int, assumed: int = BATCH) -> tuple[Run, float, float]:
    """A run on batches of a sample, its mean loss above the minimum, and what theory expects for some batch size."""
    epoch = SAMPLE // BATCH
    settings: dict[str, Any] = {"samples": SAMPLE, "batch": BATCH, "lr": lr, "records": 2, "freeze_vectors": True}
    L = sample_landscape(train(task, model, seed=seed, steps=1, **settings))
    A = rank_optimum(L, task.dim)
    run = train(task, model, seed=seed, weights=model.balanced(A, task), steps=40 * epoch, **settings)
    noise = noise_at(sample_draws(sequences_of(run), tokens=False), balanced_heads(model, task, A), True)
    assert noise is not None
    step = clock_rate(task, model) * lr
    expected = noise.floor(assumed, step, time=20 * epoch * step, epoch=epoch)
    return run, float(run.loss.values[5 * epoch : 40 * epoch].mean()) - L.loss(A), expected


@claim(bound=0.4, seeds="0 to 51")
def minibatch_spread(sabotage: bool = False, offset: int = 0) -> float:
    """With minibatches the first drop of separate attention spreads from run to run by the noise along the gradient of
    its time.
    Measured: relative error of the standard deviation over 50 runs, median of three draws of weights; B = 32, lr .2,
    init .05
    """
    return float(np.median([spread_error(seed, sabotage) for seed in range(offset, offset + (1 if sabotage else 3))]))


def spread_error(seed: int, sabotage: bool) -> float:
    """That of one draw of weights."""
    task, model, batch, lr = shifted(SMALL, seed), icl.Separate(heads=2), 32, 0.2
    flow = icl.predict(task, model, init=0.05, seed=seed)
    weights = train(task, model, init=0.05, seed=seed, lr=lr, steps=1).initial_weights
    steps = int(1.35 * flow.drop_times[0] / (clock_rate(task, model) * lr))
    runs = train(
        task, model, weights=weights, batch=batch, lr=lr, steps=steps, seed=seed, seeds=10 if sabotage else 50,
        freeze_vectors=True, records=60, spacing="even",
    )  # fmt: skip
    d = directions(task)
    middle = float(d.base - d.saved[0] / 2)
    L, found = landscape(task), []
    for run in each_seed(runs):
        heads = [model.reduced(w, task) for w in run.snapshots()]
        losses = np.array([L.loss(np.einsum("h,hij->ij", h.value, h.key_query)) for h in heads])
        time = crossing(run.weights["time"].values, losses, middle)
        found.append(np.nan if time is None else time)
    predicted = icl.predict(task, model, weights=weights, batch=4 * batch if sabotage else batch, lr=lr)
    low, high = predicted.drop_intervals[0]
    return abs(float((high - low) / (2 * 1.96) / np.nanstd(found, ddof=1)) - 1)


STEPS = (0.5, 1.0, 1.5, 2.0)  # t/tau of one step, for growth
BATCHES = (16, 64)
RATES = (0.02, 0.05, 0.1, 0.2)  # learning rates, for the floor
SCATTERED: dict[str, Any] = {"batch": 64, "lr": 0.2, "freeze_vectors": True}


@figure()
def minibatches(fast: bool = False) -> Result:
    r"""Minibatches: slower growth, scattered drops, a floor.

    Every step sees $B$ sequences, and only their mean pulls on the weights. (a) Merged attention leaves its plateau at
    the rate $\mathbb{E}\log|1 + h z_B|/h$, below the rate of large batches, here over that of gradient flow, against
    the step $h$ (dots: the mean of a few runs; dashed: theory). (b) Separate key and query from one draw of initial
    weights, trained on 24 different streams of batches; the drops come earlier or later from run to run (dashed: the
    predicted course; bars: where theory expects 95 % of the drop times, to first order in the noise; from weights as
    large as these the second drop scatters more). (c) At the end the loss stays above its minimum, by about
    $h\,\mathrm{tr}\,C/(2B)$ where $C$ is the covariance of the force of one sequence; here for batches of 64 out of a
    sample of 4096, averaged over epochs 6 to 40 (dashed: theory, which knows how long an epoch is). Vector blocks are
    frozen.
    """
    rates, growing = growth_table(fast)
    floors, resting = floor_table(fast)
    scatter, curves, predicted, scattering = scattered(6 if fast else 24)
    figure, (left, middle, right) = panels(2.7, 1, 3)
    for colour, (batch, own) in zip(COLOURS, rates.groupby("batch"), strict=False):
        left.plot(own.step, own.measured, "o", ms=4, color=colour, label=f"$B$ = {batch}")
        left.plot(own.step, own.theory, **THEORY)
    left.set(xlabel=r"step $h$, $t/\tau$", ylabel=r"growth rate / $|C_1|$", ylim=(0.6, 1.0))
    theory_key(left)
    left.legend(loc="lower left")
    for _, own in curves.groupby("seed"):
        middle.plot(own.time, own.loss, color=COLOURS[0], lw=0.5, alpha=0.6)
    times = np.linspace(0, curves.time.max(), 600)
    middle.plot(times, predicted.loss(times), **THEORY)
    middles = (predicted.levels[1:] + predicted.levels[:-1]) / 2
    spans = np.abs(predicted.drop_intervals.T - predicted.drop_times)
    middle.errorbar(predicted.drop_times, middles, xerr=spans, fmt="none", ecolor=COLOURS[1], capsize=3, zorder=5)
    middle.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05))
    plateau_lines(middle, plateau_losses(SMALL))
    for colour, (name, own) in zip(COLOURS[2:], floors.groupby("model"), strict=False):
        right.plot(own.step, own.measured, "o", ms=4, color=colour, label=name)
        right.plot(own.step, own.theory, **THEORY)
    right.set(xlabel=r"step $h$, $t/\tau$", ylabel="loss above the minimum", xscale="log", yscale="log")
    few_ticks(right.xaxis, (0.05, 0.1, 0.2, 0.4))
    few_ticks(right.yaxis, (0.0005, 0.001, 0.002, 0.005))
    theory_key(right)
    right.legend(loc="upper left")
    letters(left, middle, right)
    gaps = (
        Measured("largest relative error of a floor", float((floors.theory / floors.measured - 1).abs().max())),
        Measured("largest relative error of a growth rate", float((rates.theory / rates.measured - 1).abs().max())),
        Measured(
            "share of drop times outside their 95 % intervals",
            float(np.mean([not low <= time <= high for _, _, time, low, high in scatter.itertuples(index=False)])),
        ),
        *(
            Measured(f"relative error of the standard deviation of drop {m}", relative_spread_error(own))
            for m, own in scatter.groupby("drop")
        ),
    )
    tables = {"growth": rates, "floor": floors, "drops": scatter, "curves": curves}
    return Result(figure, tables, gaps, {**growing, **scattering, **resting})


def growth_table(fast: bool) -> tuple[pd.DataFrame, dict[str, Experiment]]:
    """Growth rates of merged attention on its plateau, measured and predicted, over that of the flow."""
    model, rows, runs = icl.Merged(heads=1), [], {}
    size = float(np.linalg.norm(landscape(TASK).cross))
    for batch in BATCHES[1:] if fast else BATCHES:
        for step in STEPS[1:] if fast else STEPS:
            lr, count, seeds = step / clock_rate(TASK, model), 200 if fast else 800, 2 if fast else 512 // batch
            many, grown = growth(TASK, model, batch, lr, count, 0, seeds)
            theory = merged_growth(fresh_draws(TASK, GROWTH), landscape(TASK).cross, batch, step).rate
            measured = grown / (count * step)
            rows.append({"batch": batch, "step": step, "measured": measured / size, "theory": theory / size})
            runs[f"growth, B = {batch}, step {step:g}"] = many.experiment
    return pd.DataFrame(rows), runs


def floor_table(fast: bool) -> tuple[pd.DataFrame, dict[str, Experiment]]:
    """The mean loss above the minimum of batches from a sample, measured and predicted."""
    rows, runs = [], {}
    for name, model in MODELS.items():
        for lr in RATES[1:3] if fast else RATES:
            run, seen, expected = floor(SMALL, model, lr, seed=0)
            step = lr * clock_rate(SMALL, model)
            rows.append({"model": name, "step": step, "measured": seen, "theory": expected})
            runs[f"floor, {name}, lr {lr:g}"] = run.experiment
    return pd.DataFrame(rows), runs


def scattered(count: int) -> tuple[pd.DataFrame, pd.DataFrame, Prediction, dict[str, Experiment]]:
    """Drop times and exact losses of many runs from one draw of weights, and the prediction for them."""
    model, L = icl.Separate(heads=3), landscape(SMALL)
    weights = train(SMALL, model, init=0.05, lr=0.2, steps=1).initial_weights
    predicted = icl.predict(SMALL, model, weights=weights, **SCATTERED)
    steps = int(1.6 * predicted.drop_times[-1] / (clock_rate(SMALL, model) * SCATTERED["lr"]))
    runs = train(
        SMALL, model, weights=weights, steps=steps, seeds=count, records=150, spacing="even", **SCATTERED
    )  # fmt: skip
    middles = (plateau_losses(SMALL)[1:] + plateau_losses(SMALL)[:-1]) / 2
    curves, rows = [], []
    for seed in runs.seeds:
        run = runs.select(seed)
        heads = [model.reduced(w, SMALL) for w in run.snapshots()]
        losses = np.array([L.loss(np.einsum("h,hij->ij", one.value, one.key_query)) for one in heads])
        time = run.weights["time"].values
        curves.append(pd.DataFrame({"seed": seed, "time": time, "loss": losses}))
        for m, middle in enumerate(middles):
            when = crossing(time, losses, float(middle))
            low, high = predicted.drop_intervals[m]
            rows.append(
                {"seed": seed, "drop": m + 1, "time": np.nan if when is None else when, "low": low, "high": high}
            )
    return pd.DataFrame(rows), pd.concat(curves), predicted, {"scattered drops": runs.experiment}


def relative_spread_error(own: pd.DataFrame) -> float:
    """The relative error of the predicted standard deviation of a drop time."""
    predicted = float((own.high - own.low).mean()) / (2 * 1.96)
    return abs(predicted / float(own.time.std()) - 1)
