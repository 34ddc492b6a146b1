"""The style of all figures: column width, readable type, colours that colour-blind readers can distinguish.

Simulation is solid and coloured, theory is dashed, levels and times that theory marks on an axis are dotted. One thing
has one colour in all figures: a direction (eigenvector) that of its rank among the eigenvalues, a model that of
`MODEL_COLOUR`, a loss that of `LOSS_COLOUR`; the values of a parameter are shades from dark to light.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from cycler import cycler
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as PlainFigure
from matplotlib.ticker import NullFormatter
from numpy import ndarray

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

__all__ = [
    "BLACK",
    "COLOURS",
    "GREY",
    "LOSS_COLOUR",
    "MODEL_COLOUR",
    "THEORY",
    "WIDTH",
    "Figure",
    "apart",
    "axes",
    "few_ticks",
    "figure_of",
    "letters",
    "log_time",
    "plateau_lines",
    "power_of_ten",
    "shades",
    "styled",
    "theory_key",
]

BLACK, GREY = "#222222", "#888888"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito; of directions
MODEL_COLOUR = {"separate": COLOURS[0], "merged": COLOURS[1], "network": COLOURS[5], "softmax": COLOURS[3]}
LOSS_COLOUR = {"training": COLOURS[0], "new tasks": COLOURS[1], "in-weight": COLOURS[2]}
WIDTH = 6.75  # inches: two columns of a paper; one panel is half of it
THEORY: dict[str, Any] = {"color": BLACK, "lw": 1.1, "ls": (0, (4, 3))}  # dashed means theory, and nothing else does
SETTINGS: "dict[RcKeyType, Any]" = {
    "figure.figsize": (5.0, 3.1),
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.edgecolor": "none",
    "legend.fancybox": False,
    "legend.framealpha": 0.85,
    "legend.borderpad": 0.2,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
}


class Figure(PlainFigure):
    """A figure that shows itself in a notebook, which otherwise shows only those of pyplot."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", bbox_inches="tight")
        return picture.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style within a block; the user's own settings are restored afterwards."""
    with matplotlib.rc_context(SETTINGS):
        yield


def axes(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure."""
    return Figure().add_subplot() if ax is None else ax


def figure_of(ax: Axes) -> PlainFigure:
    """The figure that the axes belong to."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def shades(count: int) -> list[str]:
    """Colours for the values of one parameter, from dark to light."""
    places = np.linspace(0.25, 0.87, count) if count > 1 else np.array([0.25])
    return [to_hex(colour) for colour in matplotlib.colormaps["viridis"](places)]


def letters(*panels: Axes) -> None:
    """Name panels a, b, c, .. above their left corners."""
    for number, panel in enumerate(panels):
        panel.set_title("abcdefghijklmnopqrstuvwxyz"[number], loc="left", fontweight="bold")


def theory_key(ax: Axes) -> None:
    """An entry for the legend that says what dashed lines are."""
    ax.plot([], [], label="theory", **THEORY)


def plateau_lines(
    ax: Axes, levels: Float[ndarray, " m"], names: list[str] | None = None, line: dict[str, Any] | None = None
) -> None:
    """Draw dotted lines at the levels, named in the right margin; names move apart where they would overlap."""
    to_page, fits = ax.transData.transform, 9.5 * figure_of(ax).dpi / 72  # pixels from name to name
    heights = np.array([to_page((ax.get_xlim()[0], float(level)))[1] for level in levels])
    for m, (level, moved) in enumerate(zip(levels, apart(heights, fits) - heights, strict=True)):
        ax.axhline(level, **{"color": GREY, "lw": 0.8, "ls": ":", "zorder": 0, **(line or {})})
        if fits * (len(levels) - 1) <= ax.bbox.height or m in (0, len(levels) - 1):
            name, points = rf"$L(M_{{{m}}})$" if names is None else names[m], 72 / figure_of(ax).dpi
            ax.annotate(
                name, (1.0, level), (3, moved * points), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", fontsize=8, color=GREY, annotation_clip=False,
            )  # fmt: skip


def apart(places: Float[ndarray, " m"], distance: float) -> Float[ndarray, " m"]:
    """The places, moved as little as it takes to be this far from each other; neighbours that meet move as a group."""
    order = np.argsort(places, kind="stable")
    groups: list[tuple[float, int]] = []  # mean of (place - number * distance), members
    for number, place in enumerate(places[order]):
        mean, members = float(place) - number * distance, 1
        while groups and groups[-1][0] > mean:
            before, more = groups.pop()
            mean, members = (mean * members + before * more) / (members + more), members + more
        groups.append((mean, members))
    moved = np.empty(len(places))
    moved[order] = np.repeat([g[0] for g in groups], [g[1] for g in groups]) + distance * np.arange(len(places))
    return moved


def few_ticks(axis: Axis, values: tuple[int | float, ...]) -> None:
    """Numbers at these values only, on a logarithmic axis that spans too little for powers of ten."""
    axis.set_ticks(values, [f"{value:g}" if value < 1e5 else power_of_ten(value) for value in values])
    axis.set_minor_formatter(NullFormatter())


def power_of_ten(value: int | float) -> str:
    """A number for labels: 0.05, or with a power of ten where that is shorter."""
    if 1e-2 <= abs(value) < 1e4 or value == 0:
        return f"{value:g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    factor = "" if mantissa == "1" else rf"{mantissa}\times "
    return rf"${factor}10^{{{int(exponent)}}}$"


def log_time(ax: Axes, first: int | float, last: int | float) -> None:
    """Make the time axis logarithmic, with numbers at powers of ten, or nearer where fewer than two of them show."""
    ax.set_xscale("log")
    ax.set_xlim(first, last)
    ax.xaxis.set_minor_formatter(NullFormatter())
    tens = 10.0 ** np.arange(np.floor(np.log10(first)), np.log10(last) + 1)
    if np.sum((tens >= first) & (tens <= last)) < 2:
        factors = (1, 3) if last > 8 * first else (1, 2, 5)
        within = [factor * ten for ten in tens for factor in factors if first <= factor * ten <= last]
        few_ticks(ax.xaxis, tuple(within))
