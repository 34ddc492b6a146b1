"""Several loss curves in one figure, with the predictions of theory."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.figures.style import COLOURS, THEORY, axes, figure_of, log_time, plateau_lines, styled

if TYPE_CHECKING:
    import iclflow.comparison.overlay

__all__ = ["overlay"]


def overlay(found: "iclflow.comparison.overlay.Overlay", *, ax: Axes | None = None) -> Figure:
    """Draw every curve solid, predicted curves dashed and predicted levels dotted.

    Args:
        found: curves and predictions.
        ax: axes to draw on; by default those of a new figure.

    Returns:
        The figure.
    """
    with styled():
        ax = axes(ax)
        ends = []
        for number, curve in enumerate(found.curves):
            axis, width = curve.axis(found.clock), 2.2 if number == 0 else 1.4
            ax.plot(axis, curve.loss, label=curve.name, color=COLOURS[number % len(COLOURS)], lw=width)
            ends.append(axis[-1])
            if curve.name in found.predictions:
                label = "theory" if number == 0 else None
                ax.plot(axis, found.predictions[curve.name].loss(axis), label=label, **THEORY)
        drops = [t for times in found.drops.values() for t in times if t > 0]
        if drops and max(ends) > 30 * min(drops):
            log_time(ax, 0.3 * min(drops), max(ends))
        ax.set(xlabel=r"time $t/\tau$" if found.clock == "time" else "step", ylabel="loss", ylim=(0, None))
        if found.levels is not None:
            plateau_lines(ax, np.asarray(found.levels))
        ax.legend(loc="upper right", fontsize=8)
        return figure_of(ax)
