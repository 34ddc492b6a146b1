"""The fixed points of separate attention, their instabilities, and what every flow conserves."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.data.population import population_moments
from iclflow.engines.moment_loss import MomentLoss
from iclflow.figures.style import BLACK, COLOURS, MODEL_COLOUR, THEORY, WIDTH, few_ticks, letters
from iclflow.models import Model, Weights
from iclflow.results.run import Run
from iclflow.studies.measures import compare_seeds, panels, shifted, stacked, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.system.compiled import compiled
from iclflow.theory import directions, merged, separate
from iclflow.theory import merged as merged_theory
from iclflow.theory import separate as separate_theory
from iclflow.theory.separate import escape_directions
from iclflow.theory.separate import fixed_points as all_fixed_points

TASK = icl.Task(dim=4, context=31)
OTHER = TASK.replace(context=30)  # the task that sabotaged theory assumes
MODEL = icl.Separate(heads=5)
LOSS = MomentLoss(population_moments(TASK, "context", "label"), (), None, MODEL)
TOLERANCE = 1e-10

Mask = Bool[np.ndarray, " D"]


def subsets() -> list[Mask]:
    """Every set of directions."""
    return [learned for learned, _ in separate.fixed_points(directions(TASK))]


def ansatz(task: icl.Task, learned: Mask) -> dict[str, np.ndarray]:
    """The label blocks at the fixed point of a set of directions, with one balanced head per direction."""
    v, key, query = separate.ansatz_weights(directions(task), learned, MODEL.heads)
    return {"value": v[:, None, None], "key": key, "query": query}


@claim(bound=1e-12, source="Eq. 16-18, 20", quick=True)
def fixed_points_stationary(sabotage: bool = False, offset: int = 0) -> float:
    """Each of the 2^D sets of eigenvectors gives a fixed point of separate attention.
    Measured: largest entry of the gradient over all 16 sets, D = 4
    """
    slopes = [LOSS.loss_and_gradient(ansatz(OTHER if sabotage else TASK, learned))[1] for learned in subsets()]
    return float(max(np.abs(array).max() for slope in slopes for array in slope.values()))


@claim(bound=1e-12, source="Eq. 19", quick=True)
def fixed_points_loss(sabotage: bool = False, offset: int = 0) -> float:
    """At the fixed point of a set of eigenvectors, each of them lowers the loss by its own share.
    Measured: largest gap of the loss over all 16 sets, D = 4
    """
    d = directions(OTHER if sabotage else TASK)
    gaps = [float(LOSS.loss(ansatz(TASK, learned))) - d.loss(learned) for learned in subsets()]
    return float(np.abs(gaps).max())


def growth_rates(learned: Mask) -> Float[np.ndarray, " n"]:
    """Eigenvalues of minus half the Hessian of the engine's loss at a fixed point."""
    hessian, flatten = compiled_hessian()
    return np.linalg.eigvalsh(-np.asarray(hessian(flatten(ansatz(TASK, learned)))) / 2)


@cache
def compiled_hessian() -> tuple[Callable[[Array], Array], Callable[[Weights], Array]]:
    """The Hessian in all label-block weights laid end to end, and the function that lays them so."""
    flatten = lambda part: ravel_pytree(jax.tree.map(jnp.asarray, part))[0]
    restore = ravel_pytree(jax.tree.map(jnp.asarray, ansatz(TASK, subsets()[0])))[1]
    return compiled(jax.hessian(lambda flat: LOSS.loss(restore(flat)))), flatten


@claim(bound=0, quick=True)
def fixed_points_index(sabotage: bool = False, offset: int = 0) -> float:
    """A fixed point has one unstable direction for every pair of a learned eigenvector and an unlearned one that would
    lower the loss more; the fixed points that training visits have none.
    Measured: sets, out of 16, with a different number of unstable directions, D = 4
    """
    rates = {tuple(learned): growth_rates(learned) for learned in subsets()}
    threshold = 1e-9 * max(np.abs(values).max() for values in rates.values())
    d = directions(TASK)
    index = lambda learned: separate.escape_directions(d, ~learned if sabotage else learned)
    return float(sum(np.sum(rates[tuple(learned)] > threshold) != index(learned) for learned in subsets()))


