"""Weight decay, momentum, Adam, Muon and the edge of stability: what each does to the staircase."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import crossing
from iclflow.comparison.gains import gains
from iclflow.prediction.edges import stable_rates
from iclflow.results.run import Run
from iclflow.theory import directions, landscape, plateau_losses
from iclflow.theory.decay import FOLD, decayed_strength
from iclflow.units import clock_rate

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
SMALL = icl.Task(dim=3, context=31)  # for claims that need hundreds of runs
RATE = clock_rate(TASK, MODEL)


def middles(task: icl.Task) -> Float[np.ndarray, " m"]:
    """The losses halfway between plateaus."""
    levels = plateau_losses(task)
    return (levels[1:] + levels[:-1]) / 2


def crossings(run: Run, losses: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """When the loss falls to each level; infinite if it never does."""
    found = [crossing(run.time.values, run.loss.values, float(level)) for level in losses]
    return np.array([np.inf if time is None else time for time in found])


# --- weight decay -----------------------------------------------------------------------------------------------------


@claim(
    "decay-learned-or-never",
    "With weight decay gamma, a drop that comes at T without it comes if gamma T < 1 and never otherwise, but for near"
    " ties.",
    source="beyond the paper",
    quantity="drops, of 15 (5 seeds), with another outcome at one of 30 rates for which gamma T is not within 5 % of 1",
    bound=4,
    seeds="0 to 4",
)
def learned_or_never(sabotage: bool = False, offset: int = 0) -> float:
    settings: dict[str, Any] = {"init": 3e-3, "lr": 0.4, "seed": offset, "seeds": 5, "records": 2}
    task = shifted(SMALL, offset)
    free = icl.train(task, MODEL, steps=60_000, **settings)
    times = np.array([crossings(free.select(seed), middles(task)) for seed in free.seeds])
    wrong = np.zeros(times.shape, dtype=bool)
    for gamma in np.geomspace(0.6 / np.max(times), 1.6 / np.min(times), 5 if sabotage else 30):
        steps = int(3.2 / gamma / (RATE * settings["lr"]))
        runs = icl.train(task, MODEL, steps=steps, weight_decay=RATE * float(gamma), **settings)
        share = decayed_strength(directions(task), float(gamma)) / directions(task).strength
        for number, (seed, own) in enumerate(zip(runs.seeds, times, strict=True)):
            held = np.sort(gains(MODEL, runs.select(seed).final_weights, task, "label") / np.maximum(share, 1e-3))[::-1]
            product = gamma * own * (2 if sabotage else 1)
            wrong[number] |= (np.abs(product - 1) > 0.05) & ((held > 0.5) != (product < 1))
    return float(wrong.sum())


@claim(
    "decay-times",
    "Drop times with weight decay follow from the initial weights: -ln(1 - gamma T)/gamma, T predicted without decay.",
    source="beyond the paper",
    quantity="median relative error of drop times over five seeds and two rates, init 1e-3",
    bound=0.0025,
    seeds="0 to 4",
)
def times_with_decay(sabotage: bool = False, offset: int = 0) -> float:
    errors, task = [], shifted(SMALL, offset)
    for seed in range(offset, offset + (1 if sabotage else 5)):
        free = icl.predict(task, MODEL, init=1e-3, seed=seed)
        for share in (0.5, 0.9):
            decay = RATE * share / float(free.drop_times[1])
            predicted = icl.predict(task, MODEL, init=1e-3, seed=seed, weight_decay=decay).drop_times[:2]
            if sabotage:
                predicted = free.drop_times[:2]
            time = 1.3 * float(predicted[-1]) if not sabotage else 4 * float(predicted[-1])
            run = icl.train(task, MODEL, init=1e-3, seed=seed, weight_decay=decay, time=time, records=2)
            errors += list(np.abs(predicted / crossings(run, middles(task)[:2]) - 1))
    return float(np.median(errors))


@claim(
    "decay-fold",
    "A learned direction is held up to gamma = 0.4725 g c and lost beyond; merged attention learns if gamma < |C_1|.",
    source="beyond the paper",
    quantity="wrong outcomes of 8, 3 % below and above the thresholds of three directions and of merged attention",
    bound=0,
    seeds="0",
)
def fold_and_threshold(sabotage: bool = False, offset: int = 0) -> float:
    task = shifted(SMALL, offset)
    d, wrong, fold = directions(task), 0, 2 * FOLD if sabotage else FOLD
    whole = MODEL.balanced(d.matrix(d.strength), task)
    for i in range(task.dim):
        for factor in (0.97, 1.03):
            gamma = fold * factor * float(d.drive[i] * np.cbrt(d.strength[i]))
            run = icl.train(
                task, MODEL, weights=whole, weight_decay=RATE * gamma, time=300 / gamma, records=2, seed=offset
            )
            held = gains(MODEL, run.final_weights, task, "label")[i] > 0.1
            wrong += held != (factor < 1)
    model, size = icl.Merged(heads=4), float(np.linalg.norm(landscape(task).cross))
    for factor in (0.97, 1.03):
        gamma = factor * size * (2 if sabotage else 1)
        run = icl.train(task, model, init=1e-2, weight_decay=RATE * gamma, time=600 / size, records=2, seed=offset)
        norms = [np.linalg.norm(weights["value"]) for weights in (run.initial_weights, run.final_weights)]
        wrong += (norms[1] > norms[0]) != (factor < 1)
    return float(wrong)


# --- momentum, Adam, Muon ---------------------------------------------------------------------------------------------


@claim(
    "momentum-lag",
    "Momentum runs on the clock 2 lr step/(1 - beta) of the flow, behind it by the lag of a single mode.",
    source="beyond the paper",
    quantity="runs, of 16, whose first drop is more than .5 % off; beta .5, .9, .95, lr .01 to .05, and merged",
    bound=1,
    seeds="0 to 3",
)
def momentum_with_lag(sabotage: bool = False, offset: int = 0) -> float:
    errors, task = [], shifted(TASK, offset)
    for model, beta, lr, init, steps in (
        (MODEL, 0.5, 0.05, 1e-2, 9000), (MODEL, 0.9, 0.02, 1e-2, 5000), (MODEL, 0.95, 0.01, 1e-2, 5000),
        (icl.Merged(heads=8), 0.9, 0.02, 1e-3, 400),
    ):  # fmt: skip
        settings: dict[str, Any] = {"optimizer": "momentum", "beta": beta, "lr": lr}
        many = {"seed": offset, "seeds": 1 if sabotage else 4}
        runs = icl.train(task, model, init=init, steps=steps, records=2, **many, **settings)
        for one in map(runs.select, runs.seeds):
            known = {**settings, "lr": None} if sabotage else settings
            predicted = icl.predict(task, model, weights=one.initial_weights, **known)
            middle = (predicted.levels[:1] + predicted.levels[1:2]) / 2
            errors.append(abs(predicted.drop_times[0] / crossings(one, middle)[0] - 1))
    return float(np.sum(~(np.array(errors) <= 0.005)))


@cache
def adam_first_drops(init: float, lr: float, steps: int, offset: int, seeds: int = 5) -> Float[np.ndarray, " seeds"]:
    """The steps at which half of the first drop is done, of some seeds."""
    task = shifted(TASK, offset)
    runs = icl.train(task, MODEL, init=init, optimizer="adam", lr=lr, steps=steps, seed=offset, seeds=seeds, records=2)
    found = [crossings(runs.select(seed), middles(task)[:1])[0] / lr for seed in runs.seeds]
    return np.array(found)


@claim(
    "adam-ignores-init",
    "Where gradients are above eps, Adam's first drop comes at the same step for initial weights over five decades.",
    source="beyond the paper",
    quantity="largest distance from their mean of the median steps of five seeds for init 1e-1 to 1e-6, relative",
    bound=0.2,
    seeds="0 to 4",
)
def adam_entries(sabotage: bool = False, offset: int = 0) -> float:
    scales, seeds = (1e-1, 1e-2, 1e-4, 1e-9 if sabotage else 1e-6), 1 if sabotage else 5
    found = [adam_first_drops(scale, 1e-3, 60_000 if scale < 1e-8 else 600, offset, seeds) for scale in scales]
    steps = np.median(found, axis=1)
    return float(np.abs(steps / steps.mean() - 1).max())


@claim(
    "adam-below-eps",
    "Where eps is above the gradients, Adam is descent with lr/eps: its first drop comes at T eps/2, T as 1/init.",
    source="beyond the paper",
    quantity="largest relative error of the first drop of five seeds for init 1e-9 and 1e-10",
    bound=0.06,
    seeds="0 to 4",
)
def adam_epsilon(sabotage: bool = False, offset: int = 0) -> float:
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
    return icl.train(task, MODEL, init=init, seed=offset, seeds=9, **settings)


def muon_times(how: str, init: float, offset: int) -> Float[np.ndarray, "seeds m"]:
    """When the loss passes the middle between levels: of all drops, or of the first."""
    runs, task = muon_runs(how, init, offset), shifted(TASK, offset)
    wanted = middles(task) if how == "stacked" else middles(task)[:1]
    return np.array([crossings(runs.select(seed), wanted) for seed in runs.seeds])


@claim(
    "muon-times",
    "With Muon all directions grow together, at speeds that know neither the drive nor the initial weights.",
    source="beyond the paper",
    quantity="largest median error over nine seeds of times: heads stacked (init 1e-6, 1e-9), one by one (first drop)",
    bound=0.04,
    seeds="0 to 8",
)
def muon_in_closed_form(sabotage: bool = False, offset: int = 0) -> float:
    task, worst = shifted(TASK, offset), 0.0
    model = MODEL.replace(heads=10) if sabotage else MODEL
    settings = (("heads", 1e-6), ("stacked", 1e-6), ("stacked", 1e-9))
    for how, init in settings[:1] if sabotage else settings:
        predicted = icl.predict(task, model, optimizer="muon", muon=how, seed=offset).drop_times
        errors = np.abs(predicted / muon_times(how, init, offset) - 1)
        worst = max(worst, float(np.median(errors, axis=0).max()))
    return worst


@claim(
    "optimisers-share-levels",
    "No optimiser changes a fixed point: descent, momentum and Adam below eps pause at the same losses L(M_m).",
    source="beyond the paper",
    quantity="long plateaus of three optimisers whose loss is more than a part in a thousand from every L(M_m)",
    bound=0,
    seeds="0-3",
)
def shared_levels(sabotage: bool = False, offset: int = 0) -> float:
    task, seen = shifted(SMALL, offset), []
    levels = plateau_losses(task.replace(context=20) if sabotage else task)
    for settings in (
        {"init": 3e-3, "lr": 0.4, "steps": 20_000},
        {"init": 3e-3, "lr": 0.04, "steps": 20_000, "optimizer": "momentum"},
        {"init": 1e-9, "lr": 0.02, "steps": 10_000, "optimizer": "adam"},
    ):
        runs = icl.train(task, MODEL, seed=offset, seeds=4, records=2, **settings)
        for run in map(runs.select, runs.seeds):
            when = crossings(run, middles(task))
            pauses = [(a + b) / 2 for a, b in pairwise(when) if np.isfinite(b) and b > 1.3 * a]
            seen += list(np.interp(pauses, run.time.values, run.loss.values))
    return float(sum(np.abs(levels / loss - 1).min() > 1e-3 for loss in seen)) if seen else np.inf


# --- the edge ---------------------------------------------------------------------------------------------------------

EDGE_TASK = icl.Task(dim=3, context=2000, spectrum="1,.1,.005")


@claim(
    "edge-of-stability",
    "Descent stays on a plateau for steps up to 2/kappa, and leaves it for larger ones; a late drop lowers the edge.",
    source="beyond the paper",
    quantity="wrong outcomes of 6, 5 % below and above the edge of three plateaus",
    bound=0,
    seeds="basis 0",
)
def edge(sabotage: bool = False, offset: int = 0) -> float:
    task = shifted(EDGE_TASK, offset)
    d, model, wrong = directions(task), icl.Separate(heads=3), 0
    rates = stable_rates(task, model)
    assert rates is not None
    for m in range(1, task.dim + 1):
        held = np.isin(np.arange(task.dim), d.order[:m])
        start = model.balanced(d.matrix(d.strength * held * (1 + 1e-6)), task)
        dice = np.random.default_rng(0)
        start = {name: array * (1 + 1e-6 * dice.standard_normal(array.shape)) for name, array in start.items()}
        level = d.loss(held)
        for factor in (0.95, 1.05):
            lr = factor * float(rates[m]) * (1.2 if sabotage else 1)
            run = icl.train(task, model, weights=start, lr=lr, steps=2000, records=2)
            stays = abs(float(run.loss.values[-1]) - level) < 1e-7 * d.base
            wrong += stays != (factor < 1)
    return float(wrong)
