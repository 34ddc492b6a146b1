r"""Key and query of higher rank: plateaus at multiples of the rank.

Eight token dimensions, nine heads, ranks $R$ from 1 to 8 (80000 sequences, 20001 steps at learning rate 0.02, initial
weights with standard deviation 0.005 per entry, one sample for all ranks; rank one is trained six times as long, until
its last drop has come). A head of rank $R$ learns $R$ eigenvectors in quick succession, so long plateaus occur only
where a new head has to grow: at $L(M_m)$ with $m$ a multiple of $R$ (black dotted lines). Dashed: the curve predicted
from the initial weights and the moments of the sample.
"""

import numpy as np
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import BLACK, GREY, MODEL_COLOUR, THEORY, WIDTH, letters, log_time, styled
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.theory import plateau_losses

__all__ = ["draw"]

SOURCE = "Fig. 4, 12"
TASK = icl.Task(dim=8, context=31, normalize="none")
SEED = 0
LONGER = {1: 6}  # times the published steps


def draw(fast: bool = False) -> Drawn:
    samples, steps, ranks = (5000, 5000, (2, 8)) if fast else (80_000, 20_000, range(1, 9))
    levels = plateau_losses(TASK)
    tables, experiments, firsts, means = {}, {}, [], []
    with styled():
        figure = Figure(figsize=(WIDTH, 4.1 if len(ranks) > 4 else 2.4))
        axes = figure.subplots(-(-len(ranks) // 4), min(len(ranks), 4), sharey=True).ravel()
        for ax, rank in zip(axes, ranks, strict=True):
            model, length = icl.Separate(heads=9, rank=rank), steps * LONGER.get(rank, 1)
            run = icl.train(TASK, model, samples=samples, init=5e-3, lr=0.02, steps=length, seed=SEED)
            comparison = compare_one(run, None)
            theory = comparison.prediction.loss(run.time.values)
            kept = few(len(run.time))[1:]
            for m, level in enumerate(levels):
                main = m % rank == 0
                style = {"color": BLACK, "lw": 0.9} if main else {"color": GREY, "lw": 0.5}
                name = rf"$L(M_m)$, $m$ {'' if main else 'not '}a multiple of $R$"
                ax.axhline(level, label=None if m > 1 else name, ls=":", zorder=0, **style)
            ax.plot(run.time.values[kept], run.loss.values[kept], color=MODEL_COLOUR["separate"], label="simulation")
            ax.plot(run.time.values[kept], theory[kept], label="theory", **THEORY)
            ax.set(title=f"$R = {rank}$", ylim=(0, 1.05), xlabel=r"time $t/\tau$")
            log_time(ax, 250, run.time.values[-1])
            tables[f"rank {rank}"], experiments[f"rank {rank}"] = loss_table(run, theory), run.experiment
            firsts.append(np.inf if comparison.drops[0].error is None else comparison.drops[0].error)
            means.append(comparison.mean_gap)
        for ax in axes[::4]:
            ax.set_ylabel("loss")
        letters(*axes)
        entries = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        order = sorted(entries, key=lambda text: text.startswith("$"))
        figure.legend([entries[text] for text in order], order, loc="outside lower center", ncols=4)
    gaps = (
        Gap("median over ranks of the mean gap of the loss over time", float(np.median(means))),
        Gap("largest relative error of the first drop's time", float(max(firsts))),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, experiments)
