r"""How many tasks are enough.

Training on $K$ fixed tasks, each with either sign, by gradient flow on the exact population; test on new tasks. On the
label blocks only the second moment of the tasks matters, so $\min(K, D)$ directions are learned, one drop each, and
theory knows the training loss and the loss on new tasks on every plateau. (a) Four values of $K$ (thick: training,
thin: new tasks; dashed: predicted levels of the training loss). (b) Both losses at the end against $K$; dashed lines
and bands are the mean and the range from 5 to 95 % of theory over 200 draws of the tasks, marks are trained runs with
the value of theory for their own tasks as a cross. (c) The first drop. Few tasks have a larger leading drive, so it
comes earlier on average.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.figures.style import (
    BLACK,
    GREY,
    LOSS_COLOUR,
    MODEL_COLOUR,
    THEORY,
    WIDTH,
    few_ticks,
    letters,
    log_time,
    shades,
    styled,
    theory_key,
)
from iclflow.paper.drawn import Drawn, Gap, loss_table, stacked
from iclflow.results.run import Run
from iclflow.theory import drop_time_distribution
from iclflow.theory.laws.task_sets import task_set_levels

__all__ = ["draw"]

SOURCE = "beyond the paper"
COUNTS = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256)
SHOWN = (1, 2, 8, 64)
MODEL = icl.Separate(heads=5)
INIT = 2e-3
WORTH = 0.01  # a run lasts until the last drop that saves this share of the loss, and twice as long


def draw(fast: bool = False) -> Drawn:
    counts, draws = ((1, 2, 3), 10) if fast else (COUNTS, 200)
    runs = {count: trained(count) for count in counts}
    rows = pd.DataFrame([measured(run) for run in runs.values()])
    theory = pd.DataFrame([row for count in counts for row in expected(count, draws)])
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
        drawn = [k for k in counts if k in SHOWN]
        for colour, count in zip(shades(len(drawn)), drawn, strict=True):
            time = runs[count].time.values
            kept = time > 0
            left.plot(time[kept], runs[count].loss.values[kept], color=colour, label=f"{count}")
            left.plot(time[kept], runs[count].loss_icl.values[kept], color=colour, lw=0.8)
            for level in task_set_levels(runs[count].task).train[1:]:
                left.axhline(level, **{**THEORY, "lw": 0.5})
        log_time(left, 0.3 * rows.first_drop.min(), max(run.time.values[-1] for run in runs.values()))
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, None))
        theory_key(left)
        for name, marker, label in (("train", "o", "training"), ("test", "s", "new tasks")):
            band(middle, theory, name, LOSS_COLOUR[label])
            middle.plot(rows.tasks, rows[f"{name}_theory"], "x", ms=4, color=BLACK)
            middle.plot(rows.tasks, rows[name], marker, ms=4, mfc="none", color=LOSS_COLOUR[label], label=label)
        theory_key(middle)
        middle.axhline(icl.theory.minimum(icl.Task()), color=GREY, lw=0.8, ls=":", zorder=0)
        middle.set(xscale="log", yscale="log", xlabel="tasks $K$", ylabel="loss at the end")
        band(right, theory, "first_drop", MODEL_COLOUR["separate"])
        right.plot(rows.tasks, rows.first_drop_theory, "x", ms=4, color=BLACK, label="theory, own tasks")
        right.plot(rows.tasks, rows.first_drop, "o", ms=4, mfc="none", color=MODEL_COLOUR["separate"], label="trained")
        right.set(xscale="log", yscale="log", xlabel="tasks $K$", ylabel=r"first drop $t/\tau$")
        for ax in (middle, right):
            few_ticks(ax.xaxis, (1.0, 4.0, 16.0, 64.0, 256.0))
        few_ticks(middle.yaxis, (0.05, 0.1, 0.2, 0.5, 1.0))
        few_ticks(right.yaxis, (500.0, 1000.0, 2000.0, 5000.0))
        left.legend(title="tasks $K$", labelspacing=0.2)
        middle.legend()
        right.legend(loc="lower right")
        letters(left, middle, right)
    gap = lambda name: float((rows[name] / rows[f"{name}_theory"] - 1).abs().max())
    gaps = (
        Gap("largest relative distance of a loss on new tasks at the end from theory", gap("test")),
        Gap("largest relative distance of a training loss at the end from theory", gap("train")),
        Gap("largest relative error of a first drop", gap("first_drop")),
    )
    curves = stacked({f"K {count}": loss_table(run) for count, run in runs.items()})
    experiments = {f"{count} tasks": run.experiment for count, run in runs.items()}
    return Drawn(figure, {"runs": rows, "theory": theory, "curves": curves}, gaps, experiments)


def band(ax: Axes, theory: pd.DataFrame, name: str, colour: str) -> None:
    """Mean and range of theory over draws of the tasks."""
    groups = theory.groupby("tasks")[name]
    ax.plot(groups.mean().index, groups.mean(), **{**THEORY, "color": colour})
    ax.fill_between(groups.mean().index, groups.quantile(0.05), groups.quantile(0.95), color=colour, alpha=0.15, lw=0)


def trained(count: int) -> Run:
    """The flow on K tasks until all drops that are worth it have come."""
    task = icl.Task(tasks=count, mirror_tasks=True)
    levels = task_set_levels(task).train
    worth = -np.diff(levels) > WORTH * levels[0]
    return icl.train(task, MODEL, init=INIT, time=2 * float(drop_times(task)[worth].max()), records=2)


def drop_times(task: icl.Task) -> Float[np.ndarray, " m"]:
    """The predicted drops of seed 0."""
    return drop_time_distribution(task, MODEL, init=INIT, seeds=1).values[0]


def measured(run: Run) -> dict[str, int | float]:
    """End and first drop of a run, beside theory for its own tasks."""
    levels = task_set_levels(run.task)
    predicted = drop_times(run.task)
    learned = int(np.sum(predicted < run.time.values[-1]))
    return {
        "tasks": run.task.tasks or 0,
        "learned": learned,
        "train": float(run.loss.values[-1]),
        "train_theory": float(levels.train[learned]),
        "test": float(run.loss_icl.values[-1]),
        "test_theory": float(levels.test[learned]),
        "first_drop": crossing(run.time.values, run.loss.values, float(levels.train[:2].mean())) or np.nan,
        "first_drop_theory": float(predicted[0]),
    }


def expected(count: int, draws: int) -> list[dict[str, int | float]]:
    """Theory for many draws of the tasks: losses at the end, and the first drop for the same initial weights."""
    rows: list[dict[str, int | float]] = []
    for number in range(draws):
        task = icl.Task(tasks=count, mirror_tasks=True, task_seed=number)
        levels = task_set_levels(task)
        worth = int(np.sum(-np.diff(levels.train) > WORTH * levels.train[0]))
        rows.append(
            {"tasks": count, "task_seed": number, "train": levels.train[worth], "test": levels.test[worth],
             "first_drop": float(drop_times(task)[0])}
        )  # fmt: skip
    return rows
