"""Key and query of higher rank: plateaus at multiples of the rank.

Eight token dimensions, nine heads, ranks 1 to 8 (80000 sequences, 20001 steps at learning rate 0.02, initial weights
with standard deviation 0.005 per entry, one sample for all ranks). A head of rank R learns R eigenvectors in quick
succession, so long plateaus occur only where a new head has to grow: at L(M_m) with m a multiple of R (darker dotted
lines). Dashed: the curve predicted from the initial weights. With initial weights as large as these, near ties between
heads shift single drops late in training.
"""

import numpy as np
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, WIDTH, log_time, styled
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.theory import plateau_losses

__all__ = ["draw"]

SOURCE = "Fig. 4, 12"
TASK = icl.Task(dim=8, context=31, normalize="none")
SEED = 0


def draw(fast: bool = False) -> Drawn:
    samples, steps, ranks = (5000, 5000, (2, 8)) if fast else (80_000, 20_000, range(1, 9))
    levels = plateau_losses(TASK)
    tables, experiments, firsts, means = {}, {}, [], []
    with styled():
        figure = Figure(figsize=(WIDTH, 3.6))
        axes = figure.subplots(2, 4, sharex=True, sharey=True).ravel()
        for ax, rank in zip(axes, ranks, strict=False):
            model = icl.Separate(heads=9, rank=rank)
            run = icl.train(TASK, model, samples=samples, init=5e-3, lr=0.02, steps=steps, seed=SEED)
            comparison = compare_one(run, None)
            theory = comparison.prediction.loss(run.time.values)
            kept = few(len(run.time))[1:]
            for m, level in enumerate(levels):
                main = m % rank == 0
                ax.axhline(level, color=BLACK if main else GREY, lw=0.9 if main else 0.4, ls=":", zorder=0)
            ax.plot(run.time.values[kept], run.loss.values[kept], color=COLOURS[0], lw=2.0)
            ax.plot(run.time.values[kept], theory[kept], **THEORY)
            ax.set(title=f"$R = {rank}$", ylim=(0, 1.05))
            log_time(ax, 200, run.time.values[-1])
            tables[f"rank {rank}"], experiments[f"rank {rank}"] = loss_table(run, theory), run.experiment
            firsts.append(np.inf if comparison.drops[0].error is None else comparison.drops[0].error)
            means.append(comparison.mean_gap)
        for ax in axes[4:]:
            ax.set_xlabel(r"time $t/\tau$")
        for ax in axes[::4]:
            ax.set_ylabel("loss")
    gaps = (
        Gap("median over ranks of the mean gap of the loss over time", float(np.median(means))),
        Gap("largest relative error of the first drop's time", float(max(firsts))),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, experiments)
