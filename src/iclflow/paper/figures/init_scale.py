r"""Initial scale: from plateaus to the lazy regime.

Separate key and query of rank one (flow on the population; one draw of 20 heads, scaled so that the standard deviation
per entry, `init`, runs from 0.005 to 1). (a) Small weights show the whole staircase (dashed: predicted for the smallest
scale); larger ones shorten its plateaus, then blur them, and with the largest the loss falls at once. (b) The loss
above its minimum, relative to its initial value, of the two largest scales; it nearly follows the frozen kernel of
their initial weights (dashed).
"""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import THEORY, WIDTH, letters, log_time, plateau_lines, shades, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, loss_table, stacked
from iclflow.results.run import Run
from iclflow.theory import landscape, minimum, plateau_losses
from iclflow.theory.laws import lazy

__all__ = ["draw"]

SOURCE = "Fig. 6"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=20)
SCALES = (0.005, 0.02, 0.05, 0.15, 0.5, 1.0)
END = 20_000.0


def draw(fast: bool = False) -> Drawn:
    scales = SCALES[1::2] if fast else SCALES
    runs = {scale: icl.train(TASK, MODEL, init=scale, time=END, engine="flow") for scale in scales}
    small = compare_one(runs[scales[0]], None)
    tables, lazy_gap = {}, 0.0
    with styled():
        figure = Figure(figsize=(WIDTH, 2.9))
        left, right = figure.subplots(1, 2)
        for colour, (scale, run) in zip(shades(len(runs)), runs.items(), strict=True):
            time = run.time.values
            left.plot(time[1:], run.loss.values[1:], color=colour, label=f"{scale:g}")
            theory = small.prediction.loss(time) if scale == scales[0] else None
            if scale >= 0.5:
                theory = frozen(run)
                excess, start = run.loss.values - minimum(TASK), run.loss.values[0] - minimum(TASK)
                right.plot(time[1:], excess[1:] / start, color=colour, label=f"{scale:g}")
                right.plot(time[1:], ((theory - minimum(TASK)) / start)[1:], **THEORY)
                if scale == scales[-1]:
                    lazy_gap = float(np.abs(theory - run.loss.values).max() / start)
            elif theory is not None:
                left.plot(time[1:], theory[1:], **THEORY)
            tables[f"init {scale:g}"] = loss_table(run, theory)
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.3), title="any scale")
        right.set(xlabel=r"time $t/\tau$", ylabel="relative excess loss", ylim=(0, 1.05), title="large: frozen kernel")
        log_time(left, 1e-1, END)
        log_time(right, 1e-3, 1e2)
        theory_key(left)
        letters(left, right)
        entries, names = left.get_legend_handles_labels()
        names = [name if name == "theory" else f"init {name}" for name in names]
        figure.legend(entries, names, loc="outside lower center", ncols=len(names), handlelength=1.6, columnspacing=1.4)
        plateau_lines(left, plateau_losses(TASK))
    gaps = (
        Gap(f"mean gap over time between the loss and the staircase, init {scales[0]:g}", small.mean_gap),
        Gap(f"largest gap between the excess loss and the frozen kernel, init {scales[-1]:g}", lazy_gap),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, {f"init {s:g}": r.experiment for s, r in runs.items()})


def frozen(run: Run) -> Float[np.ndarray, " T"]:
    """The loss if the tangent kernel kept its initial value."""
    heads = run.model.reduced(run.initial_weights, TASK)
    start = np.einsum("h,hde->de", heads.value, heads.key_query)
    kernel = lazy.kernel_separate(heads.value, *heads.keys_and_queries)
    return lazy.frozen_loss(landscape(TASK), kernel, start, run.time.values)
