r"""White tokens: the whole time course in closed form.

Merged attention on tokens with identity covariance. (a) The gain $\sigma$ in front of $\beta^\top x_q$ for four sizes
$w$ of the initial weights. (b) The loss. Solid curves are gradient flow, dashed curves the paper's formula for balanced
and aligned layers. One more curve (vermillion) starts from unbalanced heads, some with the wrong sign; here the dashed
curve is the solution of the Riccati equation instead.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import MODEL_COLOUR, THEORY, WIDTH, letters, plateau_lines, shades, styled
from iclflow.models import equivalence
from iclflow.paper.drawn import Drawn, Gap, stacked
from iclflow.results.run import Run
from iclflow.theory import minimum
from iclflow.theory.laws import white

__all__ = ["draw"]

SOURCE = "Eq. 10"
TASK = icl.Task(context=31, spectrum=(1.0, 1.0, 1.0, 1.0))
SIZES = (0.3, 0.1, 0.01, 0.001)
UNBALANCED = ((0.03, -0.02, 0.04), (0.01, 0.05, -0.01))  # values, and traces of U over sqrt(D)

Numbers = tuple[float, ...]


def draw(fast: bool = False) -> Drawn:
    tables, experiments, weights, worst = {}, {}, {}, 0.0
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        left, right = figure.subplots(1, 2)
        colours = [*shades(len(sizes(fast))), MODEL_COLOUR["merged"]]
        for colour, (name, values, traces) in zip(colours, starts(fast), strict=True):
            run = flow_from(values, traces)
            time, a, y = run.weights["time"].values, np.array(values), np.array(traces)
            theory = white.gain(TASK, float(np.sum((a + y) ** 2) / 4), float(np.sum((a - y) ** 2) / 4), time)
            if values == traces:
                theory = white.paper_gain(TASK.dim, TASK.context, float(np.linalg.norm(a)), time)
            gain, loss = gains(run), np.interp(time, run.time.values, run.loss.values)
            theory_loss = white.loss(TASK, theory)
            worst = max(worst, float(np.abs(gain - theory).max()), float(np.abs(loss - theory_loss).max()))
            for ax, line, dashes in ((left, gain, theory), (right, loss, theory_loss)):
                ax.plot(time, line, color=colour, lw=2.2, label=name)
                ax.plot(time, dashes, label="theory" if name == "unbalanced" else None, **THEORY)
            columns = {"time": time, "gain": gain, "gain_theory": theory, "loss": loss, "loss_theory": theory_loss}
            tables[name], experiments[name] = pd.DataFrame(columns), run.experiment
            weights[name] = run.initial_weights
        left.set(xlabel=r"time $t/\tau$", ylabel=r"gain $\sigma$", xlim=(0, None))
        right.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, 4.3), xlim=(0, None))
        letters(left, right)
        left.legend(loc="center right", bbox_to_anchor=(1.02, 0.4))
        left.set_xlim(0, 1.45 * left.get_xlim()[1])
        plateau_lines(right, np.array([float(TASK.dim), minimum(TASK)]), ["zero", "min."])
    gap = Gap("largest gap between gain or loss and the closed form", worst)
    return Drawn(figure, {"": stacked(tables)}, (gap,), experiments, weights)


def sizes(fast: bool) -> Numbers:
    """The norms of the balanced initial weights."""
    return SIZES[:2] if fast else SIZES


def starts(fast: bool) -> Iterator[tuple[str, Numbers, Numbers]]:
    """The name, the value weights and the traces of every curve; they agree for balanced heads."""
    for size in sizes(fast):
        head = tuple(size * np.array([1.0, 2.0, 2.0]) / 3)
        yield rf"$w = {size:g}$", head, head
    yield "unbalanced", *UNBALANCED


def flow_from(values: Numbers, traces: Numbers) -> Run:
    """The flow from heads with the given v and U = y I / sqrt(D)."""
    first = np.outer(traces, np.eye(TASK.dim) / np.sqrt(TASK.dim))
    weights = equivalence.from_two_layer({"first": first, "second": np.array([values])})
    return icl.train(TASK, icl.Merged(heads=len(values)), weights=weights, tolerance=1e-12, records=300)


def gains(run: Run) -> Float[np.ndarray, " T"]:
    """The mean diagonal entry of the effective matrix at every recorded time."""
    return np.einsum("th,thdd->t", run.reduced.value, run.reduced.key_query) / TASK.dim
