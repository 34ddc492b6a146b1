r"""Merged key and query: one plateau, one abrupt drop.

(a) The published run (8 heads, 5000 sequences, 6001 steps of gradient descent at learning rate 0.001): linear attention
with merged key and query, and the two-layer linear network on the cubic feature from the same weights. On the
population the two are one function trained in one way. On a sample the vector blocks of attention drift from zero, so
that it drops a little earlier and ends a little lower; the caption gives the largest gap. The dashed curve is computed
from the initial weights and the moments of the sample. (b) Gradient flow on the population for three token covariances.
For each of them, $D + 1$ scalar equations give the whole curve.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import MODEL_COLOUR, THEORY, WIDTH, letters, plateau_lines, shades, styled, theory_key
from iclflow.models import equivalence
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.results.run import Run

__all__ = ["draw"]

SOURCE = "Fig. 1"
PUBLISHED = icl.Task(dim=4, context=31, normalize="none")
END = 150.0
SPECTRA = {"white": "white", "linear": "linear", "power law": "power:2"}


def draw(fast: bool = False) -> Drawn:
    samples, steps = (1000, 2000) if fast else (5000, 6000)
    lr = 3e-3 if fast else 1e-3
    merged = icl.train(PUBLISHED, icl.Merged(heads=8), init=1e-6, samples=samples, lr=lr, steps=steps, seed=10)
    start = equivalence.to_two_layer(merged.initial_weights)
    mlp = icl.train(PUBLISHED, icl.MLP(heads=8), weights=start, samples=samples, lr=lr, steps=steps, seed=10)
    flows = {
        name: icl.train(icl.Task(dim=4, context=31, spectrum=law), icl.Merged(heads=8), init=1e-3, time=END)
        for name, law in SPECTRA.items()
    }
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, right = figure.subplots(1, 2)
        published = draw_published(left, merged, mlp)
        curves, worst = draw_flows(right, flows)
        letters(left, right)
    return Drawn(
        figure,
        {"published": published, "covariances": curves},
        (
            Gap("largest gap between the flow's loss and D + 1 equations, relative to the initial loss", worst),
            Gap("the same for the published run and theory of its sample", compare_one(merged, None).largest_gap),
            Gap("largest gap between attention and the two-layer network", largest_distance(merged, mlp)),
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
    ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.1), xlim=(0, END), title="population, three covariances")
    ax.legend(loc="center right", title="covariance")
    return stacked(tables), worst


def largest_distance(one: Run, other: Run) -> float:
    return float(np.abs(one.loss.values - other.loss.values).max() / one.loss.values[0])
