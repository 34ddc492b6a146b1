r"""With more layers there is a second staircase.

Separate key and query of rank one in one, two and three layers, gradient flow on the population with the label blocks
trained, from the first seed whose forecast intervals are narrower than a quarter at every depth. (a) The loss, with the
forecast from the initial weights alone (dashed) and its plateaus (dotted). Every layer races for the same directions,
so the first drops are those of one layer, scattered over all of them. Then, far below the lowest loss of one layer,
come further drops, one for every direction and further layer: layers learn directions that others hold already, with
drives that are smaller by about $(D + 1)/N$. The later a drop of the second staircase, the less certain is its
forecast: of three layers, the last plateau but one is lower and the last drop comes two thirds later than forecast,
outside its interval (no forecast for three layers calls itself reliable). (b, c) Which layer of the networks with two
and three layers holds how much of which direction $e_d$, relative to the strength at which one layer would learn it
(dotted: forecast times of the drops). The end is as many steps of preconditioned gradient descent in context as there
are layers, shorter and longer than a single step would be.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import iclflow as icl
from iclflow.comparison.gains import head_shares
from iclflow.figures.style import COLOURS, GREY, THEORY, WIDTH, letters, log_time, shades, styled, theory_key
from iclflow.paper.beyond.depth_context import crossings
from iclflow.paper.drawn import Drawn, Gap, loss_table, stacked
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK, FAST_TASK = icl.Task(dim=2, context=20), icl.Task(dim=1, context=20)
LAYERS, HEADS, INIT, CONTEXTS, SEED = (1, 2, 3), 2, 1e-2, 512, 6
WIDTHS = (3.4, 1.8, 0.8)  # of the lines of the first, second and third layer
DROPS: dict[str, Any] = {"color": GREY, "lw": 0.8, "ls": ":"}


def draw(fast: bool = False) -> Drawn:
    task, heads, init = (FAST_TASK, 1, 5 * INIT) if fast else (TASK, HEADS, INIT)
    models = {layers: icl.Separate(heads=heads, layers=layers) for layers in LAYERS}
    forecasts = {layers: icl.predict(task, model, init=init, seed=SEED) for layers, model in models.items()}
    how = {"init": init, "seed": SEED, "freeze_vectors": True, "gram_samples": CONTEXTS * task.dim**2}
    runs = {layers: icl.train(task, model, progress=False, **how) for layers, model in models.items()}
    held = {layers: shares(runs[layers]) for layers in LAYERS[1:]}
    first = 0.5 * min(f.drop_times[0] for f in forecasts.values())
    with styled():
        figure = Figure(figsize=(WIDTH, 3.1))
        left, *others = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
        for colour, (layers, run) in zip(shades(len(runs)), runs.items(), strict=True):
            kept = run.time.values > 0
            left.plot(run.time.values[kept], run.loss.values[kept], color=colour, lw=2.2, label=str(layers))
            left.plot(run.time.values[kept], forecasts[layers].loss(run.time.values[kept]), **THEORY)
            for level in forecasts[layers].levels[1:]:
                left.axhline(level, color=GREY, lw=0.6, ls=":", zorder=0)
        log_time(left, first, max(run.time.values[-1] for run in runs.values()))
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", yscale="log")
        theory_key(left)
        left.legend(title="layers", loc="lower left")
        for ax, (layers, own) in zip(others, held.items(), strict=True):
            show_shares(ax, own, forecasts[layers])
            log_time(ax, first, runs[layers].time.values[-1])
            ax.set(xlabel=r"time $t/\tau$", ylabel="share of the strength", title=f"{layers} layers")
        keys = [Line2D([], [], color=GREY, lw=lw, label=f"layer {n}") for n, lw in enumerate(WIDTHS, 1)]
        keys += [Line2D([], [], color=COLOURS[d], lw=1.9, label=f"$e_{d + 1}$") for d in range(task.dim)]
        keys += [Line2D([], [], label="theory: drops", **DROPS)]
        figure.legend(handles=keys, loc="outside lower right", ncols=len(keys), columnspacing=1.2)
        letters(left, *others)
    drops = pd.concat([drop_table(runs[n], forecasts[n], heads) for n in LAYERS], ignore_index=True)
    error = (drops.time / drops.theory - 1).abs().fillna(np.inf)  # a drop that has not come is infinitely late
    second = drops["drop"] > task.dim
    ends = [abs(runs[n].loss.values[-1] / forecasts[n].levels[-1] - 1) for n in LAYERS]
    gaps = (
        Gap("largest relative error of a drop time of the first staircase", float(error[~second].max())),
        Gap("median relative error of a drop time of the second staircase", float(error[second].median())),
        Gap("largest relative error of a drop time of the second staircase", float(error[second].max())),
        Gap("largest relative distance of the end from the forecast level", float(max(ends))),
    )
    tables = {f"{n} layers": loss_table(run, forecasts[n].loss(run.time.values)) for n, run in runs.items()}
    names = {f"{n} layers": run.experiment for n, run in runs.items()}
    shared = stacked({f"{n} layers": own for n, own in held.items()})
    return Drawn(figure, {"curves": stacked(tables), "drop times": drops, "shares": shared}, gaps, names)


def show_shares(ax: Axes, held: pd.DataFrame, forecast: Prediction) -> None:
    """What every layer holds: colour is direction, width is layer; with the forecast times of the drops."""
    for (layer, direction), own in held.groupby(["layer", "direction"]):
        ax.plot(own.time, own.share, color=COLOURS[int(direction) - 1], lw=WIDTHS[int(layer) - 1])
    for time in forecast.drop_times:
        ax.axvline(time, zorder=0, **DROPS)


def drop_table(run: Run, forecast: Prediction, heads: int) -> pd.DataFrame:
    """Who takes which direction when, by the forecast, and when the run does."""
    return pd.DataFrame(
        {
            "layers": run.model.model_dump()["layers"],
            "drop": np.arange(1, len(forecast.drop_times) + 1),
            "layer": forecast.heads // heads + 1,
            "direction": forecast.directions + 1,
            "time": crossings(run, forecast.levels),
            "theory": forecast.drop_times,
            "low": forecast.drop_intervals[:, 0],
            "high": forecast.drop_intervals[:, 1],
        }
    )


def shares(run: Run) -> pd.DataFrame:
    """What every layer holds of every direction along training, of the strength at which one layer learns it."""
    dim, layers = run.task.dim, run.weights.sizes["layer"]
    rows = []
    for time, weights in zip(run.weights["time"].values, run.snapshots(), strict=True):
        by_layer = head_shares(run.model, weights, run.task).reshape(layers, -1, dim).sum(axis=1)
        for layer, direction in np.ndindex(layers, dim):
            share = by_layer[layer, direction]
            rows.append({"time": time, "layer": layer + 1, "direction": direction + 1, "share": share})
    return pd.DataFrame(rows)
