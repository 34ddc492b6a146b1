r"""With more layers there is a second staircase.

Separate key and query of rank one in one and two layers, gradient flow on the population with the label blocks trained.
(a) The loss, with the forecast from the initial weights alone (dashed) and its plateaus (dotted). Every layer races for
the same directions, so the first drops are those of one layer, scattered over all of them. Then, far below the lowest
loss of one layer, come further drops: layers learn directions that others hold already, with drives that are smaller by
about $(D + 1)/N$. (b) Which layer of the two-layer network holds how much of which direction $e_d$ (first layer thick,
second thin), relative to the strength at which one layer would learn it (dotted: forecast times of the drops). The end
is two steps of preconditioned gradient descent in context, one of them shorter and one longer than a single step would
be.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.comparison.gains import head_shares
from iclflow.figures.style import COLOURS, GREY, THEORY, WIDTH, letters, log_time, shades, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, loss_table, stacked
from iclflow.results.run import Run

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK, FAST_TASK = icl.Task(dim=2, context=20), icl.Task(dim=1, context=20)
LAYERS, HEADS, INIT, CONTEXTS = (1, 2), 4, 1e-2, 512
SHOWN = 2  # layers of the network on the right


def draw(fast: bool = False) -> Drawn:
    task = FAST_TASK if fast else TASK
    models = {layers: icl.Separate(heads=1 if fast else HEADS, layers=layers) for layers in LAYERS}
    init = 5 * INIT if fast else INIT
    forecasts = {layers: icl.predict(task, model, init=init) for layers, model in models.items()}
    count = CONTEXTS * task.dim**2
    runs = {n: icl.train(task, m, init=init, freeze_vectors=True, gram_samples=count) for n, m in models.items()}
    held = shares(runs[SHOWN])
    with styled():
        figure = Figure(figsize=(WIDTH, 2.9))
        left, right = figure.subplots(1, 2)
        for colour, (layers, run) in zip(shades(len(runs)), runs.items(), strict=True):
            kept = run.time.values > 0
            left.plot(run.time.values[kept], run.loss.values[kept], color=colour, lw=2.2, label=str(layers))
            left.plot(run.time.values[kept], forecasts[layers].loss(run.time.values[kept]), **THEORY)
            for level in forecasts[layers].levels[1:]:
                left.axhline(level, color=GREY, lw=0.6, ls=":", zorder=0)
        first = 0.5 * min(f.drop_times[0] for f in forecasts.values())
        log_time(left, first, max(run.time.values[-1] for run in runs.values()))
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", yscale="log")
        theory_key(left)
        left.legend(title="layers", loc="lower left")
        for (layer, direction), own in held.groupby(["layer", "direction"]):
            style = {"color": COLOURS[int(direction) - 1], "lw": 2.6 if layer == 1 else 1.1}
            right.plot(own.time, own.share, label=rf"layer {layer}, $e_{direction}$", **style)
        for number, time in enumerate(forecasts[SHOWN].drop_times):
            label = None if number else "theory: drops"
            right.axvline(time, color=GREY, lw=0.8, ls=":", zorder=0, label=label)
        log_time(right, first, runs[SHOWN].time.values[-1])
        right.set(xlabel=r"time $t/\tau$", ylabel="share of a direction's strength")
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=5, columnspacing=1.2)
        letters(left, right)
    drops = {n: compare_one(run, None).drops for n, run in runs.items()}
    errors = lambda first, last: max(drop.error or 0.0 for own in drops.values() for drop in own[first:last])
    ends = [abs(runs[n].loss.values[-1] / forecasts[n].levels[-1] - 1) for n in runs]
    gaps = (
        Gap("largest relative error of a drop time of the first staircase", errors(0, task.dim)),
        Gap("largest relative error of a drop time of the second staircase", errors(task.dim, None)),
        Gap("largest relative distance of the end from the forecast level", float(max(ends))),
    )
    tables = {f"{n} layers": loss_table(run, forecasts[n].loss(run.time.values)) for n, run in runs.items()}
    names = {f"{n} layers": run.experiment for n, run in runs.items()}
    return Drawn(figure, {"curves": stacked(tables), "shares": held}, gaps, names)


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
