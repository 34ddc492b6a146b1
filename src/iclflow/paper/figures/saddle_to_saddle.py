r"""Separate key and query of rank one: a staircase from saddle to saddle.

(a) Six seeds at the published settings (5 heads, 80000 sequences, learning rate 0.02, initial weights with standard
deviation 0.01 per entry), trained four times as long as the published 10001 steps (vertical line), so that all of them
finish. Every plateau lies at a loss known in advance, $L(M_m)$, at which the $m$ leading eigenvectors of the token
covariance have been learned. Dashed: the curve that theory predicts for each seed, from its initial weights and the
moments of its sample. Theory leaves out that a sample pushes the vector blocks away from zero, which matters most for
the last drop, whose drive is the weakest: that of seed 13 is off by a tenth. (b) The first of these seeds alone.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import Comparison, compare_one
from iclflow.figures.style import (
    GREY,
    MODEL_COLOUR,
    THEORY,
    WIDTH,
    letters,
    log_time,
    plateau_lines,
    shades,
    styled,
    theory_key,
)
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.theory import plateau_losses

__all__ = ["draw"]

SOURCE = "Fig. 3a"
TASK = icl.Task(dim=4, context=31, normalize="none")
MODEL = icl.Separate(heads=5)
SEED, PUBLISHED_STEPS = 10, 10_001


def draw(fast: bool = False) -> Drawn:
    samples, seeds = (5000, 2) if fast else (80_000, 6)
    runs = icl.train(TASK, MODEL, samples=samples, init=1e-2, lr=0.02, steps=40_000, seed=SEED, seeds=seeds)
    comparisons = [compare_one(runs.select(seed), None) for seed in runs.seeds]
    one, comparison = runs.select(SEED), comparisons[0]
    theory = comparison.prediction.loss(one.time.values)
    levels = plateau_losses(TASK)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, right = figure.subplots(1, 2)
        kept = few(len(one.time))[1:]
        time = one.time.values
        for colour, seed, each in zip(shades(seeds), runs.seeds, comparisons, strict=True):
            left.plot(time[kept], runs.select(seed).loss.values[kept], color=colour, label=str(seed))
            left.plot(time[kept], each.prediction.loss(time[kept]), **{**THEORY, "lw": 0.8})
        theory_key(left)
        right.plot(time[kept], one.loss.values[kept], color=MODEL_COLOUR["separate"], lw=2.4, label=f"seed {SEED}")
        right.plot(time[kept], theory[kept], label="theory", **THEORY)

        first = 0.4 * min(each.prediction.drop_times[0] for each in comparisons)
        for ax, title in ((left, f"{seeds} seeds"), (right, "one seed")):
            ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05), title=title)
            ax.axvline(time[PUBLISHED_STEPS], ymax=0.3, color=GREY, lw=0.8, zorder=0)
            log_time(ax, first, time[-1])
            plateau_lines(ax, levels)
        left.legend(loc="upper right", title="seed", bbox_to_anchor=(1.02, 0.94), labelspacing=0.1)
        right.legend(loc="upper right", bbox_to_anchor=(1.02, 0.94))
        letters(left, right)
    tables = {f"seed {seed}": loss_table(runs.select(seed)) for seed in runs.seeds}
    errors = [error for each in comparisons for error in drop_errors(each)]
    gaps = (
        Gap("median relative error of a drop time, all seeds", float(np.median(errors))),
        Gap(f"largest relative error of a drop time, seed {SEED}", max(drop_errors(comparison))),
        Gap("median relative distance of a plateau from L(M_m), all seeds", plateau_error(comparisons, levels)),
    )
    return Drawn(
        figure,
        {
            "seeds": stacked(tables),
            "predicted": loss_table(one, theory),
            "levels": pd.DataFrame({"m": np.arange(len(levels)), "level": levels}),
        },
        gaps,
        {"seeds": runs.experiment},
    )


def drop_errors(comparison: Comparison) -> list[float]:
    """The relative errors of the drop times; infinite where a drop is missing."""
    return [np.inf if drop.error is None else drop.error for drop in comparison.drops]


def plateau_error(comparisons: list[Comparison], levels: Float[np.ndarray, " levels"]) -> float:
    """The median distance of the plateaus, detected on the curves alone, from the levels nearest to them."""
    observed = np.array([plateau.observed_level for comparison in comparisons for plateau in comparison.plateaus])
    return float(np.median(np.abs(observed[:, None] / levels - 1).min(axis=1)))
