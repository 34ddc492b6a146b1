"""The weights on every plateau: one more head has learned one more eigenvector.

Keys, queries and values of the five heads in the middle of each plateau of one run (flow on the population), in the
eigenbasis of the token covariance, with eigenvalues decreasing from left to right. From one plateau to the next a
single head grows, with its key and query along a single eigenvector and of equal size. Blue is positive and red is
negative; all panels share one colour scale. Beside each row: the value weight of the newest head, and the cube root of
the strength that theory predicts for it.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.prediction import predict
from iclflow.figures.style import WIDTH, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory import directions

__all__ = ["draw"]

SOURCE = "Fig. 3c"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)


def draw(fast: bool = False) -> Drawn:
    run = icl.train(TASK, MODEL, init=3e-3 if fast else 1e-3, records=1000)
    d = directions(TASK)
    prediction = predict(TASK, MODEL, weights=run.initial_weights)
    drops = prediction.drop_times
    middles = [drops[0] / 2, *((drops[:-1] + drops[1:]) / 2), run.time.values[-1]]
    records = [int(np.argmin(np.abs(run.weights["time"].values - t))) for t in middles]
    rows, worst = [], 0.0
    with styled():
        figure = Figure(figsize=(WIDTH, 6.2))
        axes = figure.subplots(len(records), 3, width_ratios=[4, 4, 1])
        for m, (record, line) in enumerate(zip(records, axes, strict=True)):
            key, query = (array[record, :, 0] for array in run.reduced.keys_and_queries)
            maps = {"key": key @ d.left, "query": query @ d.right, "value": run.reduced.value[record, :, None]}
            for ax, (name, array) in zip(line, maps.items(), strict=True):
                image = ax.imshow(array, cmap="RdBu", vmin=-2.0, vmax=2.0, aspect="auto")
                dress(ax, name, m, len(records))
                rows += [
                    {"plateau": m, "weights": name, "head": h, "direction": c + 1, "entry": x}
                    for (h, c), x in np.ndenumerate(array)
                ]
            if m > 0:
                head, direction = prediction.heads[m - 1], prediction.directions[m - 1]
                size = d.strength[direction] ** (1 / 3)
                grown = [abs(maps["key"][head, direction]), abs(maps["query"][head, direction]),
                         abs(maps["value"][head, 0])]  # fmt: skip
                worst = max(worst, *(abs(x / size - 1) for x in grown))
                line[2].set_ylabel(f"$v$ = {grown[2]:.3f}\ntheory {size:.3f}", rotation=0, ha="left", va="center")
                line[2].yaxis.set_label_coords(1.4, 0.5)
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.4, aspect=30, pad=0.01)
    gap = Gap("largest relative distance of a newly grown key, query or value from theory", worst)
    return Drawn(figure, {"": pd.DataFrame(rows)}, (gap,), {"run": run.experiment})


def dress(ax: Axes, name: str, m: int, rows: int) -> None:
    """Label one map of row m."""
    ax.set_yticks([])
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    if name != "value":
        ax.set_xticks(range(TASK.dim), [f"$e_{i + 1}$" for i in range(TASK.dim)] if m == rows - 1 else [""] * TASK.dim)
        ax.tick_params(length=0)
    if name == "key":
        ax.set_ylabel(f"$M_{m}$\nheads")
    if m == 0:
        ax.set_title({"key": "keys", "query": "queries", "value": "values"}[name])
