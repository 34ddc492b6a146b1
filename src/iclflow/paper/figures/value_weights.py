"""Value weights: every head grows alone, by one scalar equation.

Left: heads that start aligned, each with one eigenvector. Their value weights follow the scalar equation of their
eigenvalue exactly; the smaller the eigenvalue the longer the wait, as its inverse square. Right: heads that start at
random (flow on the population, standard deviation 0.001 an entry). The dashed curves, sizes and signs and times, are
predicted from the initial weights; one head more than there are eigenvectors stays silent.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import COLOURS, THEORY, WIDTH, log_time, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory import directions
from iclflow.theory.single_mode import value_at

__all__ = ["draw"]

SOURCE = "Fig. 3b, Eq. 21"
TASK = icl.Task(dim=4, context=31)
HEADS = icl.Separate(heads=5)


def draw(fast: bool = False) -> Drawn:
    records = 200 if fast else 800
    aligned = icl.train(TASK, icl.Separate(heads=4), init=0.05, init_law="aligned", records=records, tolerance=1e-11)
    end = 1.2 * icl.predict(TASK, HEADS, init=1e-3).end
    random = icl.train(TASK, HEADS, init=1e-3, records=records, time=end)
    d = directions(TASK)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, right = figure.subplots(1, 2)
        time, seen = values(aligned)
        expected = np.stack([value_at(time, seen[0, h], d.drive[h], d.curvature[h]) for h in range(4)], axis=1)
        first = draw_values(left, time, seen, expected, [rf"$\lambda = {x:.1f}$" for x in d.query])
        time, grown = values(random)
        prediction = compare_one(random, None).prediction
        guess = prediction.values(time)
        second = draw_values(right, time, grown, guess, [f"head {h}" for h in range(5)])
        left.set(xlabel=r"time $t/\tau$", ylabel=r"value weight $v_i$", xlim=(0, None), title="aligned start: Eq. 21")
        right.set(xlabel=r"time $t/\tau$", title="random start: predicted")
        log_time(right, 0.1 * prediction.drop_times[0], time[-1])
        left.legend(loc="center", bbox_to_anchor=(0.55, 0.42), fontsize=8)
        right.legend(loc="lower left", fontsize=8)
    gaps = (
        Gap("largest gap of an aligned value weight to Eq. 21", float(np.abs(seen - expected).max())),
        Gap("mean gap over ln t of a random one to the prediction", mean_over_log_time(time, grown - guess)),
    )
    experiments = {"aligned": aligned.experiment, "random": random.experiment}
    return Drawn(figure, {"aligned": first, "random": second}, gaps, experiments)


def values(run: icl.Run) -> tuple[np.ndarray, np.ndarray]:
    """Recorded times (T,) and the value weights (T, H)."""
    return run.weights["time"].values, run.reduced.value


def draw_values(ax, time: np.ndarray, seen: np.ndarray, expected: np.ndarray, names: list[str]) -> pd.DataFrame:
    columns = {"time": time}
    for h, name in enumerate(names):
        ax.plot(time, seen[:, h], color=COLOURS[h], lw=2.2, label=name)
        ax.plot(time, expected[:, h], label="theory" if h == len(names) - 1 else None, **THEORY)
        columns |= {f"v{h}": seen[:, h], f"v{h}_theory": expected[:, h]}
    return pd.DataFrame(columns)


def mean_over_log_time(time: np.ndarray, difference: np.ndarray) -> float:
    x = np.log(time[1:])
    return float(np.trapezoid(np.abs(difference[1:]).mean(axis=1), x) / (x[-1] - x[0]))
