r"""All fixed points of separate attention, and the few that training visits.

Each dot is one of the $2^D$ sets of eigenvectors ($D = 4$, $N = 31$): its loss against the size of the set. The colour
gives the number of unstable directions of the fixed point with one balanced head per eigenvector. Training from small
weights (six seeds, flow on the population) visits the lowest ones, the sets of leading eigenvectors; rings are plateaus
detected on the loss curves. These fixed points have no unstable direction, which is why plateaus last for a time of
order $1/\mathrm{init}$.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import BLACK, THEORY, WIDTH, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory import directions
from iclflow.theory.separate import escape_directions
from iclflow.theory.separate import fixed_points as all_fixed_points

__all__ = ["draw"]

SOURCE = "Eq. 16-19"
TASK = icl.Task(dim=4, context=31)


def draw(fast: bool = False) -> Drawn:
    runs = icl.train(TASK, icl.Separate(heads=5), init=5e-3 if fast else 1e-3, seeds=2 if fast else 6)
    plateaus = [plateau for seed in runs.seeds for plateau in compare_one(runs.select(seed), None).plateaus]
    d = directions(TASK)
    points = pd.DataFrame(
        [
            {"set": " ".join(str(i + 1) for i in np.flatnonzero(s)), "size": int(s.sum()), "loss": loss,
             "index": escape_directions(d, s)}
            for s, loss in all_fixed_points(d)
        ]
    )  # fmt: skip
    leading = np.array([d.loss(np.arange(TASK.dim) < m) for m in range(TASK.dim + 1)])
    levels = np.array([p.observed_level for p in plateaus])
    visited = np.abs(levels[:, None] - leading).argmin(axis=1)
    with styled():
        figure = Figure(figsize=(0.75 * WIDTH, 3.5))
        ax = figure.add_subplot()
        marks = ax.scatter(
            points["size"], points["loss"], c=points["index"], cmap="viridis", s=42, zorder=3, label="fixed points"
        )
        ax.plot(range(TASK.dim + 1), leading, zorder=1, label="theory: path of training", **THEORY)
        ax.scatter(visited, levels, s=140, facecolors="none", edgecolors=BLACK, zorder=2, label="plateaus of runs")
        name_points(ax, points)
        ax.set(xlabel="eigenvectors learned", ylabel="loss", xticks=range(TASK.dim + 1), xlim=(-0.3, TASK.dim + 0.8))
        ax.legend(loc="upper right")
        figure.colorbar(marks, ax=ax, label="unstable directions", ticks=range(int(points["index"].max()) + 1))
    gap = Gap("largest relative distance of a plateau from its fixed point",
              float(np.abs(levels / leading[visited] - 1).max()))  # fmt: skip
    table = pd.DataFrame({"m": visited, "level": levels, "theory": leading[visited]})
    return Drawn(figure, {"": points, "visited": table}, (gap,), {"runs": runs.experiment})


def name_points(ax: Axes, points: pd.DataFrame) -> None:
    """Write each set beside its dot, on the left where a neighbour has nearly the same loss."""
    rows = list(points.sort_values(["size", "loss"]).itertuples())
    for row, before in zip(rows, [None, *rows], strict=False):
        close = before is not None and before.size == row.size and row.loss - before.loss < 0.02
        x, side = (-8, "right") if close else (8, "left")
        name = "{" + row.set.replace(" ", ",") + "}"
        ax.annotate(name, (row.size, row.loss), (x, 0), textcoords="offset points", va="center", ha=side, fontsize=7.5)
