r"""In-context against in-weight learning.

Merged attention, where a fraction $p$ of the training sequences have task vectors of their own and the rest share one
(published settings: 8 heads, white tokens, 5000 sequences, 4001 steps at learning rate 0.0005). Solid: the training
loss and two test losses, on sequences with new tasks, which only in-context learning solves, and on sequences whose
context carries no information, which only in-weight learning solves (at $p = 0$ it equals the training loss). For $p$
between 0.4 and 0.8, in-weight learning comes first, in-context learning follows, and in-weight learning is then lost
again. Dashed: five scalar equations on the population, started from the initial weights.
"""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.comparison.gains import paper_weights
from iclflow.figures.style import LOSS_COLOUR, THEORY, WIDTH, letters, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.results.run import Run
from iclflow.theory import in_weight

__all__ = ["draw"]

SOURCE = "Fig. 14"
TASK = icl.Task(dim=4, context=31, spectrum="white", normalize="none")
MODEL = icl.Merged(heads=8)
FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COLUMNS = {
    "loss": ("training", LOSS_COLOUR["training"]),
    "loss_iwl": ("in-weight test", LOSS_COLOUR["in-weight"]),
    "loss_icl": ("in-context test", LOSS_COLOUR["new tasks"]),
}


def draw(fast: bool = False) -> Drawn:
    samples, fractions = (2000, (0.0, 0.6)) if fast else (5000, FRACTIONS)
    tables, experiments, errors, ends = {}, {}, [], []
    with styled():
        figure = Figure(figsize=(WIDTH, 3.8))
        axes = figure.subplots(-(-len(fractions) // 3), min(len(fractions), 3), sharex=True, sharey=True).ravel()
        for ax, p in zip(axes, fractions, strict=True):
            task = TASK.replace(icl_fraction=p)
            run = icl.train(task, MODEL, init=1e-6, samples=samples, test_samples=samples, lr=5e-4, steps=4000, seed=10)
            course = expected(run)
            theory = {"loss": course.train, "loss_icl": course.in_context, "loss_iwl": course.in_weight}
            kept = few(len(run.time))
            for name, (label, colour) in COLUMNS.items():
                ax.plot(
                    run.time.values[kept], run.curves[name].values[kept], color=colour, lw=2.0, alpha=0.75, label=label
                )
                ax.plot(run.time.values[kept], theory[name][kept], **{**THEORY, "color": colour})
            ax.set(title=f"$p = {p:g}$", ylim=(0, 2.6), xlim=(0, run.time.values[-1]))
            tables[f"p = {p:g}"] = loss_table(run, course.train).assign(
                theory_icl=course.in_context[kept], theory_iwl=course.in_weight[kept]
            )
            experiments[f"p = {p:g}"] = run.experiment
            errors.append(half_time_error(run, course.train))
            ends.append(abs(run.loss.values[-1] - course.train[-1]) / run.loss.values[0])
        for ax in axes[-3:]:
            ax.set_xlabel(r"time $t/\tau$")
        for ax in axes[::3]:
            ax.set_ylabel("loss")
        letters(*axes)
        theory_key(axes[0])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    gaps = (
        Gap("largest relative error of the half-drop time (sample against population)", max(errors)),
        Gap("largest distance of the last training loss from theory, relative to the initial loss", max(ends)),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, experiments)


def expected(run: Run) -> in_weight.Course:
    """The course that theory predicts from the initial weights."""
    D, weights = TASK.dim, paper_weights(MODEL, run.initial_weights, run.task)
    alpha = in_weight.growing_part(run.task, weights["value"][:, D], weights["key_query"][:, :, :D])
    return in_weight.course(run.task, alpha, run.time.values)


def half_time_error(run: Run, theory: Float[np.ndarray, " T"]) -> float:
    """The relative error of the predicted half-drop time."""
    time, loss = run.time.values, run.loss.values
    observed, predicted = (crossing(time, curve, (curve[0] + curve[-1]) / 2) for curve in (loss, theory))
    return np.inf if observed is None or predicted is None else abs(predicted / observed - 1)
