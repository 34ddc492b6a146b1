r"""Context length, and the loss over all prefixes.

(a) Gradient descent on the loss averaged over all context lengths 1 to 31, with the plateaus of the averaged landscape.
(b) The loss after training (filled) and on the plateaus before (open) against the context length $N$, for the loss at
full context and for the loss over all prefixes. Dashed lines are theory: a longer context lowers every plateau, and the
last one most.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import (
    BLACK,
    COLOURS,
    MODEL_COLOUR,
    THEORY,
    WIDTH,
    few_ticks,
    letters,
    log_time,
    plateau_lines,
    styled,
    theory_key,
)
from iclflow.paper.drawn import Drawn, Gap, few, loss_table
from iclflow.theory import minimum, plateau_losses

__all__ = ["draw"]

SOURCE = "Sec. 2, loss over prefixes"
MODEL = icl.Separate(heads=5)
LENGTHS = (4, 8, 16, 31, 64, 128)
COLOUR = {"full context": MODEL_COLOUR["separate"], "all prefixes": COLOURS[2]}
KINDS: dict[str, dict[str, Any]] = {"full context": {}, "all prefixes": {"prefix_loss": True, "normalize": "tokens"}}


def draw(fast: bool = False) -> Drawn:
    lengths = LENGTHS[1::2] if fast else LENGTHS
    rows, experiments, shown = [], {}, None
    for kind, options in KINDS.items():
        for N in lengths:
            task = icl.Task(dim=4, context=N, **options)
            run = icl.train(task, MODEL, init=3e-3, engine="moments")
            experiments[f"{kind}, N = {N}"] = run.experiment
            rows += found_levels(run, kind)
            if N == 31 and kind == "all prefixes":
                shown = run
    table = pd.DataFrame(rows)
    assert shown is not None
    comparison = compare_one(shown, None)
    theory = comparison.prediction.loss(shown.time.values)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.8))
        left, right = figure.subplots(1, 2)
        kept = few(len(shown.time))[1:]
        left.plot(
            shown.time.values[kept], shown.loss.values[kept], color=COLOUR["all prefixes"], lw=2.4, label="all prefixes"
        )
        left.plot(shown.time.values[kept], theory[kept], label="theory", **THEORY)
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05), title="$N = 31$")
        log_time(left, 0.3 * comparison.prediction.drop_times[0], 1.3 * shown.time.values[-1])
        left.legend(loc="lower left")
        plateau_lines(left, plateau_losses(shown.task))
        draw_levels(right, table)
        letters(left, right)
    last = table[table["m"] == 4]
    gaps = (
        Gap("largest relative distance of a plateau from theory", worst(table[table["m"] < 4])),
        Gap("largest relative distance of the final loss from the minimum", worst(last)),
        Gap("mean gap over time of the loss over all prefixes", comparison.mean_gap),
    )
    return Drawn(figure, {"levels": table, "curve": loss_table(shown, theory)}, gaps, experiments)


def found_levels(run: icl.Run, kind: str) -> list[dict[str, object]]:
    """The plateaus detected on the curve, and its last loss."""
    levels = plateau_losses(run.task)
    observed = [p.observed_level for p in compare_one(run, None).plateaus]
    rows = []
    for m, level in enumerate(levels[:-1]):
        near = [x for x in observed if np.abs(levels - x).argmin() == m]
        rows += [{"loss": kind, "N": run.task.context, "m": m, "level": x, "theory": level} for x in near[:1]]
    final, lowest = float(run.loss[-1]), minimum(run.task)
    return [*rows, {"loss": kind, "N": run.task.context, "m": 4, "level": final, "theory": lowest}]


def draw_levels(ax: Axes, table: pd.DataFrame) -> None:
    for kind, options in KINDS.items():
        colour = COLOUR[kind]
        lengths = np.unique(np.geomspace(3, 150, 40).round().astype(int))
        levels = np.array([plateau_losses(icl.Task(dim=4, context=int(N), **options)) for N in lengths])
        ax.plot(lengths, levels[:, 1:], zorder=1, **{**THEORY, "color": colour, "lw": 0.9})
        mine = table[(table["loss"] == kind) & (table["m"] > 0)]
        ends = mine["m"] == 4
        ax.scatter(mine[~ends]["N"], mine[~ends]["level"], s=16, facecolors="white", edgecolors=colour, zorder=3)
        ax.scatter(mine[ends]["N"], mine[ends]["level"], s=18, color=colour, zorder=3, label=kind)
    ax.scatter([], [], s=16, facecolors="white", edgecolors=BLACK, label="plateaus before")
    theory_key(ax)
    ax.set(xlabel="context length $N$", xscale="log", ylim=(0, 1.3), ylabel="loss", yticks=np.arange(0, 1.01, 0.2))
    few_ticks(ax.xaxis, LENGTHS)
    ax.legend(loc="upper right", ncols=2, columnspacing=1.2)


def worst(table: pd.DataFrame) -> float:
    return float((table["level"] / table["theory"] - 1).abs().max())
