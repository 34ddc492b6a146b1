"""Loss over t/tau: the run, the curve that theory predicts from its initial weights, and the predicted plateaus."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.comparison.comparing import compare_one
from iclflow.errors import BadInput
from iclflow.figures.style import COLOURS, THEORY, axes, figure_of, log_time, plateau_lines, styled
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run

__all__ = ["loss_curve"]


def loss_curve(run: Run, *, ax: Axes | None = None, theory: bool | Prediction = True) -> Figure:
    """Draw the loss of every seed of a run with the predicted levels, and for a single seed the predicted curve.

    The time axis is logarithmic if the drops span more than a decade.

    Args:
        run: a run of one or several seeds.
        ax: axes to draw on; by default those of a new figure.
        theory: whether to draw the prediction, or a prediction that is known already.

    Returns:
        The figure.
    """
    with styled():
        ax = axes(ax)
        prediction = theory if isinstance(theory, Prediction) else expected(run) if theory else None
        for number, seed in enumerate(run.seeds):
            curves = run.select(seed).arrays("curves")
            label = "simulation" if number == 0 else None
            ax.plot(
                curves["time"], curves["loss"], color=COLOURS[0], lw=2.4 if len(run.seeds) == 1 else 1.0, label=label
            )
        if prediction is not None:
            draw_theory(ax, run, prediction)
        ax.set(xlabel=r"time $t/\tau$", ylabel="loss", title=title(run), ylim=(0, None))
        ax.legend(loc="upper right", fontsize=9, bbox_to_anchor=(1.0, 0.97))
        return figure_of(ax)


def expected(run: Run) -> Prediction | None:
    """The prediction for the first seed, if theory covers the run."""
    try:
        return compare_one(run.select(run.seeds[0]), None).prediction
    except BadInput:  # no theory for this run, such as softmax
        return None


def draw_theory(ax: Axes, run: Run, prediction: Prediction) -> None:
    """Draw predicted curve and levels, and choose the time axis."""
    end = 1.3 * float(np.nanmax(run.arrays("curves")["time"]))
    if len(run.seeds) == 1:
        time = np.unique(np.concatenate([np.linspace(0, end, 400), near(prediction.drop_times, end)]))
        ax.plot(time, prediction.loss(time), label="theory from initial weights", **THEORY)
        interval_bands(ax, prediction)
    drops = prediction.drop_times
    if len(drops) > 1 and drops[-1] > 10 * drops[0]:
        log_time(ax, 0.3 * drops[0], end)
    plateau_lines(ax, prediction.levels, None if len(prediction.levels) > 2 else ["zero", "minimum"])


def interval_bands(ax: Axes, prediction: Prediction) -> None:
    """Shade the 95 % interval of every predicted drop time, between the two levels of the drop."""
    label: str | None = "95 % interval of drop times"
    for (low, high), above, below in zip(
        prediction.drop_intervals, prediction.levels[:-1], prediction.levels[1:], strict=False
    ):
        if low <= high < np.inf:
            ax.fill_betweenx([below, above], low, high, color=THEORY["color"], alpha=0.15, lw=0, label=label)
            label = None


def near(drops: Float[np.ndarray, " m"], end: float) -> Float[np.ndarray, " T"]:
    """Times close to the drops, where the loss changes fast."""
    spread = np.concatenate([-np.geomspace(1e-4, 0.3, 60)[::-1], [0.0], np.geomspace(1e-4, 0.3, 60)])
    times = (drops[:, None] * (1 + spread)).ravel()
    return times[(times > 0) & (times < end)]


def title(run: Run) -> str:
    """Model, dimension and context length."""
    return f"{run.model.title()}, $D={run.task.dim}$, $N={run.task.context}$"
