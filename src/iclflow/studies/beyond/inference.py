"""From loss curves back to what made them."""

import numpy as np
import pandas as pd

import iclflow as icl
from iclflow.experiment import Experiment
from iclflow.figures.style import COLOURS, GREY, THEORY, few_ticks, letters, theory_key
from iclflow.studies.measures import panels, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import plateau_losses

CONFIGURATIONS, FIRST = 120, 500  # hidden ones in the figure, and the seed of the first
SPECTRUM, CONTEXT = (0.4, 0.3, 0.2, 0.1), 31


def hidden(seed: int) -> tuple[icl.Task, icl.Separate, float]:
    """A random task, model and initial scale; nothing of them is told but the loss curve."""
    rng = np.random.default_rng([61, seed])
    dim = int(rng.integers(2, 5))
    falling = np.concatenate([[1.0], 1 / np.cumprod(rng.uniform(1.15, 3, dim - 1))])
    spectrum = tuple((falling / falling.sum()).tolist())
    context, init = round(float(5 * 40 ** rng.uniform())), float(10 ** rng.uniform(-3.5, -2))
    task = icl.Task(spectrum=spectrum, context=context, basis="identity")
    return task, icl.Separate(heads=int(rng.integers(dim, 2 * dim + 1))), init


@claim(bound=1e-3, seeds="0 to 5")
def curve_to_spectrum(sabotage: bool = False, offset: int = 0) -> float:
    """The loss curve of separate key and query alone tells the spectrum and the context length.
    Measured: largest relative error of eigenvalues and context, median over 6 hidden configurations
    """
    worst = []
    for seed in range(offset, offset + 6):
        task, model, init = hidden(seed)
        run = train(task, model, init=init, seed=seed)
        clock = 1.2 if sabotage else 1.0  # sabotage: a learning rate that is a fifth off
        found = icl.infer(run.loss.values, time=clock * run.time.values)
        count = min(len(found.eigenvalues), task.dim)
        off = np.abs(found.eigenvalues[:count] / np.array(task.spectrum[:count], dtype=float) - 1).max()
        worst.append(max(float(off), abs(found.context / task.context - 1)))
    return float(np.median(worst))


@claim(bound=1e-8, quick=True)
def levels_to_spectrum(sabotage: bool = False, offset: int = 0) -> float:
    """The levels of a staircase alone tell the spectrum and the context length.
    Measured: largest error of the eigenvalues of the paper's ladder
    """
    ladder = plateau_losses(icl.Task(spectrum=SPECTRUM, context=CONTEXT))
    context = CONTEXT + 1 if sabotage else None  # sabotage: another context length
    found = icl.design(ladder, context=context).task
    return float(np.abs(np.array(found.spectrum, dtype=float) - SPECTRUM).max())


@figure()
def spectra_from_curves(fast: bool = False) -> Result:
    r"""Curves in, spectra out: what made a loss curve, from the curve alone.

    Random spectra, context lengths, heads and initial weights make loss curves (separate key and query, gradient flow
    on the population). Of each, only the curve is shown to the inference. (a) Three of the curves (solid) and the
    staircases of what was inferred (dashed). (b) Inferred against hidden eigenvalues, with 95 % intervals. (c) Inferred
    against hidden context lengths.
    """
    count = 4 if fast else CONFIGURATIONS
    pic, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.4, 1, 1))
    rows, contexts, drawn = [], [], 0
    for seed in range(FIRST, FIRST + count):
        task, model, init = hidden(seed)
        run = train(task, model, init=init, seed=seed)
        found = icl.infer(run.loss.values, time=run.time.values)
        spans, values = found.intervals["eigenvalues"], np.array(task.spectrum, dtype=float)
        for d in range(min(len(found.eigenvalues), task.dim)):
            row = (seed, values[d], found.eigenvalues[d], *spans[d])
            rows.append(dict(zip(("seed", "hidden", "inferred", "low", "high"), row, strict=True)))
        low, high = found.intervals["context"]
        contexts.append({"seed": seed, "hidden": task.context, "inferred": found.context, "low": low, "high": high})
        if drawn < 3 and task.dim > 2:
            time = run.time.values / found.drop_times[0]
            theory = icl.predict(found.task, found.model, weights=found.weights).loss(run.time.values)
            left.plot(time, run.loss.values, color=COLOURS[drawn])
            left.plot(time, theory, **THEORY)
            drawn += 1
    eigenvalues, lengths = pd.DataFrame(rows), pd.DataFrame(contexts)
    for axis, numbers, name in ((middle, eigenvalues, "eigenvalue"), (right, lengths, "context")):
        bars = np.abs(numbers[["low", "high"]].to_numpy().T - numbers["inferred"].to_numpy())
        axis.errorbar(numbers.hidden, numbers.inferred, bars, fmt="o", ms=2, lw=0.6, color=COLOURS[0])
        ends = np.array([0.8 * numbers.hidden.min(), 1.25 * numbers.hidden.max()])
        axis.plot(ends, ends, zorder=0, color=GREY, lw=0.8)
        axis.set(xscale="log", yscale="log", xlabel=f"hidden {name}", ylabel=f"inferred {name}")
    for axis in (middle.xaxis, middle.yaxis):
        few_ticks(axis, (0.03, 0.1, 0.3))
    for axis in (right.xaxis, right.yaxis):
        few_ticks(axis, (10.0, 30.0, 100.0))
    few_ticks(left.xaxis, (1.0, 10.0, 100.0))
    theory_key(left)
    left.legend(loc="upper right")
    left.set(xscale="log", xlabel="time / first drop", ylabel="loss", xlim=(0.3, None))
    letters(left, middle, right)
    apart = (lengths.inferred / lengths.hidden - 1).abs()
    off = np.abs(eigenvalues.inferred / eigenvalues.hidden - 1)
    gaps = (
        Measured("median relative error of an eigenvalue", float(off.median())),
        Measured("95 % quantile of the relative error of an eigenvalue", float(off.quantile(0.95))),
        Measured("median relative error of a context length", float(apart.median())),
    )
    task, model, init = hidden(FIRST)
    experiment = Experiment(task=task, model=model, training=icl.Training(init=init, seed=FIRST))
    return Result(pic, {"eigenvalues": eigenvalues, "contexts": lengths}, gaps, {"first": experiment})
