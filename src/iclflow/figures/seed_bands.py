"""Loss curves of a sweep with bands over the seeds: median solid, the middle 80% shaded, theory dashed."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.errors import BadInput
from iclflow.figures.style import BLACK, COLOURS, GREY, axes, figure_of, styled
from iclflow.sweeps.forecast import expected_of
from iclflow.sweeps.select import RunFamily, families

if TYPE_CHECKING:
    import iclflow.sweeps.results

__all__ = ["seed_bands"]

GRID = 600  # times at which curves of different length are compared
THEORY_SEEDS = 9  # seeds whose predictions make the dashed line

Times = Float[np.ndarray, " T"]


def seed_bands(
    sweep: "iclflow.sweeps.results.Sweep",
    *,
    ax: Axes | None = None,
    where: dict[str, Any] | None = None,
    theory: bool = True,
) -> Figure:
    """Draw one band over all seeds per value of the axis that `where` leaves open.

    Args:
        sweep: a sweep that kept its curves.
        ax: axes to draw on; by default those of a new figure.
        where: values at which the other axes are fixed.
        theory: also draw the prediction.

    Returns:
        The figure.

    Raises:
        BadInput: if the sweep kept no curves, if no run is done, or if too many axes are left open.
    """
    if sweep.grid.summary:
        raise BadInput("summary: this sweep kept no curves; draw a quantity along an axis instead")
    lines = families(sweep, where or {}, keep=())
    with styled():
        ax = axes(ax)
        ends = [float(np.nanmax(line.data["curve_time"])) for line in lines if line.any_done]
        if not ends:
            raise BadInput("dir: no run of this selection is done yet")
        drops = [float(t) for line in lines for t in line.data["drop_times"].values.ravel() if np.isfinite(t)]
        late = len(drops) > 0 and max(drops) > 10 * min(drops)
        start = 0.3 * min(drops) if late else 0.0
        times = np.geomspace(start, max(ends), GRID) if late else np.linspace(0.0, max(ends), GRID)
        for number, line in enumerate(lines):
            if line.any_done:
                draw_band(ax, times, line, COLOURS[number % len(COLOURS)], single=len(lines) == 1)
        if theory:
            draw_theory(ax, sweep, lines, times)
        ax.set(xlabel=r"time $t/\tau$", ylabel="loss", ylim=(0, None), xscale="log" if late else "linear")
        ax.set_xlim(times[0], times[-1])
        ax.legend(loc="upper right", fontsize=8)
        return figure_of(ax)


def draw_band(ax: Axes, times: Times, line: RunFamily, colour: str, single: bool) -> None:
    """Draw median and band of one line."""
    curves = on_grid(times, line)
    low, middle, high = np.quantile(curves, [0.1, 0.5, 0.9], axis=0, method="inverted_cdf")
    seeds = f"{len(curves)} seeds" if single else line.label
    ax.plot(times, middle, color=colour, label=f"simulation, {seeds}" if single else seeds)
    if len(curves) > 1:
        ax.fill_between(times, low, high, color=colour, alpha=0.22, lw=0)


def on_grid(times: Times, line: RunFamily) -> Float[np.ndarray, "seeds T"]:
    """The curve of every seed at the same times; a run that ended earlier keeps its last loss."""
    curves = []
    for time, loss in zip(line.rows("curve_time"), line.rows("loss"), strict=True):
        finite = np.isfinite(time) & np.isfinite(loss)
        if finite.any():
            curves.append(np.interp(times, time[finite], loss[finite]))
    return np.array(curves)


def draw_theory(ax: Axes, sweep: "iclflow.sweeps.results.Sweep", lines: list[RunFamily], times: Times) -> None:
    """Draw the median prediction of every line, and all predicted levels."""
    levels: list[float] = []
    for line in lines:
        predictions = [expected_of(sweep.grid.experiment(run)) for run in line.runs[:THEORY_SEEDS]]
        known = [prediction for prediction in predictions if prediction is not None]
        if known:
            curves = [prediction.loss(times) for prediction in known]
            middle = np.quantile(curves, 0.5, axis=0, method="inverted_cdf")  # one of the curves
            ax.plot(times, middle, color=BLACK, lw=1.0, ls=(0, (4, 3)))
            levels += [float(level) for level in known[0].levels]
    if levels:
        ax.plot([], [], color=BLACK, lw=1.0, ls=(0, (4, 3)), label="theory")
    for level in sorted({round(level, 9) for level in levels}):
        ax.axhline(level, color=GREY, lw=0.7, ls=":", zorder=0)
