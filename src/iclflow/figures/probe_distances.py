"""Distances to the candidate algorithms and the number of learned components along training."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from iclflow.figures.style import BLACK, COLOURS, GREY, Figure, styled

if TYPE_CHECKING:
    import iclflow.probing.result

__all__ = ["probe_distances", "time_axis"]

LOWEST = 1e-5  # smaller relative distances are drawn at this height
OTHERS = {
    "gd 1 step": "one step of descent",
    "ridge": "ridge, best penalty",
    "least squares in context": "least squares in context",
}


def probe_distances(probe: "iclflow.probing.result.Probe") -> Figure:
    """Draw distances in the upper panel and m(t) in the lower one; a single snapshot is drawn as points.

    Args:
        probe: the probe.

    Returns:
        The figure.
    """
    with styled():
        figure = Figure(figsize=(5.6, 4.4))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        time = probe.clock
        marker = "o" if len(time) == 1 else ""
        draw_distances(above, probe, time, marker)
        below.step(time, probe.gains.learned, where="mid", color=BLACK, lw=1.6, marker=marker, label="learned $m$")
        below.plot(
            time, probe.gains.effective_rank, color=COLOURS[4], lw=1.1, marker=marker, ls=":", label="effective rank"
        )
        below.set(ylabel="components", ylim=(-0.3, probe.gains.sets.size + 0.4))
        below.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        time_axis(below, probe)
        return figure


def draw_distances(ax: Axes, probe: "iclflow.probing.result.Probe", time: Float[np.ndarray, " T"], marker: str) -> None:
    """Draw the distance to every fixed point and to a few other algorithms."""
    from iclflow.probing.naming import THRESHOLD

    size = probe.gains.sets.size
    names = ["zero", *(f"pcr-{m} shrunk" for m in range(1, size)), "least squares shrunk"]
    for number, name in enumerate(names):
        distance = clipped(probe.entries[name].distance)
        colour = COLOURS[(number - 1) % len(COLOURS)] if number else BLACK  # that of the newest direction
        ax.plot(time, distance, color=colour, marker=marker, label=f"$M_{{{number}}}$" if number else "zero")
    for (name, label), dash in zip(OTHERS.items(), ("-", ":", "-."), strict=True):
        ax.plot(time, clipped(probe.entries[name].distance), color=GREY, lw=1.0, ls=dash, marker=marker, label=label)
    ax.axhline(THRESHOLD, color=BLACK, lw=0.7)
    ax.annotate(
        "named below this", (0.005, THRESHOLD * 1.1), xycoords=("axes fraction", "data"), fontsize=7, color=BLACK
    )
    ax.set(yscale="log", ylim=(LOWEST / 1.3, 2.0), ylabel="distance / loss of zero")
    ax.set_title(f"{probe.subject}: {probe.algorithm}")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def clipped(distance: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """Distances that fit on the logarithmic axis."""
    return np.maximum(distance, LOWEST)


def time_axis(ax: Axes, probe: "iclflow.probing.result.Probe") -> None:
    """Label the time axis, and make it logarithmic if the drops span more than a decade."""
    clock, learned = probe.clock, probe.gains.learned
    ax.set_xlabel(clock_name(probe))
    changes = clock[1:][np.diff(learned) != 0]
    if len(changes) > 1 and changes[-1] > 10 * changes[0] > 0:
        ax.set_xscale("log")
        ax.set_xlim(0.3 * changes[0], 1.1 * clock[-1])


def clock_name(probe: "iclflow.probing.result.Probe") -> str:
    """The label of the time axis."""
    return r"time $t/\tau$" if probe.time is not None else "step" if probe.steps is not None else "snapshot"
