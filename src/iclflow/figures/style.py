"""The style of all figures: column width, readable type, colours that colour-blind readers can distinguish."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib
from cycler import cycler
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy import ndarray

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

__all__ = ["BLACK", "COLOURS", "GREY", "THEORY", "WIDTH", "axes", "figure_of", "log_time", "plateau_lines", "styled"]

BLACK, GREY = "#222222", "#888888"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
WIDTH = 6.75  # inches: two columns of a paper; one panel is half of it
THEORY: dict[str, Any] = {"color": BLACK, "lw": 1.1, "ls": (0, (4, 3))}  # simulation is solid and coloured
SETTINGS: "dict[RcKeyType, Any]" = {
    "figure.figsize": (5.0, 3.1),
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style within a block; the user's own settings are restored afterwards."""
    with matplotlib.rc_context(SETTINGS):
        yield


def axes(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure."""
    return Figure().add_subplot() if ax is None else ax


def figure_of(ax: Axes) -> Figure:
    """The figure that the axes belong to."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def plateau_lines(ax: Axes, levels: Float[ndarray, " m"], names: list[str] | None = None) -> None:
    """Draw dotted lines at the levels, named in the right margin; names that would overlap are left out."""
    low, high = ax.get_ylim()
    last = None
    for m, level in enumerate(levels):
        ax.axhline(level, color=GREY, lw=0.8, ls=":", zorder=0)
        if last is None or abs(level - last) > 0.05 * (high - low):
            name = rf"$L(M_{m})$" if names is None else names[m]
            ax.annotate(name, (1.01, level), xycoords=("axes fraction", "data"), va="center", fontsize=8, color=GREY)
            last = level


def log_time(ax: Axes, first: int | float, last: int | float) -> None:
    """Make the time axis logarithmic, with numbers at powers of ten only."""
    ax.set_xscale("log")
    ax.set_xlim(first, last)
    ax.xaxis.set_minor_formatter(NullFormatter())
