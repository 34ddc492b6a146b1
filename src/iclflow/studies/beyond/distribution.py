"""Drop times as a distribution over initial weights."""

import numpy as np
import pandas as pd
from jaxtyping import Float

import iclflow as icl
from iclflow.experiment import Experiment
from iclflow.figures.style import COLOURS, THEORY, few_ticks, letters, shades, theory_key
from iclflow.studies.measures import drop_times, each_seed, panels, shifted, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import drop_time_distribution as predicted_times
from iclflow.theory import plateau_losses

TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
INIT, RUNS, DRAWS = 1e-2, 200, 2000
FAR = 100_000  # seeds of predicted draws: none of them is trained
FEW_RUNS, FEW_DRAWS = 40, 400  # enough to show that it breaks
SHOWN, FIRST = 1000, 10_000  # predicted draws in the figure, and the seed of the first
HEADS = (1, 2, 4, 8, 16, 32)


@claim(bound=1, seeds="0 to 199, 100000 to 101999")
def drop_distribution(sabotage: bool = False, offset: int = 0) -> float:
    """Over initial weights the first drop has the distribution that theory predicts for other draws.
    Measured: Kolmogorov-Smirnov distance of 200 runs and 2000 predictions over its .01 % critical value
    """
    task = shifted(icl.Task(dim=2), offset)
    model = icl.Separate(heads=9 if sabotage else 3)  # sabotage: three times as many heads take part in the race
    runs, draws = (FEW_RUNS, FEW_DRAWS) if sabotage else (RUNS, DRAWS)
    predicted = predicted_times(task, model, init=INIT, seeds=draws, seed=FAR + offset).sel(drop_number=1).values
    seen = observed(task, icl.Separate(heads=3), 1, offset, runs)[:, 0]
    critical = np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / runs + 1 / draws))  # Kolmogorov-Smirnov at .01 %
    return distance(seen, predicted) / critical


@figure()
def drop_time_distribution(fast: bool = False) -> Result:
    r"""When a run will drop, before it is run: the spread over initial weights.

    The same task, the same model, another seed: the loss drops at another time. Theory knows the distribution, because
    it predicts the drops from the initial weights alone, for a thousand draws in about a second. (a) Histograms of the
    first two drops predicted for 1000 draws (dashed), and of 200 trained runs with other seeds (filled); separate key
    and query, 5 heads, gradient flow on the population. (b) Every trained run against the prediction from its own
    initial weights. (c) Theory alone: median and range from 5 to 95 % of the first drop against the number of heads, in
    units of $1/\mathrm{init}$, for rank one and two: more heads bring the fastest of them forward.
    """
    count, draws, heads = (6, 200, HEADS[:3]) if fast else (RUNS, SHOWN, HEADS)
    predicted = predicted_times(TASK, MODEL, init=INIT, seeds=draws, seed=FIRST).values[:, :2]
    own = predicted_times(TASK, MODEL, init=INIT, seeds=count).values[:, :2]
    seen = observed(TASK, MODEL, 2, 0, count)
    sizes = pd.DataFrame([row for rank in (1, 2) for number in heads for row in spread(number, rank, fast)])
    figure, (left, middle, right) = panels(2.7, 1, 3, width_ratios=(1.4, 1, 1))
    edges = np.geomspace(0.9 * predicted.min(), 1.1 * max(predicted.max(), np.nanmax(seen)), 36)
    for m, colour in enumerate(COLOURS[:2]):
        for values, style in (
            (seen[:, m], {"histtype": "stepfilled", "alpha": 0.35, "label": f"drop {m + 1}"}),
            (predicted[:, m], {"histtype": "step", "lw": 1.2, "ls": THEORY["ls"]}),
        ):
            left.hist(values, edges, weights=np.full(len(values), 1 / len(values)), color=colour, **style)
        middle.plot(own[:, m], seen[:, m], ".", ms=3, color=colour, label=f"drop {m + 1}")
    middle.plot(edges[[0, -1]], edges[[0, -1]], label="theory", **THEORY)
    theory_key(left)
    left.set(xscale="log", xlabel=r"time $t/\tau$", ylabel="share of draws")
    left.legend(loc="upper right")
    middle.set(xscale="log", yscale="log", xlabel=r"predicted $t/\tau$", ylabel=r"trained $t/\tau$")
    middle.legend(loc="upper left")
    for axis in (left.xaxis, middle.xaxis, middle.yaxis):
        few_ticks(axis, (300.0, 1000.0, 3000.0))
    for (rank, group), colour in zip(sizes.groupby("rank"), shades(2), strict=True):
        line = {**THEORY, "color": colour, "lw": 1.6}
        right.plot(group.heads, group["median"], label=f"theory, rank {rank}", **line)
        right.fill_between(group.heads, group.low, group.high, color=colour, alpha=0.15, lw=0)
    right.set(xscale="log", yscale="log", xlabel="heads", ylabel=r"first drop $\times$ init")
    few_ticks(right.xaxis, heads)
    few_ticks(right.yaxis, (3.0, 5.0, 10.0, 20.0))
    right.legend(loc="upper right")
    letters(left, middle, right)
    errors = np.abs(own / seen - 1)
    gaps = (
        Measured(
            "largest Kolmogorov-Smirnov distance of the first two drops, trained and predicted",
            max(distance(seen[:, m], predicted[:, m]) for m in (0, 1)),
        ),
        Measured("median relative error of a prediction from a run's own initial weights", float(np.median(errors))),
    )
    columns = lambda name, values: {f"{name}_{m + 1}": values[:, m] for m in (0, 1)}
    numbers = {
        "runs": pd.DataFrame({"seed": np.arange(count), **columns("drop", seen), **columns("predicted", own)}),
        "predicted": pd.DataFrame({"seed": FIRST + np.arange(draws), **columns("drop", predicted)}),
        "heads": sizes,
    }
    experiment = Experiment(task=TASK, model=MODEL, training=icl.Training(init=INIT, seeds=count))
    return Result(figure, numbers, gaps, {"runs": experiment})


def observed(task: icl.Task, model: icl.Separate, drops: int, seed: int, seeds: int) -> Float[np.ndarray, "S m"]:
    """The first few drops of trained runs; not a number where one has not come."""
    end = 2 * float(predicted_times(task, model, init=INIT, seeds=seeds, seed=seed).values[:, drops - 1].max())
    run = train(task, model, init=INIT, seed=seed, seeds=seeds, time=end, records=2)
    found = np.array([drop_times(one, plateau_losses(task)[: drops + 1]) for one in each_seed(run)])
    return np.where(np.isinf(found), np.nan, found)


def spread(heads: int, rank: int, fast: bool) -> list[dict[str, int | float]]:
    """Median and range of the first drop in units of 1/init."""
    small, draws = 1e-4, (20 if fast else 100) if rank > 1 else (100 if fast else SHOWN)
    model = icl.Separate(heads=heads, rank=rank)
    times = predicted_times(TASK, model, init=small, seeds=draws, seed=FIRST).sel(drop_number=1) * small
    low, median, high = times.quantile([0.05, 0.5, 0.95], "seed").values
    return [{"heads": heads, "rank": rank, "low": low, "median": median, "high": high}]


def distance(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " k"]) -> float:
    """The Kolmogorov-Smirnov distance of two samples: the largest distance of their cumulative distributions."""
    both = np.concatenate([first, second])
    share = lambda sample: np.searchsorted(np.sort(sample), both, side="right") / len(sample)
    return float(np.abs(share(first) - share(second)).max())
