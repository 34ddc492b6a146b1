r"""Inside heads of rank two: the value grows once, keys and queries one eigenvector after the other.

Four token dimensions and three heads of rank two (flow on the population); shown are the two heads that grow, each
around its own drops. (a, b) The value weight. (c, d) The size of the head's key-query matrix along every eigenvector
$e_d$, $|\sum_r k_{r,d}\, q_{r,d}|^{1/2}$. The first eigenvector of a head has to wait until the value weight grows; the
second follows at once, because the value weight is large already. Dotted: the drop times predicted from the initial
weights. Dashes at the right edge: the fixed point, where the cube of the value weight is the sum of the strengths of
the eigenvectors that the head has learned, and every squared key is the strength of its eigenvector divided by the
value weight.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, WIDTH, letters, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, stacked
from iclflow.prediction.predict import predict
from iclflow.theory import directions

__all__ = ["draw"]

SOURCE = "Fig. 11"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=3, rank=2)


def draw(fast: bool = False) -> Drawn:
    init = 1e-2 if fast else 2e-3
    prediction = predict(TASK, MODEL, init=init)
    run = icl.train(TASK, MODEL, init=init, records=20_000, time=1.5 * prediction.end, tolerance=1e-13)
    d, D = directions(TASK), TASK.dim
    time = run.weights["time"].values
    values, (key, query) = run.reduced.value, run.reduced.keys_and_queries
    key, query = key @ d.left, query @ d.right
    parts = np.sqrt(np.abs(np.einsum("thrd,thrd->thd", key, query)))  # (T, H, D)
    held = values[-1, :, None] * np.einsum("hrd,hrd->hd", key[-1], query[-1]) > d.strength / 2
    grown = list(dict.fromkeys(prediction.heads.tolist()))
    errors, tables = [], {}
    with styled():
        figure = Figure(figsize=(WIDTH, 3.9))
        axes = figure.subplots(2, len(grown), sharex="col", sharey="row")
        for (top, below), h in zip(axes.T, grown, strict=True):
            size = float(d.strength[held[h]].sum() ** (1 / 3))
            shares = np.sqrt(d.strength / size) * held[h]
            drops = prediction.drop_times[prediction.heads == h]
            dash(top, size)
            shown = slice(*(np.searchsorted(time, (drops[0] - 60, drops[-1] + 150)) + np.array([-1, 1])))
            top.set(title=f"head {h + 1}", xlim=(drops[0] - 60, drops[-1] + 150))
            for i in range(D):
                label = rf"$e_{i + 1}$, $\lambda = {d.query[i]:.1f}$"
                below.plot(time[shown], parts[shown, h, i], color=COLOURS[i], label=label)
                dash(below, float(shares[i]))
            for ax in (top, below):
                for number, drop in enumerate(drops):
                    ax.axvline(drop, color=GREY, lw=0.9, ls=":", label=None if number else "predicted drop")
            top.plot(time[shown], np.abs(values[shown, h]), color=BLACK)
            theory_key(below)
            below.set_xlabel(r"time $t/\tau$")
            grown_parts = parts[-1, h, held[h]] / shares[held[h]]
            errors += [abs(abs(values[-1, h]) / size - 1), *np.abs(grown_parts - 1)]
            columns = {"time": time, "value": values[:, h], **{f"part{i + 1}": parts[:, h, i] for i in range(D)}}
            tables[f"head {h + 1}"] = pd.DataFrame(columns)[shown]
        axes[0, 0].set_ylabel("value weight $|v|$")
        axes[1, 0].set_ylabel("key-query size along $e_d$")
        letters(*axes.ravel())
        figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    gap = Gap("largest relative distance of a grown value or key-query part from its fixed point", float(max(errors)))
    return Drawn(figure, {"": stacked(tables)}, (gap,), {"run": run.experiment})


def dash(ax: Axes, level: float) -> None:
    """Draw a short dashed mark at the right edge."""
    if level > 0:
        across = ax.get_yaxis_transform()
        ax.plot([0.9, 1.04], [level, level], transform=across, clip_on=False, zorder=3, **THEORY)
