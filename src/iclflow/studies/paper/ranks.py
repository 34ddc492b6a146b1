"""Heads of rank R: the loss waits long for a new head to grow, but hardly for a further direction in a grown head."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.comparison.plateaus import find_drops
from iclflow.figures.style import BLACK, COLOURS, GREY, MODEL_COLOUR, THEORY, letters, log_time, theory_key
from iclflow.results.run import Run
from iclflow.studies.measures import (
    drop_errors,
    drop_times,
    each_seed,
    few,
    loss_table,
    panels,
    shifted,
    stacked,
    train,
)
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import directions, plateau_losses

TASK = icl.Task(dim=8)
HEADS = {2: 5, 4: 3, 8: 2}
SMALL = 1e-3
SEEDS = 6
FEW = 2  # runs that show what a wrong assumption breaks


def rank_run(rank: int, offset: int, sabotage: bool) -> Run:
    model = icl.Separate(heads=HEADS[rank], rank=rank)
    return train(shifted(TASK, offset), model, init=SMALL, seed=offset, seeds=FEW if sabotage else SEEDS)


def drop_time_error(run: Run, task: icl.Task) -> float:
    """Relative error of the predicted drop times, median over drops and seeds: near ties are rare, but far off."""
    errors = []
    for one in each_seed(run):
        predicted = icl.predict(task, run.model, weights=one.initial_weights)
        observed = drop_times(one, predicted.levels)
        if not np.isfinite(observed).all():
            return np.inf
        errors.append(np.abs(predicted.drop_times / observed - 1))
    return float(np.median(np.concatenate(errors)))


def wait_ratio(rank: int, sabotage: bool, offset: int) -> float:
    """Three divided by the median ratio of the wait before a head's first direction to that before its second."""
    levels = icl.theory.plateau_losses(TASK)
    run = rank_run(rank, offset, sabotage)
    waits = np.array([np.diff(drop_times(one, levels), prepend=0.0) for one in each_seed(run)])
    first = np.arange(0, TASK.dim - 1, rank) + sabotage  # sabotage: heads are assumed to start one drop later
    first = first[first < TASK.dim - 1]
    return float(3 / np.median(waits[:, first] / waits[:, first + 1]))


def rank_drop_times(rank: int, sabotage: bool, offset: int) -> float:
    """Error of the drop times; the sabotaged theory assumes twice the context."""
    run = rank_run(rank, offset, sabotage)
    task = run.task.replace(context=2 * TASK.context) if sabotage else run.task
    return drop_time_error(run, task)


@claim(bound=1, source="Fig. 3a", seeds="0-2", quick=True)
def rank_1_plateaus(sabotage: bool = False, offset: int = 0) -> float:
    """With rank one (5 heads, D = 4, 1e-3 an entry), each of the D directions has a plateau and a drop of its own.
    Measured: seeds, out of three, whose loss does not show D drops: two of them can fall together
    """
    task, model = shifted(icl.Task(dim=4), offset), icl.Separate(heads=3 if sabotage else 5)
    run = train(task, model, init=SMALL, seed=offset, seeds=3, engine="moments")
    counts = [len(find_drops(one.time.values, one.loss.values).times) for one in each_seed(run)]
    return float(sum(count != task.dim for count in counts))


@claim(bound=0.12, source="Fig. 4", seeds="0-5")
def rank_2_waits(sabotage: bool = False, offset: int = 0) -> float:
    """With rank two (5 heads, D = 8, 1e-3 an entry), the conspicuous plateaus come before every second drop, where a
    new head has to grow.
    Measured: 3 / median ratio of the wait before drop 2k+1 to that before drop 2k+2
    """
    return wait_ratio(2, sabotage, offset)


@claim(bound=0.045, source="Fig. 4", seeds="0-5")
def rank_4_waits(sabotage: bool = False, offset: int = 0) -> float:
    """With rank four (3 heads, D = 8, 1e-3 an entry), the conspicuous plateaus come before the first and the fifth
    drop.
    Measured: 3 / median ratio of the wait before drop 4k+1 to that before drop 4k+2
    """
    return wait_ratio(4, sabotage, offset)


@claim(bound=0.025, source="Fig. 4", seeds="0-5")
def rank_8_waits(sabotage: bool = False, offset: int = 0) -> float:
    """With full rank (2 heads, D = 8, 1e-3 an entry), one long plateau comes before the first drop, and none like it
    before the second.
    Measured: 3 / median ratio of the wait before drop 1 to that before drop 2
    """
    return wait_ratio(8, sabotage, offset)


