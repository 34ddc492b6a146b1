"""The gain of every component along training, relative to its value at the fixed point."""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iclflow.figures.probe_distances import time_axis
from iclflow.figures.style import COLOURS, GREY, axes, figure_of, styled

if TYPE_CHECKING:
    import iclflow.probing.result

__all__ = ["probe_gains"]


def probe_gains(probe: "iclflow.probing.result.Probe", *, ax: Axes | None = None) -> Figure:
    """Draw the gains over time, or one bar per component for a single snapshot.

    Args:
        probe: the probe.
        ax: axes to draw on; by default those of a new figure.

    Returns:
        The figure.
    """
    with styled():
        ax = axes(ax)
        gain = probe.gains.gain
        numbers = range(1, gain.shape[1] + 1)
        if len(gain) == 1:
            ax.bar(list(numbers), gain[0], color=COLOURS[0], width=0.6)
            ax.set(xlabel="component", xticks=list(numbers))
        else:
            for d in numbers:
                ax.plot(probe.clock, gain[:, d - 1], color=COLOURS[(d - 1) % len(COLOURS)], label=f"component {d}")
            ax.plot(probe.clock, probe.gains.mixing, color=GREY, lw=1.0, ls=":", label="mixing")
            time_axis(ax, probe)
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        for level in (0.5, 1.0):
            ax.axhline(level, color=GREY, lw=0.7, ls=":")
        ax.set(ylabel=r"gain $e_d'Ae_d\,/\,\alpha_d$", title=f"{probe.subject}: {probe.algorithm}")
        return figure_of(ax)
