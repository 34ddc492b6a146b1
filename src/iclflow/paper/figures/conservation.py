r"""What training conserves.

(a) Gradient flow conserves the differences of the squared norms of a head's value, key and query (separate, rank two),
the matrix $KK^\top - QQ^\top$, and the inner products $\langle U_i, U_j\rangle - v_i v_j$ (merged), up to the tolerance
of the solver (dotted). The curves are the largest change over all heads, relative to the largest squared value weight.
(b) Gradient descent conserves these quantities only in the limit of a small step; the change at the end of training is
proportional to the step.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import BLACK, COLOURS, MODEL_COLOUR, THEORY, WIDTH, few_ticks, letters, styled
from iclflow.paper.drawn import Drawn, Gap, stacked
from iclflow.results.run import Run
from iclflow.theory import merged as merged_theory
from iclflow.theory import separate as separate_theory

__all__ = ["draw"]

SOURCE = "Sec. 4"
TASK = icl.Task(dim=4, context=31)
MODELS = {"separate": icl.Separate(heads=3, rank=2), "merged": icl.Merged(heads=4)}
TOLERANCE = 1e-10
SHOWN = {
    "separate: norms": ("separate: squared norms", MODEL_COLOUR["separate"]),
    "separate: KK' - QQ'": ("separate: $KK' - QQ'$", COLOURS[2]),
    "merged: inner products": ("merged: inner products", MODEL_COLOUR["merged"]),
}


def draw(fast: bool = False) -> Drawn:
    steps = (0.2, 0.1) if fast else (0.4, 0.2, 0.1, 0.05, 0.025)
    flows = {name: icl.train(TASK, model, init=0.1, time=300.0, tolerance=TOLERANCE) for name, model in MODELS.items()}
    tables, ends = {}, {}
    with styled():
        figure = Figure(figsize=(WIDTH, 2.8))
        left, right = figure.subplots(1, 2)
        curves = {f"{name}: {what}": (run, change) for name, run in flows.items() for what, change in changes(run)}
        for name, (run, change) in curves.items():
            time, (label, colour) = run.weights["time"].values, SHOWN[name]
            left.plot(time[1:], np.maximum(change[1:], 1e-17), color=colour, label=label)
            tables[name] = pd.DataFrame({"time": time, "change": change})
        for name, model in MODELS.items():
            drifts = [final_change(model, lr) for lr in steps]
            right.plot(steps, drifts, "o-", color=MODEL_COLOUR[name], label=name)
            ends[name] = pd.DataFrame({"lr": steps, "change": drifts})
        first = ends["separate"]["change"].iloc[0]
        right.plot(steps, first * np.array(steps) / steps[0], label="theory: slope 1", **THEORY)
        left.set(xlabel=r"time $t/\tau$", ylabel="relative change", yscale="log", ylim=(1e-15, 1e-6), title="flow")
        left.axhline(TOLERANCE, color=BLACK, lw=1.1, ls=":", label="tolerance of the solver")
        right.set(xlabel="learning rate", ylabel="relative change", xscale="log", yscale="log", title="descent")
        few_ticks(right.xaxis, steps)
        right.set_ylim(0.7 * min(drifts), 1.4 * max(drifts))
        few_ticks(
            right.yaxis, tuple(x for x in (1e-3, 2e-3, 3e-3, 5e-3, 1e-2) if min(drifts) < 1.3 * x < 1.8 * max(drifts))
        )
        left.legend(loc="upper right")
        right.legend(loc="lower right")
        letters(left, right)
    slopes = [np.polyfit(np.log(t["lr"]), np.log(t["change"]), 1)[0] for t in ends.values()]
    gaps = (
        Gap("largest relative change of a conserved quantity along the flow", max(c.max() for _, c in curves.values())),
        Gap("largest distance from 1 of descent's order in its step", float(np.abs(np.array(slopes) - 1).max())),
    )
    numbers = {"flow": stacked(tables), "descent": stacked(ends)}
    return Drawn(figure, numbers, gaps, {name: run.experiment for name, run in flows.items()})


def changes(run: Run) -> list[tuple[str, Float[np.ndarray, " T"]]]:
    """The largest relative change of every conserved quantity since the start, at the recorded times."""
    v, U, K, Q = run.reduced[:4]
    if K is None or Q is None:
        return [("inner products", relative([merged_theory.conserved(*pair) for pair in zip(v, U, strict=True)], v))]
    norms, grams = zip(*(separate_theory.conserved(*parts) for parts in zip(v, K, Q, strict=True)), strict=True)
    return [("norms", relative(list(norms), v)), ("KK' - QQ'", relative(list(grams), v))]


def relative(quantities: list[np.ndarray], v: Float[np.ndarray, "T H"]) -> Float[np.ndarray, " T"]:
    """The largest change of any entry since the start, relative to the largest squared value weight."""
    moved = np.abs(np.array(quantities) - quantities[0])
    return moved.reshape(len(moved), -1).max(axis=1) / np.max(v**2)


def final_change(model: icl.Model, lr: float) -> float:
    """The largest change at the end of training by descent."""
    run = icl.train(TASK, model, init=0.1, lr=lr, steps=int(100 / lr), records=2)
    return float(max(change[-1] for _, change in changes(run)))