@claim(bound=3e-5, seeds="0-5")
def rank_2_drop_times(sabotage: bool = False, offset: int = 0) -> float:
    """The times of all eight drops of rank-two heads (5 heads, D = 8) follow from initial weights of 1e-3 an entry.
    Measured: relative error of the time of a drop, median over drops and seeds
    """
    return rank_drop_times(2, sabotage, offset)


@claim(bound=3.5e-5, seeds="0-5")
def rank_4_drop_times(sabotage: bool = False, offset: int = 0) -> float:
    """The times of all eight drops of rank-four heads (3 heads, D = 8) follow from initial weights of 1e-3 an entry.
    Measured: relative error of the time of a drop, median over drops and seeds
    """
    return rank_drop_times(4, sabotage, offset)


@claim(bound=4e-5, seeds="0-5")
def rank_2_values(sabotage: bool = False, offset: int = 0) -> float:
    """The cube of a trained head's value weight is the sum of the strengths of the directions that it has learned (5
    heads of rank two, D = 8, 1e-3 an entry).
    Measured: relative error of v^3, median over heads and seeds
    """
    d = directions(shifted(TASK, offset))
    strength = 1 / d.query if sabotage else d.strength  # sabotage: as if the context were infinite
    weights = converged_weights(offset, sabotage)
    v, K, Q = (weights[name] for name in ("value", "key", "query"))
    v = v[:, :, TASK.dim, TASK.dim]
    along = np.einsum("sh,shrd,shrd->shd", v, K[..., : TASK.dim] @ d.left, Q[..., : TASK.dim] @ d.right)
    held = along > d.strength / 2
    if not (held.sum(axis=1) == 1).all():
        return np.inf
    grown = held.any(axis=2)
    return float(np.median(np.abs(np.abs(v[grown]) ** 3 / (held @ strength)[grown] - 1)))


def converged_weights(offset: int, sabotage: bool) -> dict[str, np.ndarray]:
    """Final weights of the rank-two run, continued until the last direction has reached its full strength."""
    return icl.resume(rank_run(2, offset, sabotage), time=5000.0).final_weights


PUBLISHED = icl.Task(dim=8, context=31, normalize="none")
SEED = 0
LONGER = {1: 6}  # times the published steps


