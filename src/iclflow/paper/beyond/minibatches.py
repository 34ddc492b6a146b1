r"""Minibatches: slower growth, scattered drops, a floor.

Every step sees $B$ sequences, and only their mean pulls on the weights. (a) Merged attention leaves its plateau at the
rate $\mathbb{E}\log|1 + h z_B|/h$, below the rate of large batches, here over that of gradient flow, against the step
$h$ (dots: the mean of a few runs; dashed: theory). (b) Separate key and query from one draw of initial weights, trained
on 24 different streams of batches; the drops come earlier or later from run to run (dashed: the predicted course; bars:
where theory expects 95 % of the drop times, to first order in the noise; from weights as large as these the second drop
scatters more). (c) At the end the loss stays above its minimum, by about $h\,\mathrm{tr}\,C/(2B)$ where $C$ is the
covariance of the force of one sequence; here for batches of 64 out of a sample of 4096, averaged over epochs 6 to 40
(dashed: theory, which knows how long an epoch is). Vector blocks are frozen.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.experiment import Experiment
from iclflow.figures.style import COLOURS, THEORY, WIDTH, few_ticks, letters, plateau_lines, styled, theory_key
from iclflow.models import Model
from iclflow.paper.drawn import Drawn, Gap
from iclflow.prediction.batches import GROWTH, balanced_heads, fresh_draws
from iclflow.prediction.result import Prediction
from iclflow.prediction.sample import sample_draws, sample_landscape, sequences_of
from iclflow.theory import landscape, plateau_losses
from iclflow.theory.minibatches import merged_growth, noise_at
from iclflow.theory.separate import rank_optimum
from iclflow.units import clock_rate

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK = icl.Task(dim=4, context=31)
SMALL = icl.Task(dim=2, context=31)
STEPS = (0.5, 1.0, 1.5, 2.0)  # t/tau of one step, for growth
BATCHES = (16, 64)
SAMPLE, BATCH = 4096, 64
RATES = (0.02, 0.05, 0.1, 0.2)  # learning rates, for the floor
SCATTERED: dict[str, Any] = {"batch": 64, "lr": 0.2, "freeze_vectors": True}


def draw(fast: bool = False) -> Drawn:
    growth, growing = growth_table(fast)
    floors, resting = floor_table(fast)
    scatter, curves, predicted, scattering = scattered(6 if fast else 24)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3)
        for colour, (batch, own) in zip(COLOURS, growth.groupby("batch"), strict=False):
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
        Gap("largest relative error of a floor", float((floors.theory / floors.measured - 1).abs().max())),
        Gap("largest relative error of a growth rate", float((growth.theory / growth.measured - 1).abs().max())),
        Gap(
            "share of drop times outside their 95 % intervals",
            float(np.mean([not low <= time <= high for _, _, time, low, high in scatter.itertuples(index=False)])),
        ),
        *(
            Gap(f"relative error of the standard deviation of drop {m}", spread_error(own))
            for m, own in scatter.groupby("drop")
        ),
    )
    tables = {"growth": growth, "floor": floors, "drops": scatter, "curves": curves}
    return Drawn(figure, tables, gaps, {**growing, **scattering, **resting})


def growth_table(fast: bool) -> tuple[pd.DataFrame, dict[str, Experiment]]:
    """Growth rates of merged attention on its plateau, measured and predicted, over that of the flow."""
    model, rows, runs = icl.Merged(heads=1), [], {}
    size = float(np.linalg.norm(landscape(TASK).cross))
    for batch in BATCHES[1:] if fast else BATCHES:
        for step in STEPS[1:] if fast else STEPS:
            settings: dict[str, Any] = {"init": 1e-150, "init_law": "aligned", "batch": batch, "freeze_vectors": True}
            lr, count, seeds = step / clock_rate(TASK, model), 200 if fast else 800, 2 if fast else 512 // batch
            many = icl.train(TASK, model, lr=lr, steps=count, seeds=seeds, records=2, **settings)
            log_size = lambda weights: float(np.log(np.abs(weights["value"]).max()))
            grown = [log_size(r.final_weights) - log_size(r.initial_weights) for r in map(many.select, many.seeds)]
            theory = merged_growth(fresh_draws(TASK, GROWTH), landscape(TASK).cross, batch, step).rate
            measured = float(np.mean(grown)) / (count * step)
            rows.append({"batch": batch, "step": step, "measured": measured / size, "theory": theory / size})
            runs[f"growth, B = {batch}, step {step:g}"] = many.experiment
    return pd.DataFrame(rows), runs


def floor_table(fast: bool) -> tuple[pd.DataFrame, dict[str, Experiment]]:
    """The mean loss above the minimum of batches from a sample, measured and predicted."""
    rows, runs, epoch = [], {}, SAMPLE // BATCH
    models: dict[str, Model] = {"merged": icl.Merged(heads=1), "separate": icl.Separate(heads=2)}
    settings: dict[str, Any] = {"samples": SAMPLE, "batch": BATCH, "records": 2, "freeze_vectors": True}
    for name, model in models.items():
        for lr in RATES[1:3] if fast else RATES:
            L = sample_landscape(icl.train(SMALL, model, lr=lr, steps=1, **settings))
            A = rank_optimum(L, SMALL.dim)
            run = icl.train(SMALL, model, lr=lr, steps=40 * epoch, weights=model.balanced(A, SMALL), **settings)
            seen = float(run.loss.values[5 * epoch : 40 * epoch].mean()) - L.loss(A)
            noise = noise_at(sample_draws(sequences_of(run), tokens=False), balanced_heads(model, SMALL, A), True)
            assert noise is not None
            step = lr * clock_rate(SMALL, model)
            expected = noise.floor(BATCH, step, time=20 * epoch * step, epoch=epoch)
            rows.append({"model": name, "step": step, "measured": seen, "theory": expected})
            runs[f"floor, {name}, lr {lr:g}"] = run.experiment
    return pd.DataFrame(rows), runs


def scattered(count: int) -> tuple[pd.DataFrame, pd.DataFrame, Prediction, dict[str, Experiment]]:
    """Drop times and exact losses of many runs from one draw of weights, and the prediction for them."""
    model, L = icl.Separate(heads=3), landscape(SMALL)
    weights = icl.train(SMALL, model, init=0.05, lr=0.2, steps=1).initial_weights
    predicted = icl.predict(SMALL, model, weights=weights, **SCATTERED)
    steps = int(1.6 * predicted.drop_times[-1] / (clock_rate(SMALL, model) * SCATTERED["lr"]))
    runs = icl.train(
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


def spread_error(own: pd.DataFrame) -> float:
    """The relative error of the predicted standard deviation of a drop time."""
    predicted = float((own.high - own.low).mean()) / (2 * 1.96)
    return abs(predicted / float(own.time.std()) - 1)
