"""Momentum, Adam and Muon: what each does to the staircase."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import COLOURS, THEORY, WIDTH, letters, log_time, plateau_lines, theory_key
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.studies.measures import drop_times, each_seed, few, loss_table, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import plateau_losses
from iclflow.theory.laws.adam import EPSILON
from iclflow.units import clock_rate

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
SMALL = icl.Task(dim=3, context=31)  # for claims that need hundreds of runs


@claim(bound=1, seeds="0 to 3")
def momentum_lag(sabotage: bool = False, offset: int = 0) -> float:
    """Momentum runs on the clock 2 lr step/(1 - beta) of the flow, and its first drop comes when theory says.
    Measured: runs, of 16, whose first drop is more than .5 % off; beta .5, .9, .95, lr .01 to .05, and merged
    """
    errors, task = [], shifted(TASK, offset)
    for model, beta, lr, init, steps in (
        (MODEL, 0.5, 0.05, 1e-2, 9000), (MODEL, 0.9, 0.02, 1e-2, 5000), (MODEL, 0.95, 0.01, 1e-2, 5000),
        (icl.Merged(heads=8), 0.9, 0.02, 1e-3, 400),
    ):  # fmt: skip
        settings: dict[str, Any] = {"optimizer": "momentum", "beta": beta, "lr": lr}
        many = {"seed": offset, "seeds": 1 if sabotage else 4}
        runs = train(task, model, init=init, steps=steps, records=2, **many, **settings)
        for one in each_seed(runs):
            known = {**settings, "lr": None} if sabotage else settings
            predicted = icl.predict(task, model, weights=one.initial_weights, **known)
            errors.append(abs(predicted.drop_times[0] / drop_times(one, predicted.levels[:2])[0] - 1))
    return float(np.sum(~(np.array(errors) <= 0.005)))


def adam_first_drops(init: float, lr: float, steps: int, offset: int, seeds: int = 5) -> Float[np.ndarray, " seeds"]:
    """The steps at which half of the first drop is done, of some seeds."""
    task = shifted(TASK, offset)
    runs = train(task, MODEL, init=init, optimizer="adam", lr=lr, steps=steps, seed=offset, seeds=seeds, records=2)
    return np.array([drop_times(run, plateau_losses(task)[:2])[0] / lr for run in each_seed(runs)])


@claim(bound=0.2, seeds="0 to 4")
def adam_ignores_init(sabotage: bool = False, offset: int = 0) -> float:
    """Where gradients are above eps, Adam's first drop comes at nearly the same step for initial weights over five
    decades (5 heads, D = 4, lr 1e-3).
    Measured: largest distance from their mean of the median steps of five seeds for init 1e-1 to 1e-6, relative
    """
    scales, seeds = (1e-1, 1e-2, 1e-4, 1e-9 if sabotage else 1e-6), 1 if sabotage else 5
    found = [adam_first_drops(scale, 1e-3, 60_000 if scale < 1e-8 else 600, offset, seeds) for scale in scales]
    steps = np.median(found, axis=1)
    return float(np.abs(steps / steps.mean() - 1).max())


@claim(bound=0.06, seeds="0 to 4")
def adam_below_eps(sabotage: bool = False, offset: int = 0) -> float:
    """Where eps is above the gradients, Adam is descent with lr/eps: its first drop comes at T eps/2, T as 1/init.
    Measured: largest relative error of the first drop of five seeds for init 1e-9 and 1e-10
    """
    errors, task = [], shifted(TASK, offset)
    for init, lr in ((1e-9, 2e-3), (1e-10, 2e-2))[: 1 if sabotage else 2]:
        given = init * (2 if sabotage else 1)
        for seed, found in enumerate(adam_first_drops(init, lr, 40_000, offset, 1 if sabotage else 5), offset):
            time = icl.predict(task, MODEL, init=given, seed=seed, optimizer="adam").drop_times[0]
            errors.append(abs(float(time) / lr / found - 1))
    return float(max(errors))


def muon_runs(how: str, init: float, offset: int) -> Run:
    """Nine seeds of Muon with momentum, on the clock learning rate x step."""
    task = shifted(TASK, offset)
    settings: dict[str, Any] = {"optimizer": "muon", "muon": how, "lr": 2e-3, "steps": 1300, "records": 2}
    return train(task, MODEL, init=init, seed=offset, seeds=9, **settings)


def passing_times(how: str, init: float, offset: int) -> Float[np.ndarray, "seeds m"]:
    """When the loss passes the middle between levels: of all drops, or of the first."""
    runs, levels = muon_runs(how, init, offset), plateau_losses(shifted(TASK, offset))
    wanted = levels if how == "stacked" else levels[:2]
    return np.array([drop_times(run, wanted) for run in each_seed(runs)])


@claim(bound=0.04, seeds="0 to 8")
def muon_times(sabotage: bool = False, offset: int = 0) -> float:
    """With Muon all directions grow together, at speeds that know neither the drive nor the initial weights.
    Measured: largest median error over nine seeds of times: heads stacked (init 1e-6, 1e-9), one by one (first drop)
    """
    task, worst = shifted(TASK, offset), 0.0
    model = MODEL.replace(heads=10) if sabotage else MODEL
    settings = (("heads", 1e-6), ("stacked", 1e-6), ("stacked", 1e-9))
    for how, init in settings[:1] if sabotage else settings:
        predicted = icl.predict(task, model, optimizer="muon", muon=how, seed=offset).drop_times
        errors = np.abs(predicted / passing_times(how, init, offset) - 1)
        worst = max(worst, float(np.median(errors, axis=0).max()))
    return worst


@claim(bound=0, seeds="0-3")
def optimisers_share_levels(sabotage: bool = False, offset: int = 0) -> float:
    """No optimiser changes a fixed point: descent, momentum and Adam below eps pause at the same losses L(M_m).
    Measured: long plateaus of three optimisers whose loss is more than a part in a thousand from every L(M_m)
    """
    task, seen = shifted(SMALL, offset), []
    levels = plateau_losses(task.replace(context=20) if sabotage else task)
    for settings in (
        {"init": 3e-3, "lr": 0.4, "steps": 20_000},
        {"init": 3e-3, "lr": 0.04, "steps": 20_000, "optimizer": "momentum"},
        {"init": 1e-9, "lr": 0.02, "steps": 10_000, "optimizer": "adam"},
    ):
        runs = train(task, MODEL, seed=offset, seeds=4, records=2, **settings)
        for run in each_seed(runs):
            when = drop_times(run, plateau_losses(task))
            pauses = [(a + b) / 2 for a, b in pairwise(when) if np.isfinite(b) and b > 1.3 * a]
            seen += list(np.interp(pauses, run.time.values, run.loss.values))
    return float(sum(np.abs(levels / loss - 1).min() > 1e-3 for loss in seen)) if seen else np.inf


OPTIMISERS: dict[str, dict[str, Any]] = {
    "descent": {"init": 5e-3, "lr": 0.8, "steps": 16_000},
    "momentum": {"init": 5e-3, "lr": 0.04, "steps": 32_000, "optimizer": "momentum"},
    "Adam below eps": {"init": 1e-9, "lr": 0.03, "steps": 20_000, "optimizer": "adam"},
    "Adam": {"init": 1e-3, "lr": 1e-3, "steps": 2500, "optimizer": "adam"},
    "Muon, stacked": {"init": 1e-6, "lr": 2e-3, "steps": 1300, "optimizer": "muon"},
    "Muon, head by head": {"init": 1e-6, "lr": 2e-3, "steps": 1300, "optimizer": "muon", "muon": "heads"},
}
ONE_STAIRCASE = ("descent", "momentum", "Adam below eps")


@figure()
def optimisers(fast: bool = False) -> Result:
    r"""Six optimisers on one task: the same fixed points, other clocks.

    Separate key and query of rank one on the population. (a) Gradient descent, momentum ($\beta = 0.9$) and Adam with
    gradients far below its $\varepsilon$, from one draw of initial weights, against time times the scale of these
    weights (0.005, 0.005 and $10^{-9}$): on the clock of the flow, twice the learning rate times the step, with $1/(1 -
    \beta)$ for momentum and $1/\varepsilon$ for Adam, they show nearly one staircase (finite steps delay a drop, and
    heads that still wait gain from the delay, so later drops can come early). (b to g) Each optimiser on a clock of its
    own, with what theory predicts (dashed; Adam above $\varepsilon$ has no staircase to predict). Where every entry
    moves at the learning rate (Adam) or every singular value does (Muon), nothing waits for small weights to grow: the
    drops run into each other, and their times do not depend on the initial weights. Dotted: the losses $L(M_m)$ of the
    fixed points, which no optimiser changes.
    """
    chosen = {name: OPTIMISERS[name] for name in OPTIMISERS if not fast or name in ("momentum", "Muon, stacked")}
    runs = {name: train(TASK, MODEL, records=50, **settings) for name, settings in chosen.items()}
    predicted = {name: forecast(run) for name, run in runs.items()}
    levels = plateau_losses(TASK)
    tables: dict[str, pd.DataFrame] = {}
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
        Measured(f"largest relative error of a first drop's time ({worst})", errors[worst]),
        *(Measured(f"relative error of the first drop's time, {name}", error) for name, error in errors.items()),
    )
    return Result(figure, {"": stacked(tables)}, gaps, {name: run.experiment for name, run in runs.items()})


def forecast(run: Run) -> Prediction:
    """What theory predicts for the optimiser; of Adam above eps the levels only."""
    return icl.predict(TASK, MODEL, weights=run.initial_weights, training=run.training)


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
