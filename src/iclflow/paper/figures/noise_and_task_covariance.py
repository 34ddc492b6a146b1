r"""Noisy labels and unequal tasks: the same staircase with two different numbers per direction.

(a) Noise of variance $\sigma^2$ on the context's labels raises every plateau but the first, and delays the drops. (b) A
task covariance that favours the second eigenvector, $\Omega = \mathrm{diag}(1, 3, 1.5, 1)$. Directions are learned in
decreasing order of $\omega\lambda^2$, here 2, 1, 3, 4, and no longer in the order of the eigenvalues $\lambda$. (c) The
fraction of its final strength that each direction has reached in the same run. Solid curves are gradient descent on the
population; dashed curves and times are predicted from the initial weights.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import Comparison, compare_one, gains
from iclflow.figures.style import (
    COLOURS,
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
from iclflow.results.run import Run
from iclflow.theory import directions, plateau_losses

__all__ = ["draw"]

SOURCE = "beyond the paper"
MODEL = icl.Separate(heads=5)
PLAIN = icl.Task(dim=4, context=31)
UNEQUAL = PLAIN.replace(task_spectrum=(1.0, 3.0, 1.5, 1.0))
VARIANCES = (0.0, 1.0, 4.0)


def draw(fast: bool = False) -> Drawn:
    init = 1e-2 if fast else 2e-3
    train = lambda task: icl.train(task, MODEL, init=init, engine="moments", records=1500)
    noisy = {f"noise {s:g}": train(PLAIN.replace(label_noise=s)) for s in (VARIANCES[1:2] if fast else VARIANCES)}
    unequal = train(UNEQUAL)
    runs = {**noisy, "unequal tasks": unequal}
    beside = {name: compare_one(run, None) for name, run in runs.items()}
    with styled():
        figure = Figure(figsize=(WIDTH, 4.8))
        grid = figure.add_gridspec(2, 2)
        top, left, right = (figure.add_subplot(cells) for cells in (grid[0, :], grid[1, 0], grid[1, 1]))
        for colour, (name, run) in zip(shades(len(noisy)), noisy.items(), strict=True):
            curve(top, run, beside[name], colour, name.replace("noise ", r"$\sigma^2 = $"))
            for level in plateau_losses(run.task)[1:]:
                top.axhline(level, color=colour, lw=0.8, ls=":", zorder=0)
        theory_key(top)
        top.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05), title="noise on the labels")
        top.legend(loc="lower left")
        curve(left, unequal, beside["unequal tasks"], MODEL_COLOUR["separate"], "simulation")
        theory_key(left)
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05 * plateau_losses(UNEQUAL)[0]))
        left.set_title("unequal tasks")
        left.legend(loc="lower left")
        plateau_lines(left, plateau_losses(UNEQUAL))
        shares = draw_shares(right, unequal, beside["unequal tasks"])
        right.set_title("unequal tasks")
        letters(top, left, right)
        first = min(b.prediction.drop_times[0] for b in beside.values())
        for ax in (top, left, right):
            log_time(ax, 0.1 * first, 1.3 * max(float(run.time.values[-1]) for run in runs.values()))
    errors = [np.inf if d.error is None else d.error for b in beside.values() for d in b.drops]
    wrong = [d.direction != d.observed_direction for d in beside["unequal tasks"].drops]
    gaps = (
        Gap("largest relative error of a drop time", float(max(errors))),
        Gap("largest mean gap of the loss over time", max(b.mean_gap for b in beside.values())),
        Gap("drops of a different direction than predicted", float(sum(wrong))),
    )
    numbers = {"loss": stacked({n: loss_table(r, beside[n].prediction.loss(r.time.values)) for n, r in runs.items()})}
    return Drawn(figure, {**numbers, "shares": shares}, gaps, {n: r.experiment for n, r in runs.items()})


def curve(ax: Axes, run: Run, comparison: Comparison, colour: str, name: str) -> None:
    """Draw a loss curve with its prediction."""
    kept = few(len(run.time), 1500)[1:]
    time = run.time.values[kept]
    ax.plot(time, run.loss.values[kept], color=colour, lw=2.2, label=name)
    ax.plot(time, comparison.prediction.loss(time), **THEORY)


def draw_shares(ax: Axes, run: Run, comparison: Comparison) -> pd.DataFrame:
    """Draw the fraction of its final strength that every direction has reached, and the predicted drop times."""
    time, d = run.weights["time"].values, directions(UNEQUAL)
    shares = np.array([gains(run.model, weights, run.task) for weights in run.snapshots()])
    for i in range(UNEQUAL.dim):
        label = rf"$e_{i + 1}$: {d.drive[i]:.2f}"
        ax.plot(time[1:], shares[1:, i], color=COLOURS[i], label=label)
    for drop, direction in zip(comparison.prediction.drop_times, comparison.prediction.directions, strict=True):
        ax.axvline(drop, **{**THEORY, "color": COLOURS[direction]})
    theory_key(ax)
    ax.set(xlabel=r"time $t/\tau$", ylabel="share learned", ylim=(-0.05, 1.1))
    ax.legend(loc="center left", title=r"$\omega\lambda^2$")
    return pd.DataFrame({"time": time, **{f"share{i + 1}": shares[:, i] for i in range(UNEQUAL.dim)}})
