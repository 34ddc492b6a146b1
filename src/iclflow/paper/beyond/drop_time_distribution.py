r"""When a run will drop, before it is run: the spread over initial weights.

The same task, the same model, another seed: the loss drops at another time. Theory knows the distribution, because it
predicts the drops from the initial weights alone, for a thousand draws in about a second. (a) Histograms of the first
two drops predicted for 1000 draws (dashed), and of 200 trained runs with other seeds (filled); separate key and query,
5 heads, gradient flow on the population. (b) Every trained run against the prediction from its own initial weights. (c)
Theory alone: median and range from 5 to 95 % of the first drop against the number of heads, in units of
$1/\mathrm{init}$, for rank one and two: more heads bring the fastest of them forward.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.experiment import Experiment
from iclflow.figures.style import COLOURS, THEORY, WIDTH, few_ticks, letters, shades, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory import drop_time_distribution, plateau_losses

__all__ = ["distance", "draw", "observed"]

SOURCE = "beyond the paper"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
INIT, RUNS, DRAWS = 1e-2, 200, 1000
FIRST = 10_000  # seed of the first draw: none of them is trained
HEADS = (1, 2, 4, 8, 16, 32)


def draw(fast: bool = False) -> Drawn:
    count, draws, heads = (6, 200, HEADS[:3]) if fast else (RUNS, DRAWS, HEADS)
    predicted = drop_time_distribution(TASK, MODEL, init=INIT, seeds=draws, seed=FIRST).values[:, :2]
    own = drop_time_distribution(TASK, MODEL, init=INIT, seeds=count).values[:, :2]
    seen = observed(count)
    sizes = pd.DataFrame([row for rank in (1, 2) for number in heads for row in spread(number, rank, fast)])
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.4, 1, 1))
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
        Gap(
            "largest Kolmogorov-Smirnov distance of the first two drops, trained and predicted",
            max(distance(seen[:, m], predicted[:, m]) for m in (0, 1)),
        ),
        Gap("median relative error of a prediction from a run's own initial weights", float(np.median(errors))),
    )
    columns = lambda name, values: {f"{name}_{m + 1}": values[:, m] for m in (0, 1)}
    numbers = {
        "runs": pd.DataFrame({"seed": np.arange(count), **columns("drop", seen), **columns("predicted", own)}),
        "predicted": pd.DataFrame({"seed": FIRST + np.arange(draws), **columns("drop", predicted)}),
        "heads": sizes,
    }
    experiment = Experiment(task=TASK, model=MODEL, training=icl.Training(init=INIT, seeds=count))
    return Drawn(figure, numbers, gaps, {"runs": experiment})


def observed(count: int, first: int = 0) -> Float[np.ndarray, "S 2"]:
    """The first two drops of trained runs, with seeds `first`, `first` + 1, .."""
    levels = plateau_losses(TASK)
    end = 2 * float(drop_time_distribution(TASK, MODEL, init=INIT, seeds=count, seed=first).values[:, 1].max())
    run = icl.train(TASK, MODEL, init=INIT, seed=first, seeds=count, time=end, records=2)
    middles = (levels[:-1] + levels[1:])[:2] / 2
    curves = [run.select(seed) for seed in run.seeds] if count > 1 else [run]
    found = [[crossing(one.time.values, one.loss.values, float(middle)) for middle in middles] for one in curves]
    return np.array(found, dtype=float)


def spread(heads: int, rank: int, fast: bool) -> list[dict[str, int | float]]:
    """Median and range of the first drop in units of 1/init."""
    small, draws = 1e-4, (20 if fast else 100) if rank > 1 else (100 if fast else DRAWS)
    model = icl.Separate(heads=heads, rank=rank)
    times = drop_time_distribution(TASK, model, init=small, seeds=draws, seed=FIRST).sel(drop_number=1) * small
    low, median, high = times.quantile([0.05, 0.5, 0.95], "seed").values
    return [{"heads": heads, "rank": rank, "low": low, "median": median, "high": high}]


def distance(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " k"]) -> float:
    """The Kolmogorov-Smirnov distance of two samples: the largest distance of their cumulative distributions."""
    both = np.concatenate([first, second])
    share = lambda sample: np.searchsorted(np.sort(sample), both, side="right") / len(sample)
    return float(np.abs(share(first) - share(second)).max())
