r"""Six optimisers on one task: the same fixed points, other clocks.

Separate key and query of rank one on the population. (a) Gradient descent, momentum ($\beta = 0.9$) and Adam with
gradients far below its $\varepsilon$, from one draw of initial weights, against time times the scale of these weights
(0.005, 0.005 and $10^{-9}$): on the clock of the flow, twice the learning rate times the step, with $1/(1 - \beta)$ for
momentum and $1/\varepsilon$ for Adam, they show nearly one staircase (finite steps delay a drop, and heads that still
wait gain from the delay, so later drops can come early). (b to g) Each optimiser on a clock of its own, with what
theory predicts (dashed; Adam above $\varepsilon$ has no staircase to predict). Where every entry moves at the learning
rate (Adam) or every singular value does (Muon), nothing waits for small weights to grow: the drops run into each other,
and their times do not depend on the initial weights. Dotted: the losses $L(M_m)$ of the fixed points, which no
optimiser changes.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import COLOURS, THEORY, WIDTH, letters, log_time, plateau_lines, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap, few, loss_table, stacked
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.theory import plateau_losses
from iclflow.theory.laws.adam import EPSILON
from iclflow.units import clock_rate

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
OPTIMISERS: dict[str, dict[str, Any]] = {
    "descent": {"init": 5e-3, "lr": 0.8, "steps": 16_000},
    "momentum": {"init": 5e-3, "lr": 0.04, "steps": 32_000, "optimizer": "momentum"},
    "Adam below eps": {"init": 1e-9, "lr": 0.03, "steps": 20_000, "optimizer": "adam"},
    "Adam": {"init": 1e-3, "lr": 1e-3, "steps": 2500, "optimizer": "adam"},
    "Muon, stacked": {"init": 1e-6, "lr": 2e-3, "steps": 1300, "optimizer": "muon"},
    "Muon, head by head": {"init": 1e-6, "lr": 2e-3, "steps": 1300, "optimizer": "muon", "muon": "heads"},
}
ONE_STAIRCASE = ("descent", "momentum", "Adam below eps")


def draw(fast: bool = False) -> Drawn:
    chosen = {name: OPTIMISERS[name] for name in OPTIMISERS if not fast or name in ("momentum", "Muon, stacked")}
    runs = {name: icl.train(TASK, MODEL, records=50, **settings) for name, settings in chosen.items()}
    predicted = {name: forecast(run) for name, run in runs.items()}
    levels = plateau_losses(TASK)
    tables: dict[str, pd.DataFrame] = {}
    with styled():
        figure = Figure(figsize=(WIDTH, 6.2))
        rows: list[Any] = [["all"] * 3, [*OPTIMISERS][:3], [*OPTIMISERS][3:]]
        panels = figure.subplot_mosaic([["all"] * len(runs), [*runs]] if fast else rows)
        for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
            time, ax, kept = run.time.values, panels[name], few(len(run.time))
            known = len(predicted[name].drop_times) > 0
            theory = predicted[name].loss(time) if known else np.full(len(time), np.nan)
            ax.plot(time[kept], run.loss.values[kept], color=colour, lw=2.2)
            ax.plot(time[kept], shown(theory, predicted[name], time)[kept], **THEORY)
            clock = r"time $t/\tau$" if on_the_flow(name) else r"learning rate $\times$ step"
            ax.set(title=name, ylim=(0, 1.05), xlabel=clock)
            if name in ONE_STAIRCASE:
                log_time(ax, 0.5 * predicted[name].drop_times[0], time[-1])
                common = scaled_time(name, run)
                width = 2.8 - 0.8 * len(tables)
                panels["all"].plot(common[kept], run.loss.values[kept], color=colour, label=name, lw=width)
                tables[name] = loss_table(run, theory).assign(scaled_time=common[kept])
            else:
                tables[name] = loss_table(run, theory)
        log_time(panels["all"], 3, 200)
        panels["all"].set(xlabel=r"time $t/\tau$ $\times$ initial scale", ylabel="loss", ylim=(0, 1.05))
        panels["all"].set_title("a common clock")
        theory_key(panels["all"])
        panels["all"].legend(loc="upper right", bbox_to_anchor=(1.0, 0.94))
        for name in ("all", *runs):
            plateau_lines(panels[name], levels)
            panels[name].set_ylabel("loss")
        letters(panels["all"], *(panels[name] for name in runs))
    errors = {name: first_error(runs[name], one) for name, one in predicted.items() if len(one.drop_times)}
    worst = max(errors, key=lambda name: errors[name])
    gaps = (
        Gap(f"largest relative error of a first drop's time ({worst})", errors[worst]),
        *(Gap(f"relative error of the first drop's time, {name}", error) for name, error in errors.items()),
    )
    return Drawn(figure, {"": stacked(tables)}, gaps, {name: run.experiment for name, run in runs.items()})


def forecast(run: Run) -> Prediction:
    """What theory predicts for the optimiser; of Adam above eps the levels only."""
    return predict(TASK, MODEL, weights=run.initial_weights, training=run.training)


def on_the_flow(name: str) -> bool:
    """Whether the clock of the runs is that of the flow."""
    return OPTIMISERS[name].get("optimizer", "sgd") in ("sgd", "momentum")


def shown(theory: np.ndarray, prediction: Prediction, time: np.ndarray) -> np.ndarray:
    """The predicted loss as far as theory goes: to the end, or little beyond its only drop."""
    return np.where((len(prediction.levels) > 2) | (time < 1.25 * prediction.end - 1), theory, np.nan)


def scaled_time(name: str, run: Run) -> np.ndarray:
    """The clock of the flow, times the initial scale."""
    pace = 1.0 if on_the_flow(name) else clock_rate(TASK, MODEL) / EPSILON
    return run.time.values * pace * OPTIMISERS[name]["init"]


def first_error(run: Run, prediction: Prediction) -> float:
    """The relative error of the time at which half of the first drop is done."""
    middle = (prediction.levels[0] + prediction.levels[1]) / 2
    seen = np.interp(-middle, -np.minimum.accumulate(run.loss.values), run.time.values)
    return float(abs(prediction.drop_times[0] / seen - 1))
