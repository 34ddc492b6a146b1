"""More than one layer in pictures: a second staircase, its contexts, and the layers' matrices."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import iclflow as icl
from iclflow.comparison.gains import head_shares
from iclflow.data.spectrum import covariances
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, WIDTH, few_ticks, letters, log_time, shades, theory_key
from iclflow.models.initial import initial_weights
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run
from iclflow.studies.beyond.depth import crossings, layer_matrices, small
from iclflow.studies.measures import loss_table, panels, stacked, train
from iclflow.studies.study import Measured, Result, figure
from iclflow.theory.depth import contexts, ladder, lowest_loss, white_drive
from iclflow.theory.landscape import directions

TASK, FAST_TASK = icl.Task(dim=2, context=20), icl.Task(dim=1, context=20)
LAYERS, HEADS, INIT, CONTEXTS, SEED = (1, 2, 3), 2, 1e-2, 512, 6
WIDTHS = (3.4, 1.8, 0.8)  # of the lines of the first, second and third layer
DROPS: dict[str, Any] = {"color": GREY, "lw": 0.8, "ls": ":"}


@figure()
def depth(fast: bool = False) -> Result:
    r"""With more layers there is a second staircase.

    Separate key and query of rank one in one, two and three layers, gradient flow on the population with the label
    blocks trained, from the first seed whose forecast intervals are narrower than a quarter at every depth. (a) The
    loss, with the forecast from the initial weights alone (dashed) and its plateaus (dotted). Every layer races for the
    same directions, so the first drops are those of one layer, scattered over all of them. Then, far below the lowest
    loss of one layer, come further drops, one for every direction and further layer: layers learn directions that
    others hold already, with drives that are smaller by about $(D + 1)/N$. The later a drop of the second staircase,
    the less certain is its forecast: of three layers, the last plateau but one is lower and the last drop comes two
    thirds later than forecast, outside its interval (no forecast for three layers calls itself reliable). (b, c) Which
    layer of the networks with two and three layers holds how much of which direction $e_d$, relative to the strength at
    which one layer would learn it (dotted: forecast times of the drops). The end is as many steps of preconditioned
    gradient descent in context as there are layers, shorter and longer than a single step would be.
    """
    task, heads, init = (FAST_TASK, 1, 5 * INIT) if fast else (TASK, HEADS, INIT)
    models = {layers: icl.Separate(heads=heads, layers=layers) for layers in LAYERS}
    forecasts = {layers: icl.predict(task, model, init=init, seed=SEED) for layers, model in models.items()}
    how = {"init": init, "seed": SEED, "freeze_vectors": True, "gram_samples": CONTEXTS * task.dim**2}
    runs = {layers: train(task, model, progress=False, **how) for layers, model in models.items()}
    held = {layers: shares(runs[layers]) for layers in LAYERS[1:]}
    first = 0.5 * min(f.drop_times[0] for f in forecasts.values())
    figure, (left, *others) = panels(3.1, 1, 3, width_ratios=(1.3, 1, 1))
    for colour, (layers, run) in zip(shades(len(runs)), runs.items(), strict=True):
        kept = run.time.values > 0
        left.plot(run.time.values[kept], run.loss.values[kept], color=colour, lw=2.2, label=str(layers))
        left.plot(run.time.values[kept], forecasts[layers].loss(run.time.values[kept]), **THEORY)
        for level in forecasts[layers].levels[1:]:
            left.axhline(level, color=GREY, lw=0.6, ls=":", zorder=0)
    log_time(left, first, max(run.time.values[-1] for run in runs.values()))
    left.set(xlabel=r"time $t/\tau$", ylabel="loss", yscale="log")
    theory_key(left)
    left.legend(title="layers", loc="lower left")
    for ax, (layers, own) in zip(others, held.items(), strict=True):
        show_shares(ax, own, forecasts[layers])
        log_time(ax, first, runs[layers].time.values[-1])
        ax.set(xlabel=r"time $t/\tau$", ylabel="share of the strength", title=f"{layers} layers")
    keys = [Line2D([], [], color=GREY, lw=lw, label=f"layer {n}") for n, lw in enumerate(WIDTHS, 1)]
    keys += [Line2D([], [], color=COLOURS[d], lw=1.9, label=f"$e_{d + 1}$") for d in range(task.dim)]
    keys += [Line2D([], [], label="theory: drops", **DROPS)]
    figure.legend(handles=keys, loc="outside lower right", ncols=len(keys), columnspacing=1.2)
    letters(left, *others)
    drops = pd.concat([drop_table(runs[n], forecasts[n], heads) for n in LAYERS], ignore_index=True)
    error = (drops.time / drops.theory - 1).abs().fillna(np.inf)  # a drop that has not come is infinitely late
    second = drops["drop"] > task.dim
    ends = [abs(runs[n].loss.values[-1] / forecasts[n].levels[-1] - 1) for n in LAYERS]
    gaps = (
        Measured("largest relative error of a drop time of the first staircase", float(error[~second].max())),
        Measured("median relative error of a drop time of the second staircase", float(error[second].median())),
        Measured("largest relative error of a drop time of the second staircase", float(error[second].max())),
        Measured("largest relative distance of the end from the forecast level", float(max(ends))),
    )
    tables = {f"{n} layers": loss_table(run, forecasts[n].loss(run.time.values)) for n, run in runs.items()}
    names = {f"{n} layers": run.experiment for n, run in runs.items()}
    shared = stacked({f"{n} layers": own for n, own in held.items()})
    return Result(figure, {"curves": stacked(tables), "drop times": drops, "shares": shared}, gaps, names)


def show_shares(ax: Axes, held: pd.DataFrame, forecast: Prediction) -> None:
    """What every layer holds: colour is direction, width is layer; with the forecast times of the drops."""
    for (layer, direction), own in held.groupby(["layer", "direction"]):
        ax.plot(own.time, own.share, color=COLOURS[int(direction) - 1], lw=WIDTHS[int(layer) - 1])
    for time in forecast.drop_times:
        ax.axvline(time, zorder=0, **DROPS)


def drop_table(run: Run, forecast: Prediction, heads: int) -> pd.DataFrame:
    """Who takes which direction when, by the forecast, and when the run does."""
    return pd.DataFrame(
        {
            "layers": run.model.model_dump()["layers"],
            "drop": np.arange(1, len(forecast.drop_times) + 1),
            "layer": forecast.heads // heads + 1,
            "direction": forecast.directions + 1,
            "time": crossings(run, forecast.levels),
            "theory": forecast.drop_times,
            "low": forecast.drop_intervals[:, 0],
            "high": forecast.drop_intervals[:, 1],
        }
    )


def shares(run: Run) -> pd.DataFrame:
    """What every layer holds of every direction along training, of the strength at which one layer learns it."""
    dim, layers = run.task.dim, run.weights.sizes["layer"]
    rows = []
    for time, weights in zip(run.weights["time"].values, run.snapshots(), strict=True):
        by_layer = head_shares(run.model, weights, run.task).reshape(layers, -1, dim).sum(axis=1)
        for layer, direction in np.ndindex(layers, dim):
            share = by_layer[layer, direction]
            rows.append({"time": time, "layer": layer + 1, "direction": direction + 1, "share": share})
    return pd.DataFrame(rows)


TWO_LAYERS, DRAWN = icl.Separate(heads=3, layers=2), 128
LENGTHS, FAST_LENGTHS = (8, 16, 31, 62), (8, 12, 16)
SINGLE, SINGLE_INIT, SEEDS = icl.Task(dim=1), 2e-3, 3  # one direction in the middle


@figure()
def depth_context(fast: bool = False) -> Result:
    r"""The second staircase belongs to finite contexts.

    Two layers of separate key and query, label blocks trained by descent on the population. (a) The loss at four
    lengths $N$ of the context from the same initial weights ($D = 2$), with the forecast from these weights alone
    (dashed). The first drop stays where it is: at zero every layer feels the same force whatever $N$. The second
    staircase comes from the fluctuations of the context's covariance: it ends lower the longer the context is, and
    where its drops come depends on which layer has taken which direction. (b) The wait between the drop in which a
    single direction is learned ($D = 1$) and the one in which the other layer learns it again, for three draws of
    initial weights (dashed: forecast). The grey dotted line, moved to the shortest context of the first draw, is
    proportional to the inverse of the relearning drive, $1/[M_3/(1+x)^2 - 1]$ with $x = (D+1)/N$, which is about
    $N/(D+1)$ for long contexts. (c) The last loss of the runs in (a) (circles) and the lowest losses that theory gives
    to one (dotted) and to two steps (dashed) of gradient descent in context.
    """
    dim, lengths = (1, FAST_LENGTHS) if fast else (2, LENGTHS)
    tasks = {n: icl.Task(dim=dim, context=n) for n in lengths}
    forecasts = {n: icl.predict(task, TWO_LAYERS, init=INIT) for n, task in tasks.items()}
    runs = {n: trained(task, 1.3 * float(forecasts[n].drop_times[-1]), INIT) for n, task in tasks.items()}
    waits = second_waits(lengths, 1 if fast else SEEDS)
    seen = {n: crossings(run, forecasts[n].levels) for n, run in runs.items()}
    times = pd.DataFrame(
        {"context": n, "drop": m + 1, "direction": int(f.directions[m]) + 1, "time": seen[n][m], "theory": time}
        for n, f in forecasts.items()
        for m, time in enumerate(f.drop_times)
    )
    ends = pd.DataFrame(
        {
            "context": n, "final_loss": float(run.loss.values[-1]),
            "one_step": lowest_loss(tasks[n], 1), "two_steps": lowest_loss(tasks[n], 2),
        }
        for n, run in runs.items()
    )  # fmt: skip
    figure, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.3, 1, 1))
    for colour, (n, run) in zip(COLOURS, runs.items(), strict=False):
        kept = run.time.values > 0
        left.plot(run.time.values[kept], run.loss.values[kept], color=colour, label=str(n))
        left.plot(run.time.values[kept], forecasts[n].loss(run.time.values[kept]), **THEORY)
    log_time(
        left, 0.5 * min(f.drop_times[0] for f in forecasts.values()), max(r.time.values[-1] for r in runs.values())
    )
    left.set(xlabel=r"time $t/\tau$", ylabel="loss", yscale="log")
    theory_key(left)
    left.legend(title="context $N$", loc="lower left")
    for colour, (_, own) in zip(COLOURS, waits.groupby("seed"), strict=False):
        middle.plot(own.context, own.theory, **THEORY)
        middle.plot(own.context, own.wait, "o", ms=4, mfc="none", color=colour)
    drive = np.array([white_drive(1, n) for n in lengths])
    middle.plot(lengths, waits.theory.iloc[0] * drive[0] / drive, color=GREY, lw=0.9, ls=":")
    middle.set(xscale="log", yscale="log", xlabel="context $N$", ylabel=r"second wait $\Delta t/\tau$")
    right.plot(ends.context, ends.one_step, color=BLACK, lw=1.1, ls=":", label="theory, one step")
    right.plot(ends.context, ends.two_steps, label="theory, two steps", **THEORY)
    right.plot(ends.context, ends.final_loss, "o", ms=4, mfc="none", color=COLOURS[0], label="runs")
    right.set(xscale="log", yscale="log", xlabel="context $N$", ylabel="last loss")
    right.set_ylim(top=2.0)  # room for the legend
    for ax in (middle, right):
        few_ticks(ax.xaxis, lengths)
    right.legend(loc="upper right")
    letters(left, middle, right)
    error = (times.time / times.theory - 1).abs()
    gaps = (
        Measured(
            "largest relative error of a drop time of the first staircase", float(error[times["drop"] <= dim].max())
        ),
        Measured(
            "median relative error of a drop time of the second staircase", float(error[times["drop"] > dim].median())
        ),
        Measured(
            "largest relative error of the wait of a single direction",
            float((waits.wait / waits.theory - 1).abs().max()),
        ),
        Measured(
            "largest relative distance of the last loss from two steps",
            float((ends.final_loss / ends.two_steps - 1).abs().max()),
        ),
    )
    curves = {f"N = {n}": loss_table(run, forecasts[n].loss(run.time.values)) for n, run in runs.items()}
    names = {f"N = {n}": run.experiment for n, run in runs.items()}
    return Result(figure, {"curves": stacked(curves), "drop times": times, "waits": waits, "ends": ends}, gaps, names)


def trained(task: icl.Task, end: float, init: float, seed: int = 0) -> Run:
    """Descent on the label blocks until some time t/tau."""
    settings = {"freeze_vectors": True, "gram_samples": DRAWN * task.dim**2, "records": 2, "progress": False}
    return train(
        task,
        TWO_LAYERS,
        init=init,
        seed=seed,
        data_seed=0,
        lr=rate(task),
        steps=int(end / (2 * rate(task))),
        **settings,
    )


def rate(task: icl.Task) -> float:
    """A learning rate below the edge of stability, which a single direction of variance one has at a third."""
    return 0.2 if task.dim == 1 else 0.4


def second_waits(lengths: tuple[int, ...], seeds: int) -> pd.DataFrame:
    """The time between the two drops of a single direction, seen and forecast."""
    rows = []
    for seed, n in product(range(seeds), lengths):
        task = SINGLE.replace(context=n)
        forecast = icl.predict(task, TWO_LAYERS, init=SINGLE_INIT, seed=seed)
        first, second, *_ = forecast.drop_times
        seen = crossings(trained(task, 1.3 * float(second), SINGLE_INIT, seed), forecast.levels)
        rows.append({"seed": seed, "context": n, "wait": seen[1] - seen[0], "theory": float(second - first)})
    return pd.DataFrame(rows)


MAPPED = icl.Task(dim=3, context=31)
FEW_CONTEXTS, RECORDS, LATE = 48, 2000, 0.9


@figure()
def depth_weights(fast: bool = False) -> Result:
    """Which layer learns which direction, and learns it again.

    Two layers of separate key and query of rank one, label blocks trained by descent on the population. Each small map
    is the matrix of one layer, the sum of its heads, in the principal axes of the tokens and relative to the strength
    at which a single layer would learn an axis; a column is one plateau, shortly before its end. Below each map of the
    run stands that of the forecast, made from the initial weights alone. Every layer races for every direction on the
    first staircase, so a direction first appears in one layer only. While the network waits, layers may exchange what
    they hold: states that do so have nearly the same loss, and the learned heads drift through them. On the second
    staircase every direction is learned by the other layer as well. In the end both layers hold all directions, one
    with shorter and one with longer steps: two steps of preconditioned gradient descent.
    """
    task, model = FAST_TASK if fast else MAPPED, icl.Separate(heads=2 if fast else 4, layers=2)
    weights = initial_weights(model, task, "entry", INIT, 0, covariances(task))
    forecast = ladder(contexts(task, layers=2), *small(weights, task))
    run = train(
        task, model, weights=weights, freeze_vectors=True, gram_samples=FEW_CONTEXTS * task.dim**2, lr=rate(task),
        steps=int(1.3 * forecast.drop_times[-1] / (2 * rate(task))), records=RECORDS, progress=False,
    )  # fmt: skip
    seen = np.array([*crossings(run, forecast.levels), run.time.values[-1]])
    late = seen[:-1] + LATE * np.diff(seen)
    kept, snapshots = run.weights["time"].values, list(run.snapshots())
    found = [relative(layer_matrices(snapshots[int(np.argmin(np.abs(kept - t)))], task), task) for t in late]
    expected = [relative(matrices, task) for matrices in forecast.matrices]
    columns = list(zip(late, forecast.levels[1:], found, expected, strict=True))
    figure, grid = panels(0.7 + 0.62 * WIDTH, 4, len(columns), squeeze=False)
    for column, (_, level, measured, theory) in enumerate(columns):
        for layer in range(2):
            for row, A in ((2 * layer, measured[layer]), (2 * layer + 1, theory[layer])):
                shown = grid[row, column].imshow(A, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
                grid[row, column].set(xticks=[], yticks=[])
                grid[row, column].spines[:].set_visible(True)
        grid[0, column].set_title(f"{level:.2g}", fontsize=10)
    for row, name in enumerate(("layer 1", "forecast", "layer 2", "forecast")):
        grid[row, 0].set_ylabel(name, fontsize=10)
    letters(*grid[0])
    figure.suptitle("level of the plateau", fontsize=10)
    figure.colorbar(shown, ax=grid.ravel().tolist(), shrink=0.7, label="share of one layer's strength")
    rows = [
        {
            "plateau": number, "time": time, "level": level, "layer": layer + 1, "row": a + 1, "column": b + 1,
            "share": measured[layer, a, b], "theory": theory[layer, a, b],
        }
        for number, (time, level, measured, theory) in enumerate(columns, 1)
        for layer, a, b in np.ndindex(measured.shape)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    apart = (table.share - table.theory).abs()
    gaps = (
        Measured("mean distance of a layer's share from the forecast's, over all maps", float(apart.mean())),
        Measured("largest distance of a layer's share from the forecast's, over all maps", float(apart.max())),
    )
    return Result(figure, {"shares": table}, gaps, {"two layers": run.experiment})


def relative(matrices: Float[np.ndarray, "L D D"], task: icl.Task) -> Float[np.ndarray, "L D D"]:
    """Matrices relative to the strength at which one layer alone would learn each axis."""
    strength = directions(task).strength
    return matrices / np.sqrt(np.outer(strength, strength))
