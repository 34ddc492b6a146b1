"""A chart of a card as a small SVG picture: simulation solid, theory dashed, levels dotted."""

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from iclflow.system.thinning import kept_places

if TYPE_CHECKING:
    from iclflow.results.card import Chart, Line

__all__ = ["MOST_LINES", "as_svg"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
INK = "#010203"  # becomes the colour of the page's text
MOST_POINTS, MOST_LINES = 1000, 24
BEGUN = 0.1  # share of the fall that is done when it has begun
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "iclflow", "font.family": "sans-serif", "font.size": 8, "text.color": INK,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.linewidth": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.facecolor": "none", "figure.facecolor": "none",
    "legend.labelcolor": INK, "axes.grid": False, "lines.marker": "", "text.usetex": False, "path.simplify": True,
}  # fmt: skip


def as_svg(chart: "Chart") -> str:
    """The curves as SVG, zero included; time is logarithmic where the fall begins early. Empty without curves."""
    lines = [line for line in map(finite, chart.lines()) if len(line.x) > 1][:MOST_LINES]
    if not lines:
        return ""
    start, end = fall_of(lines[0]), max(float(line.x[-1]) for line in lines)
    with rc_context(SETTINGS):
        figure = Figure(figsize=(4.6, 1.9))
        axes = figure.add_axes((0.1, 0.21, 0.87, 0.75))
        for level in chart.levels:
            axes.axhline(level, color=INK, alpha=0.5, lw=0.8, ls=":")
        solid = sum(not line.theory for line in lines)
        for number, line in enumerate(lines):
            width = 1.0 if line.theory or solid > 3 else 1.5
            colour, style = (INK, (0, (5, 3))) if line.theory else (COLOURS[number % len(COLOURS)], "-")
            axes.plot(line.x, line.y, color=colour, ls=style, lw=width, label=line.name)
        if 1 < len(lines) <= len(COLOURS):
            axes.legend(frameon=False, fontsize=7)
        axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel, xlim=(min(float(line.x[0]) for line in lines), end))
        if 0 < start < 0.1 * end:
            axes.set(xscale="log", xlim=(start / 3, end))
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if end < 300 * start else (1,)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        lowest = min(float(line.y.min()) for line in lines)
        if lowest > -0.01 * axes.get_ylim()[1]:  # rounding below zero is not worth an axis
            axes.set_ylim(bottom=0)
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = re.sub(r"<defs>\s*<style.*?</defs>|<metadata>.*?</metadata>|<!--.*?-->", "", image.getvalue(), flags=re.S)
    label = f'role="img" aria-label="{chart.ylabel} over {chart.xlabel}"'
    return svg[svg.index("<svg") :].replace("<svg ", f"<svg {label} ", 1).replace(INK, "currentColor")


def finite(line: "Line") -> "Line":
    """The finite points of a line, no more than a small picture shows."""
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    x, y = x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]
    places = kept_places(x, y, MOST_POINTS)
    return line._replace(x=x[places], y=y[places])


def fall_of(line: "Line") -> float:
    """When a line has begun to fall; 0 if it does not."""
    begun = np.flatnonzero((line.y <= line.y[0] - BEGUN * (line.y[0] - line.y[-1])) & (line.x > 0))
    return float(line.x[begun[0]]) if len(begun) and line.y[-1] < line.y[0] else 0.0
