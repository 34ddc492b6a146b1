r"""Weight decay cuts the staircase off.

Separate key and query of rank one, gradient flow on the population, with a term that shrinks all weights at the rate
$\gamma$ on the clock $t/\tau$. A drop that comes at the time $T$ without decay comes at $-\ln(1 - \gamma T)/\gamma$ if
$\gamma T < 1$, and never otherwise. (a) One draw of initial weights at five rates of decay (dashed: predicted from the
initial weights alone). (b) $T$ is inversely proportional to the scale of the initial weights, `init`, so the number of
components that are learned is a function of $\gamma$ over this scale, here for one draw at three scales (dashed: the
law). (c) Every direction of every run with decay, three draws at three scales: its strength at the end over the one at
which theory lets it rest, against $\gamma T$ with $T$ predicted.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.comparison.gains import gains
from iclflow.figures.style import (
    GREY,
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
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.theory import directions
from iclflow.theory.decay import decayed_strength
from iclflow.units import clock_rate

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
SCALES = (1e-2, 5e-3, 2e-3)
SHARES = np.geomspace(0.008, 0.4, 12)  # of gamma over the initial scale
FEW_TIMES = 3.5  # a run with decay lasts so many times 1/gamma
NEAR = 0.05  # events nearer to the threshold than this are not counted
RATE = clock_rate(TASK, MODEL)


def draw(fast: bool = False) -> Drawn:
    seeds, scales, shares = (1, SCALES[:1], SHARES[5::3]) if fast else (3, SCALES, SHARES)
    free = {(seed, scale): icl.predict(TASK, MODEL, init=scale, seed=seed) for seed in range(seeds) for scale in scales}
    events, settings = [], {}
    for (seed, scale), prediction in free.items():
        for share in shares:
            gamma = float(share * scale)
            run = decaying(gamma, scale, seed)
            events += observed(run, gamma, scale, seed, prediction)
            settings[f"init {scale:g}, seed {seed}, gamma {gamma:.3g}"] = run.experiment
    table = pd.DataFrame(events)
    cut, courses = cut_off(scales[-1], free[0, scales[-1]], fast)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
        for colour, (gamma, run) in zip(shades(len(cut)), cut.items(), strict=True):
            kept = run.time.values > 0
            left.plot(run.time.values[kept], run.loss.values[kept], color=colour, label=f"{1e3 * gamma:.3g}")
            left.plot(run.time.values[kept], courses[gamma][kept], **THEORY)
        first, last = free[0, scales[-1]].drop_times[[0, -1]]
        log_time(left, 0.4 * first, 5.5 * last)
        left.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 1.05), title=f"init {scales[-1]:g}")
        theory_key(left)
        left.set_ylim(0, 1.75)
        left.set_yticks(np.arange(0, 1.1, 0.25))
        left.legend(title=r"$10^3\gamma$", loc="upper right", ncols=2, labelspacing=0.2, columnspacing=1.0)
        for colour, marker, scale in zip(shades(3), "osv", scales, strict=False):
            own = table[(table.seed == 0) & (table.init == scale)].groupby("gamma").learned.sum()
            middle.plot(own.index / scale, own, marker, ms=4, color=colour, mfc="none", label=f"{scale:g}")
        fine = np.geomspace(shares[0] / 1.5, shares[-1] * 1.5, 800)
        law = [(gamma * scales[-1] * free[0, scales[-1]].drop_times < 1).sum() for gamma in fine]
        middle.plot(fine, law, label="theory", **THEORY)
        middle.set(xscale="log", xlabel=r"$\gamma$/init", ylabel="components learned", yticks=range(TASK.dim + 1))
        few_ticks(middle.xaxis, tuple(x for x in (0.01, 0.03, 0.1, 0.3) if fine[0] < x < fine[-1]))
        middle.legend(title="init", loc="lower left")
        count = f"{len(table)} events"
        right.plot(table.gamma_T, table.strength, ".", ms=4, color=MODEL_COLOUR["separate"], alpha=0.6, label=count)
        right.plot([table.gamma_T.min(), 1, 1, table.gamma_T.max()], [1, 1, 0, 0], label="theory", **THEORY)
        right.axvline(1, color=GREY, lw=0.8, ls=":", zorder=0)
        right.set_yticks(np.arange(0, 1.1, 0.25))
        right.legend(loc="upper right")
        letters(left, middle, right)
        right.set(xscale="log", xlabel=r"$\gamma T$", ylabel="final strength / predicted", ylim=(-0.05, 1.55))

    counted = table[(table.gamma_T - 1).abs() > NEAR]
    wrong = counted[counted.learned != (counted.gamma_T < 1)]
    learned = counted[counted.learned & (counted.gamma_T < 1)]
    gaps = (
        Gap(
            f"share of {len(counted)} events, {NEAR:.0%} or more from the threshold, on its wrong side",
            len(wrong) / len(counted),
        ),
        Gap("largest distance of a learned strength from the predicted one", float((learned.strength - 1).abs().max())),
        Gap("median relative error of a drop time with decay", drop_error(cut)),
    )
    cuts = {f"cut off, gamma {gamma:.3g}": run.experiment for gamma, run in cut.items()}
    tables = {f"gamma {gamma:.3g}": loss_table(run, courses[gamma]) for gamma, run in cut.items()}
    return Drawn(figure, {"events": table, "curves": stacked(tables)}, gaps, {**cuts, **settings})


def decaying(gamma: float, scale: float, seed: int) -> Run:
    """The flow with decay, until everything that comes has come."""
    return icl.train(TASK, MODEL, init=scale, seed=seed, weight_decay=gamma * RATE, time=FEW_TIMES / gamma, records=2)


def observed(run: Run, gamma: float, scale: float, seed: int, free: Prediction) -> list[dict[str, float]]:
    """Every direction at the end of a run, beside the time at which it would be learned without decay."""
    d = directions(TASK)
    end = gains(MODEL, run.final_weights, TASK, "label")
    share = decayed_strength(d, gamma) / d.strength
    return [
        {
            "init": scale, "seed": seed, "gamma": gamma, "direction": int(k) + 1, "gamma_T": gamma * time,
            "strength": end[k] / share[k], "learned": bool(end[k] > 0.5 * share[k]),
        }
        for k, time in zip(free.directions, free.drop_times, strict=True)
    ]  # fmt: skip


def cut_off(scale: float, free: Prediction, fast: bool) -> tuple[dict[float, Run], dict[float, np.ndarray]]:
    """One draw with decay between each two thresholds, and what theory predicts for it."""
    thresholds = 1 / free.drop_times
    gammas = [
        float(g) for g in (thresholds[-1] / 2, *np.sqrt(thresholds[1:] * thresholds[:-1])[::-1], 2 * thresholds[0])
    ]
    if fast:
        gammas = gammas[2:4]
    end = (1 if fast else 6) * float(free.drop_times[-1])
    runs = {g: icl.train(TASK, MODEL, init=scale, weight_decay=g * RATE, time=end) for g in gammas}
    theory = {g: icl.predict(TASK, MODEL, init=scale, weight_decay=g * RATE) for g in gammas}
    return runs, {g: theory[g].loss(run.time.values) for g, run in runs.items()}


def drop_error(cut: dict[float, Run]) -> float:
    """The median relative error of all drop times of the runs that were cut off."""
    found = [drop.error for run in cut.values() for drop in compare_one(run, None).drops]
    return float(np.median([np.inf if error is None else error for error in found]))
