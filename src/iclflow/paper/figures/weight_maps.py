r"""The weights on every plateau: one more head has learned one more eigenvector.

Keys, queries and values of the five heads in the middle of each plateau of one run (flow on the population), in the
eigenbasis $e_1, .., e_4$ of the token covariance, with eigenvalues decreasing from left to right. From one plateau to
the next a single head grows, with its key and query along a single eigenvector and of equal size. Blue is positive and
red is negative; all panels share one colour scale. Beside each row: the value weight of the newest head, and the cube
root of the strength that theory predicts for it.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import GREY, WIDTH, letters, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.prediction.predict import predict
from iclflow.theory import directions

__all__ = ["draw"]

SOURCE = "Fig. 3c"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)


def draw(fast: bool = False) -> Drawn:
    init = 3e-3 if fast else 1e-3
    prediction = predict(TASK, MODEL, init=init)
    run = icl.train(TASK, MODEL, init=init, records=1000, time=1.5 * prediction.end)
    d = directions(TASK)
    drops = prediction.drop_times
    middles = [drops[0] / 2, *((drops[:-1] + drops[1:]) / 2), run.time.values[-1]]
    records = [int(np.argmin(np.abs(run.weights["time"].values - t))) for t in middles]
    rows, worst = [], 0.0
    with styled():
        figure = Figure(figsize=(WIDTH, 6.6))
        axes = figure.subplots(len(records), 3, width_ratios=[4, 4, 1])
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
    gap = Gap("largest relative distance of a newly grown key, query or value from theory", worst)
    return Drawn(figure, {"": pd.DataFrame(rows)}, (gap,), {"run": run.experiment})


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
