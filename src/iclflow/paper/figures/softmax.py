r"""Softmax attention: one drop with merged, several with separate key and query.

Softmax attention in place of linear attention, otherwise the setting of the linear figures ($D = 4$, $N = 31$). The
published number of steps is too small to show all drops, so these runs have settings of their own: 2000 sequences; (a)
merged, 8 heads, scale 0.03, 1500 steps at learning rate 0.1; (b) separate, 5 heads of rank one, scale 0.02, 6000 steps
at learning rate 0.2. There is no closed theory of softmax attention, and neighbouring drops can merge: most seeds show
three or four, so there are several drops and not always as many as directions. Thin: linear attention from the same
initial weights on the same sequences, trained until it has learned all directions, with its theory (dashed) and its
plateaus (dotted). Softmax attention approaches it as the context grows.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.comparison.plateaus import count_main_drops
from iclflow.experiment import Experiment
from iclflow.figures.style import MODEL_COLOUR, THEORY, WIDTH, letters, log_time, plateau_lines, styled
from iclflow.models import Weights
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.results.run import Run
from iclflow.theory import minimum, plateau_losses

__all__ = ["draw"]

SOURCE = "Fig. 5"
TASK = icl.Task(dim=4, context=31)
MODELS = {"merged": icl.Merged(heads=8), "separate": icl.Separate(heads=5)}
SETTINGS = {"merged": {"init": 0.03, "lr": 0.1, "steps": 1500}, "separate": {"init": 0.02, "lr": 0.2, "steps": 6000}}
LONGER = {"merged": 2, "separate": 5}  # times the steps, for linear attention
EXPECTED = {"merged": (1,), "separate": (2, 3, 4)}  # one drop against several


def draw(fast: bool = False) -> Drawn:
    samples = 300 if fast else 2000
    tables: dict[str, pd.DataFrame] = {}
    experiments: dict[str, Experiment] = {}
    weights: dict[str, Weights] = {}
    counts, ends = {}, []
    with styled():
        figure = Figure(figsize=(WIDTH, 2.8))
        axes = figure.subplots(1, 2)
        for ax, (name, model) in zip(axes, MODELS.items(), strict=True):
            settings: dict[str, Any] = {**SETTINGS[name], "samples": samples, "seed": 10}
            run = icl.train(TASK, model.replace(softmax=True), dtype="float32", **settings)
            longer = {**settings, "steps": LONGER[name] * settings["steps"]}
            linear = icl.train(TASK, model, weights=run.initial_weights, **longer)
            beside(ax, name, run, linear)
            counts[name] = count_main_drops(run.time.values, run.loss.values)
            ax.set(title=f"{name}: {counts[name]} drop{'s' if counts[name] > 1 else ''}")
            ends.append(abs(float(run.loss[-1]) - minimum(TASK)) / float(run.loss[0]))
            tables |= {f"{name}, softmax": loss_table(run), f"{name}, linear": loss_table(linear)}
            experiments |= {f"{name}, softmax": run.experiment, f"{name}, linear": linear.experiment}
            weights[f"{name}, linear"] = run.initial_weights
        plateau_lines(axes[0], plateau_losses(TASK)[[0, -1]], ["zero", "min."])
        plateau_lines(axes[1], plateau_losses(TASK))
        letters(*axes)
    wrong = sum(counts[name] not in EXPECTED[name] for name in MODELS)
    gaps = (
        Gap("models without the expected drops (merged one, separate two to four)", float(wrong)),
        Gap("largest distance of the last loss from the linear minimum, relative to the initial loss", max(ends)),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, experiments, weights)


def beside(ax: Axes, name: str, run: Run, linear: Run) -> None:
    """Draw the losses of softmax and linear attention, and theory of the latter."""
    styles = ((run, MODEL_COLOUR["softmax"], 2.2, "softmax"), (linear, MODEL_COLOUR[name], 1.2, "linear"))
    for one, colour, width, label in styles:
        kept = few(len(one.time))[1:]
        ax.plot(one.time.values[kept], one.loss.values[kept], label=label, color=colour, lw=width)
    time = linear.time.values[few(len(linear.time))[1:]]
    ax.plot(time, compare_one(linear, None).prediction.loss(time), label="theory of linear", **THEORY)
    ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.1))
    log_time(ax, np.sqrt(run.time.values[-1]) / 4, linear.time.values[-1])
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))