def long_run(model: Model, descent: bool, offset: int) -> Run:
    """A whole training run by the flow, or by steps of descent, which conserve nothing."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 3000} if descent else {"tolerance": TOLERANCE}
    return train(shifted(TASK, offset), model, init=0.1, seed=offset, **settings)


def merged_quantities(run: Run) -> list[np.ndarray]:
    """What merged attention conserves, at every recorded time: one entry per pair of heads."""
    return [merged.conserved(v, U) for v, U in zip(run.reduced.value, run.reduced.key_query, strict=True)]


def separate_quantities(run: Run) -> list[tuple[np.ndarray, np.ndarray]]:
    """What separate attention conserves: one number per head, and one matrix over its ranks."""
    layers = zip(run.reduced.value, *run.reduced.keys_and_queries, strict=True)
    return [separate.conserved(v, K, Q) for v, K, Q in layers]


def rank_two_quantities(descent: bool, offset: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return separate_quantities(long_run(icl.Separate(heads=3, rank=2), descent, offset))


def drift(series: list[np.ndarray]) -> float:
    """Largest change of any entry since the start."""
    return float(np.abs(np.array(series) - series[0]).max())


@claim(bound=20 * TOLERANCE, seeds="0", quick=True)
def conserved_merged(sabotage: bool = False, offset: int = 0) -> float:
    """The flow of merged attention (8 heads, 0.1 an entry) conserves <U_i, U_j> - v_i v_j for every pair of heads.
    Measured: largest drift over a whole training run at tolerance 1e-10
    """
    return drift(merged_quantities(long_run(icl.Merged(heads=8), sabotage, offset)))


@claim(bound=20 * TOLERANCE, source="Sec. 4", seeds="0")
def conserved_separate_norms(sabotage: bool = False, offset: int = 0) -> float:
    """The flow of separate attention (3 heads of rank two, 0.1 an entry) conserves the difference of the squared norms
    of a head's value and key.
    Measured: largest drift over a whole training run at tolerance 1e-10, rank 2
    """
    return drift([norms for norms, _ in rank_two_quantities(sabotage, offset)])


@claim(bound=20 * TOLERANCE, seeds="0")
def conserved_separate_matrix(sabotage: bool = False, offset: int = 0) -> float:
    """The flow of separate attention (3 heads of rank two, 0.1 an entry) conserves the whole matrix KK' - QQ' of every
    head, not only its trace.
    Measured: largest drift over a whole training run at tolerance 1e-10, rank 2
    """
    return drift([grams for _, grams in rank_two_quantities(sabotage, offset)])


@figure(source="Eq. 16-19")
def fixed_points(fast: bool = False) -> Result:
    r"""All fixed points of separate attention, and the few that training visits.

    Each dot is one of the $2^D$ sets of eigenvectors ($D = 4$, $N = 31$): its loss against the size of the set. The
    colour gives the number of unstable directions of the fixed point with one balanced head per eigenvector. Training
    from small weights (six seeds, flow on the population) visits the lowest ones, the sets of leading eigenvectors;
    rings are plateaus detected on the loss curves. These fixed points have no unstable direction, which is why plateaus
    last for a time of order $1/\mathrm{init}$.
    """
    runs = train(TASK, icl.Separate(heads=5), init=5e-3 if fast else 1e-3, seeds=2 if fast else 6)
    plateaus = [plateau for one in compare_seeds(runs) for plateau in one.plateaus]
    d = directions(TASK)
    points = pd.DataFrame(
        [
            {"set": " ".join(str(i + 1) for i in np.flatnonzero(s)), "size": int(s.sum()), "loss": loss,
             "index": escape_directions(d, s)}
            for s, loss in all_fixed_points(d)
        ]
    )  # fmt: skip
    leading = np.array([d.loss(np.arange(TASK.dim) < m) for m in range(TASK.dim + 1)])
    levels = np.array([p.observed_level for p in plateaus])
    visited = np.abs(levels[:, None] - leading).argmin(axis=1)
    figure = Figure(figsize=(0.75 * WIDTH, 3.5))
    ax = figure.add_subplot()
    marks = ax.scatter(
        points["size"], points["loss"], c=points["index"], cmap="viridis", s=42, zorder=3, label="fixed points"
    )
    ax.plot(range(TASK.dim + 1), leading, zorder=1, label="theory: path of training", **THEORY)
    ax.scatter(visited, levels, s=140, facecolors="none", edgecolors=BLACK, zorder=2, label="plateaus of runs")
    name_points(ax, points)
    ax.set(xlabel="eigenvectors learned", ylabel="loss", xticks=range(TASK.dim + 1), xlim=(-0.3, TASK.dim + 0.8))
    ax.legend(loc="upper right")
    figure.colorbar(marks, ax=ax, label="unstable directions", ticks=range(int(points["index"].max()) + 1))
    gap = Measured("largest relative distance of a plateau from its fixed point",
              float(np.abs(levels / leading[visited] - 1).max()))  # fmt: skip
    table = pd.DataFrame({"m": visited, "level": levels, "theory": leading[visited]})
    return Result(figure, {"": points, "visited": table}, (gap,), {"runs": runs.experiment})


def name_points(ax: Axes, points: pd.DataFrame) -> None:
    """Write each set beside its dot, on the left where a neighbour has nearly the same loss."""
    rows = list(points.sort_values(["size", "loss"]).itertuples())
    for row, before in zip(rows, [None, *rows], strict=False):
        close = before is not None and before.size == row.size and row.loss - before.loss < 0.02
        x, side = (-8, "right") if close else (8, "left")
        name = "{" + row.set.replace(" ", ",") + "}"
        ax.annotate(name, (row.size, row.loss), (x, 0), textcoords="offset points", va="center", ha=side, fontsize=7.5)


MODELS = {"separate": icl.Separate(heads=3, rank=2), "merged": icl.Merged(heads=4)}
SHOWN = {
    "separate: norms": ("separate: squared norms", MODEL_COLOUR["separate"]),
    "separate: KK' - QQ'": ("separate: $KK' - QQ'$", COLOURS[2]),
    "merged: inner products": ("merged: inner products", MODEL_COLOUR["merged"]),
}


@figure(source="Sec. 4")
def conservation(fast: bool = False) -> Result:
    r"""What training conserves.

    (a) Gradient flow conserves the differences of the squared norms of a head's value, key and query (separate, rank
    two), the matrix $KK^\top - QQ^\top$, and the inner products $\langle U_i, U_j\rangle - v_i v_j$ (merged), up to the
    tolerance of the solver (dotted). The curves are the largest change over all heads, relative to the largest squared
    value weight. (b) Gradient descent conserves these quantities only in the limit of a small step; the change at the
    end of training is proportional to the step.
    """
    steps = (0.2, 0.1) if fast else (0.4, 0.2, 0.1, 0.05, 0.025)
    flows = {name: train(TASK, model, init=0.1, time=300.0, tolerance=TOLERANCE) for name, model in MODELS.items()}
    tables, ends = {}, {}
    figure, (left, right) = panels(2.8, 1, 2)
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
        Measured(
            "largest relative change of a conserved quantity along the flow", max(c.max() for _, c in curves.values())
        ),
        Measured("largest distance from 1 of descent's order in its step", float(np.abs(np.array(slopes) - 1).max())),
    )
    numbers = {"flow": stacked(tables), "descent": stacked(ends)}
    return Result(figure, numbers, gaps, {name: run.experiment for name, run in flows.items()})


def changes(run: Run) -> list[tuple[str, Float[np.ndarray, " T"]]]:
    """The largest relative change of every conserved quantity since the start, at the recorded times."""
    v, U, K, Q = run.reduced[:4]
    if K is None or Q is None:
        return [
            ("inner products", relative_change([merged_theory.conserved(*pair) for pair in zip(v, U, strict=True)], v))
        ]
    norms, grams = zip(*(separate_theory.conserved(*parts) for parts in zip(v, K, Q, strict=True)), strict=True)
    return [("norms", relative_change(list(norms), v)), ("KK' - QQ'", relative_change(list(grams), v))]


def relative_change(quantities: list[np.ndarray], v: Float[np.ndarray, "T H"]) -> Float[np.ndarray, " T"]:
    """The largest change of any entry since the start, relative to the largest squared value weight."""
    moved = np.abs(np.array(quantities) - quantities[0])
    return moved.reshape(len(moved), -1).max(axis=1) / np.max(v**2)


def final_change(model: icl.Model, lr: float) -> float:
    """The largest change at the end of training by descent."""
    run = train(TASK, model, init=0.1, lr=lr, steps=int(100 / lr), records=2)
    return float(max(change[-1] for _, change in changes(run)))
