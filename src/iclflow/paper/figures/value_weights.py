r"""Value weights: every head grows alone, by one scalar equation.

(a) Heads that start aligned, each with one eigenvector. Their value weights follow the scalar equation of their
eigenvalue $\lambda$ exactly; the wait grows as $\lambda^{-2}$. (b) Heads that start at random (flow on the population,
standard deviation 0.001 per entry), in the colour of the eigenvector that they learn. The sizes, signs and times of the
dashed curves are predicted from the initial weights. There is one head more than there are eigenvectors, and it stays
silent (grey).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import compare_one
from iclflow.figures.style import COLOURS, GREY, THEORY, WIDTH, letters, log_time, styled, theory_key
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory import directions
from iclflow.theory.single_mode import value_at

__all__ = ["draw"]

SOURCE = "Fig. 3b, Eq. 21"
TASK = icl.Task(dim=4, context=31)
HEADS = icl.Separate(heads=5)

Times = Float[np.ndarray, " T"]
Values = Float[np.ndarray, "T H"]
Numbers = Int[np.ndarray, " m"]


def draw(fast: bool = False) -> Drawn:
    records = 200 if fast else 800
    aligned = icl.train(TASK, icl.Separate(heads=4), init=0.05, init_law="aligned", records=records, tolerance=1e-11)
    end = 1.2 * icl.predict(TASK, HEADS, init=1e-3).end
    random = icl.train(TASK, HEADS, init=1e-3, records=records, time=end)
    d = directions(TASK)
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, right = figure.subplots(1, 2)
        time, alone = values(aligned)
        theory = np.stack([value_at(time, alone[0, h], d.drive[h], d.curvature[h]) for h in range(4)], axis=1)
        first = draw_values(left, time, alone, theory, {h: (rf"$\lambda = {x:.1f}$", h) for h, x in enumerate(d.query)})
        time, grown = values(random)
        prediction = compare_one(random, None).prediction
        predicted = prediction.values(time)
        second = draw_values(right, time, grown, predicted, learned(prediction.heads, prediction.directions))
        left.set(xlabel=r"time $t/\tau$", ylabel=r"value weight $v_i$", xlim=(0, None), title="aligned start")
        right.set(xlabel=r"time $t/\tau$", ylabel=r"value weight $v_i$", title="random start")
        log_time(right, 0.1 * prediction.drop_times[0], time[-1])
        left.legend(loc="center", bbox_to_anchor=(0.55, 0.42))
        right.legend(loc="lower left")
        letters(left, right)
    gaps = (
        Gap("largest gap between an aligned value weight and Eq. 21", float(np.abs(alone - theory).max())),
        Gap("mean gap over ln t between a random one and its prediction", mean_over_log_time(time, grown - predicted)),
    )
    experiments = {"aligned": aligned.experiment, "random": random.experiment}
    return Drawn(figure, {"aligned": first, "random": second}, gaps, experiments)


def values(run: icl.Run) -> tuple[Times, Values]:
    """The recorded times and the value weights of all heads."""
    return run.weights["time"].values, run.reduced.value


def learned(heads: Numbers, directions: Numbers) -> dict[int, tuple[str, int | None]]:
    """The heads in the order in which they grow, with the directions that they learn, then those that stay silent."""
    grow = {int(h): (rf"head {h + 1}: $e_{d + 1}$", int(d)) for h, d in zip(heads, directions, strict=True)}
    silent = [h for h in range(HEADS.heads) if h not in grow]
    return {**grow, **{h: (f"head {h + 1}", None) for h in silent}}


def draw_values(
    ax: Axes, time: Times, observed: Values, theory: Values, heads: Mapping[int, tuple[str, int | None]]
) -> pd.DataFrame:
    """Draw the value weights of heads with these names and directions, and return them as a table."""
    for h, (name, direction) in heads.items():
        colour = GREY if direction is None else COLOURS[direction]
        ax.plot(time, observed[:, h], color=colour, lw=2.2, label=name)
        ax.plot(time, theory[:, h], **THEORY)
    theory_key(ax)
    columns = {"time": time}
    for h in sorted(heads):
        columns |= {f"v{h}": observed[:, h], f"v{h}_theory": theory[:, h]}
    return pd.DataFrame(columns)


def mean_over_log_time(time: Times, difference: Values) -> float:
    """The absolute difference, averaged over heads and over the logarithm of time."""
    x = np.log(time[1:])
    return float(np.trapezoid(np.abs(difference[1:]).mean(axis=1), x) / (x[-1] - x[0]))
