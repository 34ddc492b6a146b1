"""Training on a finite number of tasks."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

import iclflow as icl
from iclflow.comparison.gains import paper_reduced
from iclflow.data.features import features
from iclflow.data.population import population_moments
from iclflow.data.sequences import Law, fresh
from iclflow.figures.style import (
    BLACK,
    GREY,
    LOSS_COLOUR,
    MODEL_COLOUR,
    THEORY,
    few_ticks,
    letters,
    log_time,
    shades,
    theory_key,
)
from iclflow.results.run import Run
from iclflow.studies.measures import drop_times, loss_table, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import drop_time_distribution, plateau_losses
from iclflow.theory.laws.task_sets import task_set_levels

MODEL = icl.Separate(heads=5)
COUNTS = (1, 2, 8, 64)
SMALL = 1e-3


def few_tasks(count: int, offset: int) -> icl.Task:
    """K tasks, each with either sign."""
    return shifted(icl.Task(dim=3, tasks=count, mirror_tasks=True), offset)


def run_on(count: int, offset: int) -> Run:
    """The flow on K tasks, until half as long again as the last drop."""
    task = few_tasks(count, offset)
    return train(task, MODEL, init=SMALL, seed=offset, time=1.5 * float(predicted_drops(task, offset)[-1]))


def predicted_drops(task: icl.Task, seed: int, init: float = SMALL) -> Float[np.ndarray, " m"]:
    """The drop times that theory gives for the initial weights of a seed."""
    return drop_time_distribution(task, MODEL, init=init, seeds=1, seed=seed).values[0]


@claim(bound=0, seeds="0")
def task_components(sabotage: bool = False, offset: int = 0) -> float:
    """K fixed tasks in D dimensions are learned in min(K, D) components.
    Measured: differences in rank of the learned matrix, summed over K = 1, 2, 8, 64 (D = 3)
    """
    wrong = 0
    for count in COUNTS:
        heads = paper_reduced(MODEL, run_on(count, offset).final_weights, few_tasks(count, offset))
        strengths = np.linalg.svd(np.einsum("h,hde->de", heads.value, heads.key_query))[1]
        expected = 3 if sabotage else min(count, 3)  # sabotage: the number of tasks does not matter
        wrong += abs(int(np.sum(strengths > 1e-3 * strengths[0])) - expected)
    return float(wrong)


@claim(bound=1.3e-4, seeds="0-2")
def task_first_drop(sabotage: bool = False, offset: int = 0) -> float:
    """The first drop of training on K tasks comes when the second moment of the tasks and the initial weights say.
    Measured: relative error, median over K = 1, 2, 8, 64 and three draws of tasks and weights
    """
    errors = []
    for count, seed in product(COUNTS, range(offset, offset + (1 if sabotage else 3))):
        run = run_on(count, seed)
        task = run.task.new_tasks if sabotage else run.task  # sabotage: as many tasks as sequences
        predicted = predicted_drops(task, seed)[0]
        errors.append(abs(predicted / drop_times(run, plateau_losses(run.task)[:2])[0] - 1))
    return float(np.median(errors))


@claim(bound=0, seeds="0")
def task_levels(sabotage: bool = False, offset: int = 0) -> float:
    """Theory knows the loss on the K tasks and on new tasks, on every long plateau and at the end.
    Measured: losses, for K = 1, 2, 8, 64, that are more than a part in a thousand off
    """
    gaps = []
    for count in COUNTS:
        run = run_on(count, offset)
        levels = task_set_levels(run.task)
        drops = predicted_drops(run.task, offset)
        times, long = run.time.values, 1.5  # a plateau is long if its end is this many times its beginning
        places = [
            (m + 1, int(np.searchsorted(times, (begin + end) / 2)))
            for m, (begin, end) in enumerate(pairwise(drops))
            if end > long * begin
        ]
        test = levels.train if sabotage else levels.test  # sabotage: new tasks are like the old ones
        for m, place in [*places, (len(drops), len(times) - 1)]:
            gaps += [run.loss.values[place] / levels.train[m] - 1, run.loss_icl.values[place] / test[m] - 1]
    return float(np.sum(np.abs(gaps) > 1e-3))


@claim(bound=5, seeds="0", quick=True)
def task_moments(sabotage: bool = False, offset: int = 0) -> float:
    """Exact moments of all weight blocks for K tasks are those of drawn sequences.
    Measured: largest distance of a loss at random coefficients, in standard errors (20 of them, 100,000 sequences)
    """
    task = shifted(icl.Task(dim=3, context=8, tasks=4, label_noise=0.2), offset)
    exact = population_moments(task.replace(mirror_tasks=sabotage), "context", "all")  # sabotage: no odd moments
    rng = np.random.default_rng([7, offset])
    theta = rng.standard_normal((20, exact.left.shape[0]))
    sums, squares, count, batches = np.zeros(20), np.zeros(20), 10_000, 10
    for index in range(batches):
        data = fresh(Law.of(task), (offset, 7), index, count)
        psi = features(data[:, :-1], data[:, -1, :3], "all") / task.context
        errors = (data[:, -1, 3:] - psi @ theta.T) ** 2
        sums, squares = sums + errors.sum(axis=0), squares + (errors**2).sum(axis=0)
    mean = sums / (batches * count)
    error = np.sqrt((squares / (batches * count) - mean**2) / (batches * count))
    expected = float(exact.power) - 2 * theta @ exact.cross[0] + np.einsum("ni,ij,nj->n", theta, exact.left, theta)
    return float(np.abs((mean - expected) / error).max())


MANY = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256)
SHOWN = (1, 2, 8, 64)
INIT = 2e-3
WORTH = 0.01  # a run lasts until the last drop that saves this share of the loss, and twice as long


@figure()
def task_diversity(fast: bool = False) -> Result:
    r"""How many tasks are enough.

    Training on $K$ fixed tasks, each with either sign, by gradient flow on the exact population; test on new tasks. On
    the label blocks only the second moment of the tasks matters, so $\min(K, D)$ directions are learned, one drop each,
    and theory knows the training loss and the loss on new tasks on every plateau. (a) Four values of $K$ (thick:
    training, thin: new tasks; dashed: predicted levels of the training loss). (b) Both losses at the end against $K$;
    dashed lines and bands are the mean and the range from 5 to 95 % of theory over 200 draws of the tasks, marks are
    trained runs with the value of theory for their own tasks as a cross. (c) The first drop. Few tasks have a larger
    leading drive, so it comes earlier on average.
    """
    counts, draws = ((1, 2, 3), 10) if fast else (MANY, 200)
    runs = {count: trained(count) for count in counts}
    rows = pd.DataFrame([measured(run) for run in runs.values()])
    theory = pd.DataFrame([row for count in counts for row in expected(count, draws)])
    figure, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.3, 1, 1))
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
        Measured("largest relative distance of a loss on new tasks at the end from theory", gap("test")),
        Measured("largest relative distance of a training loss at the end from theory", gap("train")),
        Measured("largest relative error of a first drop", gap("first_drop")),
    )
    curves = stacked({f"K {count}": loss_table(run) for count, run in runs.items()})
    experiments = {f"{count} tasks": run.experiment for count, run in runs.items()}
    return Result(figure, {"runs": rows, "theory": theory, "curves": curves}, gaps, experiments)


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
    return train(task, MODEL, init=INIT, time=2 * float(predicted_drops(task, 0, INIT)[worth].max()), records=2)


def measured(run: Run) -> dict[str, int | float]:
    """End and first drop of a run, beside theory for its own tasks."""
    levels = task_set_levels(run.task)
    predicted = predicted_drops(run.task, 0, INIT)
    learned = int(np.sum(predicted < run.time.values[-1]))
    return {
        "tasks": run.task.tasks or 0,
        "learned": learned,
        "train": float(run.loss.values[-1]),
        "train_theory": float(levels.train[learned]),
        "test": float(run.loss_icl.values[-1]),
        "test_theory": float(levels.test[learned]),
        "first_drop": float(drop_times(run, levels.train[:2])[0]),
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
             "first_drop": float(predicted_drops(task, 0, INIT)[0])}
        )  # fmt: skip
    return rows
