r"""The second staircase belongs to finite contexts.

Two layers of separate key and query, label blocks trained by descent on the population. (a) The loss at four lengths
$N$ of the context from the same initial weights ($D = 2$), with the forecast from these weights alone (dashed). The
first drop stays where it is: at zero every layer feels the same force whatever $N$. The second staircase comes from the
fluctuations of the context's covariance: it ends lower the longer the context is, and where its drops come depends on
which layer has taken which direction. (b) The wait between the drop in which a single direction is learned ($D = 1$)
and the one in which the other layer learns it again, for three draws of initial weights (dashed: forecast). The grey
dotted line, moved to the shortest context of the first draw, is proportional to the inverse of the relearning drive,
$1/[M_3/(1+x)^2 - 1]$ with $x = (D+1)/N$, which is about $N/(D+1)$ for long contexts. (c) The last loss of the runs in
(a) (circles) and the lowest losses that theory gives to one (dotted) and to two steps (dashed) of gradient descent in
context.
"""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, WIDTH, few_ticks, letters, log_time, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, loss_table, stacked
from iclflow.results.run import Run
from iclflow.theory.depth import lowest_loss, white_drive

__all__ = ["crossings", "draw", "rate"]

SOURCE = "beyond the paper"
MODEL, INIT, CONTEXTS = icl.Separate(heads=3, layers=2), 1e-2, 128
LENGTHS, FAST_LENGTHS = (8, 16, 31, 62), (8, 12, 16)
SINGLE, SINGLE_INIT, SEEDS = icl.Task(dim=1), 2e-3, 3  # one direction in the middle


def draw(fast: bool = False) -> Drawn:
    dim, lengths = (1, FAST_LENGTHS) if fast else (2, LENGTHS)
    tasks = {n: icl.Task(dim=dim, context=n) for n in lengths}
    forecasts = {n: icl.predict(task, MODEL, init=INIT) for n, task in tasks.items()}
    runs = {n: trained(task, 1.3 * float(forecasts[n].drop_times[-1]), INIT) for n, task in tasks.items()}
    waits = second_waits(lengths, 1 if fast else SEEDS)
    seen = {n: crossings(run, forecasts[n].levels) for n, run in runs.items()}
    times = pd.DataFrame(
        {"context": n, "drop": m + 1, "direction": int(f.directions[m]) + 1, "time": seen[n][m], "theory": time}
        for n, f in forecasts.items()
        for m, time in enumerate(f.drop_times)
    )
    ends = pd.DataFrame(
        {
            "context": n, "final_loss": float(run.loss.values[-1]),
            "one_step": lowest_loss(tasks[n], 1), "two_steps": lowest_loss(tasks[n], 2),
        }
        for n, run in runs.items()
    )  # fmt: skip
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
        for colour, (n, run) in zip(COLOURS, runs.items(), strict=False):
            kept = run.time.values > 0
            left.plot(run.time.values[kept], run.loss.values[kept], color=colour, label=str(n))
            left.plot(run.time.values[kept], forecasts[n].loss(run.time.values[kept]), **THEORY)
        log_time(
            left, 0.5 * min(f.drop_times[0] for f in forecasts.values()), max(r.time.values[-1] for r in runs.values())
        )
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", yscale="log")
        theory_key(left)
        left.legend(title="context $N$", loc="lower left")
        for colour, (_, own) in zip(COLOURS, waits.groupby("seed"), strict=False):
            middle.plot(own.context, own.theory, **THEORY)
            middle.plot(own.context, own.wait, "o", ms=4, mfc="none", color=colour)
        drive = np.array([white_drive(1, n) for n in lengths])
        middle.plot(lengths, waits.theory.iloc[0] * drive[0] / drive, color=GREY, lw=0.9, ls=":")
        middle.set(xscale="log", yscale="log", xlabel="context $N$", ylabel=r"second wait $\Delta t/\tau$")
        right.plot(ends.context, ends.one_step, color=BLACK, lw=1.1, ls=":", label="theory, one step")
        right.plot(ends.context, ends.two_steps, label="theory, two steps", **THEORY)
        right.plot(ends.context, ends.final_loss, "o", ms=4, mfc="none", color=COLOURS[0], label="runs")
        right.set(xscale="log", yscale="log", xlabel="context $N$", ylabel="last loss")
        right.set_ylim(top=2.0)  # room for the legend
        for ax in (middle, right):
            few_ticks(ax.xaxis, lengths)
        right.legend(loc="upper right")
        letters(left, middle, right)
    error = (times.time / times.theory - 1).abs()
    gaps = (
        Gap("largest relative error of a drop time of the first staircase", float(error[times["drop"] <= dim].max())),
        Gap("median relative error of a drop time of the second staircase", float(error[times["drop"] > dim].median())),
        Gap(
            "largest relative error of the wait of a single direction",
            float((waits.wait / waits.theory - 1).abs().max()),
        ),
        Gap(
            "largest relative distance of the last loss from two steps",
            float((ends.final_loss / ends.two_steps - 1).abs().max()),
        ),
    )
    curves = {f"N = {n}": loss_table(run, forecasts[n].loss(run.time.values)) for n, run in runs.items()}
    names = {f"N = {n}": run.experiment for n, run in runs.items()}
    return Drawn(figure, {"curves": stacked(curves), "drop times": times, "waits": waits, "ends": ends}, gaps, names)


def trained(task: icl.Task, end: float, init: float, seed: int = 0) -> Run:
    """Descent on the label blocks until some time t/tau."""
    settings = {"freeze_vectors": True, "gram_samples": CONTEXTS * task.dim**2, "records": 2, "progress": False}
    return icl.train(
        task, MODEL, init=init, seed=seed, data_seed=0, lr=rate(task), steps=int(end / (2 * rate(task))), **settings
    )


def rate(task: icl.Task) -> float:
    """A learning rate below the edge of stability, which a single direction of variance one has at a third."""
    return 0.2 if task.dim == 1 else 0.4


def second_waits(lengths: tuple[int, ...], seeds: int) -> pd.DataFrame:
    """The time between the two drops of a single direction, seen and forecast."""
    rows = []
    for seed, n in product(range(seeds), lengths):
        task = SINGLE.replace(context=n)
        forecast = icl.predict(task, MODEL, init=SINGLE_INIT, seed=seed)
        first, second, *_ = forecast.drop_times
        seen = crossings(trained(task, 1.3 * float(second), SINGLE_INIT, seed), forecast.levels)
        rows.append({"seed": seed, "context": n, "wait": seen[1] - seen[0], "theory": float(second - first)})
    return pd.DataFrame(rows)


def crossings(run: Run, levels: np.ndarray) -> list[float]:
    """When the loss passes half-way between each two levels; not a number if it does not."""
    loss, found = run.loss.values, []
    for half in (levels[:-1] + levels[1:]) / 2:
        at = int(np.argmax(loss < half))
        found.append(float(run.time.values[at]) if loss[at] < half else np.nan)
    return found
