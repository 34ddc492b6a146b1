"""The pictures as plain plotly dictionaries: sent once in full, then patched."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from dash import Patch
from jaxtyping import Float

from iclflow.explorer.detail import Curve
from iclflow.explorer.theory_view import TheoryView
from iclflow.figures.style import COLOURS

__all__ = [
    "empty_gains",
    "empty_loss",
    "empty_map",
    "empty_values",
    "gain_lines",
    "loss_lines",
    "patch_theory",
    "show_times",
    "value_lines",
]

INK, FAINT = "#70707a", "rgba(128,128,136,0.25)"  # on white; the page paints text in the colour of its scheme
THEORY = {"color": INK, "width": 1.6, "dash": "dash"}
MAP_COLOURS = [[0.0, "#D55E00"], [0.5, "#f4f4f4"], [1.0, "#0072B2"]]
DASHES = ("solid", "dot", "dashdot")  # where there are more lines than colours


def look(number: int, width: int | float) -> dict[str, Any]:
    """The style of line `number`."""
    return {"color": COLOURS[number % len(COLOURS)], "dash": DASHES[number // len(COLOURS) % 3], "width": width}


def layout(title: str, y: str, **more: Any) -> dict[str, Any]:
    """The layout that all pictures share."""
    axis = {"gridcolor": FAINT, "zerolinecolor": FAINT, "linecolor": INK, "color": INK}
    return {
        "margin": {"l": 52, "r": 64, "t": 30, "b": 46},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "title": {"text": title, "x": 0.02, "font": {"size": 14}},
        "xaxis": {**axis, "title": {"text": "time t/τ"}, "type": "log", "exponentformat": "power"},
        "yaxis": {**axis, "title": {"text": y}},
        "showlegend": False,
        "hovermode": "closest",
        "uirevision": "same",
        **more,
    }


def line(name: str, x: list[float], y: Sequence[int | float], style: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One line of a plot; `more` are further settings of plotly."""
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, "hoverinfo": "x+y+name",
            **more}  # fmt: skip


def empty_loss() -> dict[str, Any]:
    return {"data": [line("theory", [], [], THEORY)], "layout": layout("Loss", "loss")}


def theory_line(view: TheoryView) -> dict[str, Any]:
    """Theory, the first trace, so that it can be replaced whatever the number of others; it is drawn over them."""
    y = [] if view.loss is None else np.round(view.loss, 6).tolist()
    return line("theory", view.time.tolist(), y, THEORY, zorder=1)


def loss_lines(view: TheoryView, seeds: list[Curve]) -> list[dict[str, Any]]:
    """Theory and one curve per seed; the first seed comes last, thicker and over the others."""
    curves = [
        line(f"seed {seed['seed']}", seed["time"], seed["loss"], look(i, 1.1 if i else 2.4))
        for i, seed in enumerate(seeds)
    ]
    return [theory_line(view), *curves[::-1]]


def empty_gains() -> dict[str, Any]:
    second = {"overlaying": "y", "side": "right", "color": INK, "showgrid": False, "title": {"text": "learned m"},
              "rangemode": "tozero", "dtick": 1}  # fmt: skip
    return {"data": [], "layout": layout("Components learned", "gain", yaxis2=second)}


def gain_lines(time: list[float], gains: Float[np.ndarray, "T D"], learned: list[int]) -> list[dict[str, Any]]:
    """One line per component, and the number of those that are learned."""
    count = line("learned m", time, learned, {"color": INK, "width": 2, "shape": "hv"}, yaxis="y2")
    lines = [line(f"component {i + 1}", time, gain.tolist(), look(i, 1.8)) for i, gain in enumerate(gains.T)]
    return [*lines, count]


def empty_values() -> dict[str, Any]:
    return {"data": [], "layout": layout("Value weights", "v")}


def value_lines(
    time: list[float], simulated: Float[np.ndarray, "T H"], predicted: Float[np.ndarray, "T H"] | None
) -> list[dict[str, Any]]:
    """Simulated value weights, then predicted ones."""
    lines = [line(f"head {h + 1}", time, value.tolist(), look(h, 2)) for h, value in enumerate(simulated.T)]
    known = [(h, v) for h, v in enumerate([] if predicted is None else predicted.T) if np.isfinite(v).all()]
    return lines + [line(f"head {h + 1}, theory", time, np.round(value, 5).tolist(), THEORY) for h, value in known]


def empty_map(title: str) -> dict[str, Any]:
    picture = layout(title, "head", margin={"l": 44, "r": 10, "t": 30, "b": 36})
    picture["xaxis"] = {"color": INK, "title": {"text": "eigenvector"}, "dtick": 1, "showgrid": False}
    picture["yaxis"] |= {"autorange": "reversed", "showgrid": False, "dtick": 1}
    image = {"type": "heatmap", "z": [[0.0]], "colorscale": MAP_COLOURS, "zmin": -2, "zmax": 2, "showscale": False,
             "hovertemplate": "%{z:.3f}<extra></extra>"}  # fmt: skip
    return {"data": [image], "layout": picture}


def patch_theory(view: TheoryView, log_time: bool, log_loss: bool) -> Patch:
    """A new theory curve with its levels and drops; the simulated curves stay until new ones come."""
    patch = Patch()
    patch["data"][0] = theory_line(view)
    patch["layout"]["shapes"] = [*levels(view), *drops(view)]
    patch["layout"]["annotations"] = names(view)
    show_times(patch, view, [], log_time)
    top, bottom = float(view.levels.max()), float(view.levels.min())
    patch["layout"]["yaxis"]["type"] = "log" if log_loss else "linear"
    bounds = [float(np.log10(0.7 * bottom)), float(np.log10(1.2 * top))] if log_loss else [0, 1.08 * top]
    patch["layout"]["yaxis"]["range"] = bounds
    return patch


def show_times(patch: Patch, view: TheoryView, ends: list[float], log_time: bool) -> None:
    """Show the times from before the first predicted drop to the end of theory or of the longest curve."""
    low, high = float(view.time[0]), max([float(view.time[-1]), *ends])
    patch["layout"]["xaxis"]["type"] = "log" if log_time else "linear"
    patch["layout"]["xaxis"]["range"] = [float(np.log10(low)), float(np.log10(high))] if log_time else [0, high]


def levels(view: TheoryView) -> list[dict[str, Any]]:
    """A horizontal line at every predicted plateau."""
    dots = {"color": INK, "width": 1, "dash": "dot"}
    return [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": dots, "name": "level"}
            for y in map(float, view.levels)]  # fmt: skip


def drops(view: TheoryView) -> list[dict[str, Any]]:
    """A vertical line at every predicted drop."""
    thin = {"color": FAINT, "width": 1}
    return [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": thin, "name": "drop"}
            for x in map(float, view.drops)]  # fmt: skip


def names(view: TheoryView) -> list[dict[str, Any]]:
    """The names of the levels, in the margin, except those that would overlap."""
    labels, last = [], None
    for m, y in enumerate(map(float, view.levels)):
        if last is None or abs(y - last) > 0.045 * float(view.levels.max()):
            labels.append({"xref": "paper", "x": 1.005, "y": y, "text": f"L(M<sub>{m}</sub>)", "showarrow": False,
                           "xanchor": "left", "font": {"size": 11, "color": INK}})  # fmt: skip
            last = y
    return labels