@figure(source="Fig. 4, 12")
def ranks(fast: bool = False) -> Result:
    r"""Key and query of higher rank: plateaus at multiples of the rank.

    Eight token dimensions, nine heads, ranks $R$ from 1 to 8 (80000 sequences, 20001 steps at learning rate 0.02,
    initial weights with standard deviation 0.005 per entry, one sample for all ranks; rank one is trained six times as
    long, until its last drop has come). A head of rank $R$ learns $R$ eigenvectors in quick succession, so long
    plateaus occur only where a new head has to grow: at $L(M_m)$ with $m$ a multiple of $R$ (black dotted lines).
    Dashed: the curve predicted from the initial weights and the moments of the sample.
    """
    samples, steps, ranks = (5000, 5000, (2, 8)) if fast else (80_000, 20_000, range(1, 9))
    levels = plateau_losses(PUBLISHED)
    tables, experiments, firsts, means = {}, {}, [], []
    figure, grid = panels(4.1 if len(ranks) > 4 else 2.4, -(-len(ranks) // 4), min(len(ranks), 4), sharey=True)
    axes = grid.ravel()
    for ax, rank in zip(axes, ranks, strict=True):
        model, length = icl.Separate(heads=9, rank=rank), steps * LONGER.get(rank, 1)
        run = train(PUBLISHED, model, samples=samples, init=5e-3, lr=0.02, steps=length, seed=SEED)
        comparison = compare_one(run, None)
        theory = comparison.prediction.loss(run.time.values)
        kept = few(len(run.time))[1:]
        for m, level in enumerate(levels):
            main = m % rank == 0
            style = {"color": BLACK, "lw": 0.9} if main else {"color": GREY, "lw": 0.5}
            name = rf"$L(M_m)$, $m$ {'' if main else 'not '}a multiple of $R$"
            ax.axhline(level, label=None if m > 1 else name, ls=":", zorder=0, **style)
        ax.plot(run.time.values[kept], run.loss.values[kept], color=MODEL_COLOUR["separate"], label="simulation")
        ax.plot(run.time.values[kept], theory[kept], label="theory", **THEORY)
        ax.set(title=f"$R = {rank}$", ylim=(0, 1.05), xlabel=r"time $t/\tau$")
        log_time(ax, 250, run.time.values[-1])
        tables[f"rank {rank}"], experiments[f"rank {rank}"] = loss_table(run, theory), run.experiment
        firsts += drop_errors(comparison.drops[:1])
        means.append(comparison.mean_gap)
    for ax in axes[::4]:
        ax.set_ylabel("loss")
    letters(*axes)
    entries = {text: line for ax in axes for line, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    order = sorted(entries, key=lambda text: text.startswith("$"))
    figure.legend([entries[text] for text in order], order, loc="outside lower center", ncols=4)
    gaps = (
        Measured("median over ranks of the mean gap of the loss over time", float(np.median(means))),
        Measured("largest relative error of the first drop's time", float(max(firsts))),
    )
    return Result(figure, {"": stacked(tables)}, gaps, experiments)


FOUR = icl.Task(dim=4, context=31)
RANK_TWO = icl.Separate(heads=3, rank=2)


@figure(source="Fig. 11")
def rank_weights(fast: bool = False) -> Result:
    r"""Inside heads of rank two: the value grows once, keys and queries one eigenvector after the other.

    Four token dimensions and three heads of rank two (flow on the population); shown are the two heads that grow, each
    around its own drops. (a, b) The value weight. (c, d) The size of the head's key-query matrix along every
    eigenvector $e_d$, $|\sum_r k_{r,d}\, q_{r,d}|^{1/2}$. The first eigenvector of a head has to wait until the value
    weight grows; the second follows at once, because the value weight is large already. Dotted: the drop times
    predicted from the initial weights. Dashes at the right edge: the fixed point, where the cube of the value weight is
    the sum of the strengths of the eigenvectors that the head has learned, and every squared key is the strength of its
    eigenvector divided by the value weight.
    """
    init = 1e-2 if fast else 2e-3
    prediction = icl.predict(FOUR, RANK_TWO, init=init)
    run = train(FOUR, RANK_TWO, init=init, records=20_000, time=1.5 * prediction.end, tolerance=1e-13)
    d, D = directions(FOUR), FOUR.dim
    time = run.weights["time"].values
    values, (key, query) = run.reduced.value, run.reduced.keys_and_queries
    key, query = key @ d.left, query @ d.right
    parts = np.sqrt(np.abs(np.einsum("thrd,thrd->thd", key, query)))  # (T, H, D)
    held = values[-1, :, None] * np.einsum("hrd,hrd->hd", key[-1], query[-1]) > d.strength / 2
    grown = list(dict.fromkeys(prediction.heads.tolist()))
    errors, tables = [], {}
    figure, axes = panels(3.9, 2, len(grown), sharex="col", sharey="row")
    for (top, below), h in zip(axes.T, grown, strict=True):
        size = float(d.strength[held[h]].sum() ** (1 / 3))
        shares = np.sqrt(d.strength / size) * held[h]
        drops = prediction.drop_times[prediction.heads == h]
        dash(top, size)
        shown = slice(*(np.searchsorted(time, (drops[0] - 60, drops[-1] + 150)) + np.array([-1, 1])))
        top.set(title=f"head {h + 1}", xlim=(drops[0] - 60, drops[-1] + 150))
        for i in range(D):
            label = rf"$e_{i + 1}$, $\lambda = {d.query[i]:.1f}$"
            below.plot(time[shown], parts[shown, h, i], color=COLOURS[i], label=label)
            dash(below, float(shares[i]))
        for ax in (top, below):
            for number, drop in enumerate(drops):
                ax.axvline(drop, color=GREY, lw=0.9, ls=":", label=None if number else "predicted drop")
        top.plot(time[shown], np.abs(values[shown, h]), color=BLACK)
        theory_key(below)
        below.set_xlabel(r"time $t/\tau$")
        grown_parts = parts[-1, h, held[h]] / shares[held[h]]
        errors += [abs(abs(values[-1, h]) / size - 1), *np.abs(grown_parts - 1)]
        columns = {"time": time, "value": values[:, h], **{f"part{i + 1}": parts[:, h, i] for i in range(D)}}
        tables[f"head {h + 1}"] = pd.DataFrame(columns)[shown]
    axes[0, 0].set_ylabel("value weight $|v|$")
    axes[1, 0].set_ylabel("key-query size along $e_d$")
    letters(*axes.ravel())
    figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    gap = Measured(
        "largest relative distance of a grown value or key-query part from its fixed point", float(max(errors))
    )
    return Result(figure, {"": stacked(tables)}, (gap,), {"run": run.experiment})


def dash(ax: Axes, level: float) -> None:
    """Draw a short dashed mark at the right edge."""
    if level > 0:
        across = ax.get_yaxis_transform()
        ax.plot([0.9, 1.04], [level, level], transform=across, clip_on=False, zorder=3, **THEORY)
