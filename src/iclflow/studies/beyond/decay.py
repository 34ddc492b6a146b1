"""Weight decay: what is learned in time stays, what comes later never comes."""

from typing import Any

import numpy as np
import pandas as pd

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.comparison.gains import gains
from iclflow.figures.style import GREY, MODEL_COLOUR, THEORY, few_ticks, letters, log_time, shades, theory_key
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.studies.measures import drop_errors, drop_times, each_seed, loss_table, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import directions, landscape, plateau_losses
from iclflow.theory.decay import FOLD, decayed_strength
from iclflow.units import clock_rate

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
SMALL = icl.Task(dim=3, context=31)  # for claims that need hundreds of runs
RATE = clock_rate(TASK, MODEL)


@claim(bound=4, seeds="0 to 4")
def decay_learned_or_never(sabotage: bool = False, offset: int = 0) -> float:
    """With weight decay gamma, a drop that comes at T without it comes if gamma T < 1 and never otherwise, but for near
    ties.
    Measured: drops, of 15 (5 seeds), with another outcome at one of 30 rates for which gamma T is not within 5 % of 1
    """
    settings: dict[str, Any] = {"init": 3e-3, "lr": 0.4, "seed": offset, "seeds": 5, "records": 2}
    task = shifted(SMALL, offset)
    free = train(task, MODEL, steps=60_000, **settings)
    times = np.array([drop_times(run, plateau_losses(task)) for run in each_seed(free)])
    wrong = np.zeros(times.shape, dtype=bool)
    for gamma in np.geomspace(0.6 / np.max(times), 1.6 / np.min(times), 5 if sabotage else 30):
        steps = int(3.2 / gamma / (RATE * settings["lr"]))
        runs = train(task, MODEL, steps=steps, weight_decay=RATE * float(gamma), **settings)
        share = decayed_strength(directions(task), float(gamma)) / directions(task).strength
        for number, (seed, own) in enumerate(zip(runs.seeds, times, strict=True)):
            held = np.sort(gains(MODEL, runs.select(seed).final_weights, task, "label") / np.maximum(share, 1e-3))[::-1]
            product = gamma * own * (2 if sabotage else 1)
            wrong[number] |= (np.abs(product - 1) > 0.05) & ((held > 0.5) != (product < 1))
    return float(wrong.sum())


@claim(bound=4e-5, seeds="0 to 4")
def decay_times(sabotage: bool = False, offset: int = 0) -> float:
    """Drop times with weight decay follow from the initial weights: -ln(1 - gamma T)/gamma, T predicted without decay.
    Measured: median relative error of drop times over five seeds and two rates, init 1e-3
    """
    errors, task = [], shifted(SMALL, offset)
    for seed in range(offset, offset + (1 if sabotage else 5)):
        free = icl.predict(task, MODEL, init=1e-3, seed=seed)
        for share in (0.5, 0.9):
            decay = RATE * share / float(free.drop_times[1])
            predicted = icl.predict(task, MODEL, init=1e-3, seed=seed, weight_decay=decay).drop_times[:2]
            if sabotage:
                predicted = free.drop_times[:2]
            time = 1.3 * float(predicted[-1]) if not sabotage else 4 * float(predicted[-1])
            run = train(task, MODEL, init=1e-3, seed=seed, weight_decay=decay, time=time, records=2)
            errors += list(np.abs(predicted / drop_times(run, plateau_losses(task)[:3]) - 1))
    return float(np.median(errors))


@claim(bound=0, seeds="0")
def decay_fold(sabotage: bool = False, offset: int = 0) -> float:
    """A direction that one head holds alone is held up to gamma = 0.4725 g c and lost beyond; merged attention learns
    if gamma < |C_1|.
    Measured: wrong outcomes of 8, 3 % below and above the thresholds of three directions and of merged attention
    """
    task = shifted(SMALL, offset)
    d, wrong, fold = directions(task), 0, 2 * FOLD if sabotage else FOLD
    whole = MODEL.balanced(d.matrix(d.strength), task)
    for i in range(task.dim):
        for factor in (0.97, 1.03):
            gamma = fold * factor * float(d.drive[i] * np.cbrt(d.strength[i]))
            run = train(task, MODEL, weights=whole, weight_decay=RATE * gamma, time=300 / gamma, records=2, seed=offset)
            held = gains(MODEL, run.final_weights, task, "label")[i] > 0.1
            wrong += held != (factor < 1)
    model, size = icl.Merged(heads=4), float(np.linalg.norm(landscape(task).cross))
    for factor in (0.97, 1.03):
        gamma = factor * size * (2 if sabotage else 1)
        run = train(task, model, init=1e-2, weight_decay=RATE * gamma, time=600 / size, records=2, seed=offset)
        norms = [np.linalg.norm(weights["value"]) for weights in (run.initial_weights, run.final_weights)]
        wrong += (norms[1] > norms[0]) != (factor < 1)
    return float(wrong)


SCALES = (1e-2, 5e-3, 2e-3)
SHARES = np.geomspace(0.008, 0.4, 12)  # of gamma over the initial scale
FEW_TIMES = 3.5  # a run with decay lasts so many times 1/gamma
NEAR = 0.05  # events nearer to the threshold than this are not counted


@figure()
def decay(fast: bool = False) -> Result:
    r"""Weight decay cuts the staircase off.

    Separate key and query of rank one, gradient flow on the population, with a term that shrinks all weights at the
    rate $\gamma$ on the clock $t/\tau$. A drop that comes at the time $T$ without decay comes at $-\ln(1 - \gamma
    T)/\gamma$ if $\gamma T < 1$, and never otherwise. (a) One draw of initial weights at five rates of decay (dashed:
    predicted from the initial weights alone). (b) $T$ is inversely proportional to the scale of the initial weights,
    `init`, so the number of components that are learned is a function of $\gamma$ over this scale, here for one draw at
    three scales (dashed: the law). (c) Every direction of every run with decay, three draws at three scales: its
    strength at the end over the one at which theory lets it rest, against $\gamma T$ with $T$ predicted.
    """
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
    figure, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.25, 1, 1))
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
        Measured(
            f"share of {len(counted)} events, {NEAR:.0%} or more from the threshold, on its wrong side",
            len(wrong) / len(counted),
        ),
        Measured(
            "largest distance of a learned strength from the predicted one", float((learned.strength - 1).abs().max())
        ),
        Measured("median relative error of a drop time with decay", drop_error(cut)),
    )
    cuts = {f"cut off, gamma {gamma:.3g}": run.experiment for gamma, run in cut.items()}
    tables = {f"gamma {gamma:.3g}": loss_table(run, courses[gamma]) for gamma, run in cut.items()}
    return Result(figure, {"events": table, "curves": stacked(tables)}, gaps, {**cuts, **settings})


def decaying(gamma: float, scale: float, seed: int) -> Run:
    """The flow with decay, until everything that comes has come."""
    return train(TASK, MODEL, init=scale, seed=seed, weight_decay=gamma * RATE, time=FEW_TIMES / gamma, records=2)


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
    runs = {g: train(TASK, MODEL, init=scale, weight_decay=g * RATE, time=end) for g in gammas}
    theory = {g: icl.predict(TASK, MODEL, init=scale, weight_decay=g * RATE) for g in gammas}
    return runs, {g: theory[g].loss(run.time.values) for g, run in runs.items()}


def drop_error(cut: dict[float, Run]) -> float:
    """The median relative error of all drop times of the runs that were cut off."""
    return float(np.median([error for run in cut.values() for error in drop_errors(compare_one(run, None).drops)]))
