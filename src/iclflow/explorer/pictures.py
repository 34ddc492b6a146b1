"""The pictures, as plain plotly dictionaries: whole once, then patched."""

from typing import Any

import numpy as np
from dash import Patch

from iclflow.explorer.state import RANGES
from iclflow.explorer.theory_view import TheoryView
from iclflow.figures.style import COLOURS

__all__ = [
    "empty_gains",
    "empty_loss",
    "empty_map",
    "empty_values",
    "patch_loss_seeds",
    "patch_loss_theory",
    "set_axes",
    "show_times",
]

INK, FAINT = "#808088", "rgba(128,128,136,0.25)"  # readable on white and on black
SEEDS, HEADS, DIMS = (int(RANGES[name][1]) for name in ("seeds", "heads", "dim"))
THEORY = {"color": INK, "width": 1.6, "dash": "dash"}
MAP_COLOURS = [[0.0, "#D55E00"], [0.5, "#f4f4f4"], [1.0, "#0072B2"]]


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def layout(title: str, y: str, **more: Any) -> dict[str, Any]:
    axis = {"gridcolor": FAINT, "zerolinecolor": FAINT, "linecolor": INK, "color": INK, "automargin": True}
    return {
        "margin": {"l": 52, "r": 64, "t": 30, "b": 40},
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


def line(name: str, **style: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "x": [], "y": [], "name": name, "line": style, "hoverinfo": "x+y+name"}


def empty_loss() -> dict[str, Any]:
    """One trace a seed, the first on top of the others, and theory over all."""
    seeds = [line(f"seed {i}", color=colour(i), width=2.4 if i == 0 else 1.1) for i in range(SEEDS)]
    return {"data": [*seeds[::-1], line("theory", **THEORY)], "layout": layout("Loss", "loss")}


def seed_trace(number: int) -> int:
    return SEEDS - 1 - number


def empty_gains() -> dict[str, Any]:
    """One line a component, and how many are learned."""
    lines = [line(f"component {i + 1}", color=colour(i), width=1.8) for i in range(DIMS)]
    count = {**line("learned m", color=INK, width=2, shape="hv"), "yaxis": "y2"}
    second = {"overlaying": "y", "side": "right", "color": INK, "showgrid": False, "title": {"text": "learned m"},
              "rangemode": "tozero", "dtick": 1}  # fmt: skip
    return {"data": [*lines, count], "layout": layout("Components learned", "gain", yaxis2=second)}


def empty_values() -> dict[str, Any]:
    """Simulated value weights, then predicted ones."""
    seen = [line(f"head {h + 1}", color=colour(h), width=2) for h in range(HEADS)]
    told = [line(f"head {h + 1}, theory", **THEORY) for h in range(HEADS)]
    return {"data": [*seen, *told], "layout": layout("Value weights", "v")}


def empty_map(title: str) -> dict[str, Any]:
    picture = layout(title, "head", margin={"l": 44, "r": 10, "t": 30, "b": 36})
    picture["xaxis"] = {"color": INK, "title": {"text": "eigenvector"}, "dtick": 1, "showgrid": False}
    picture["yaxis"] |= {"autorange": "reversed", "showgrid": False, "dtick": 1}
    image = {"type": "heatmap", "z": [[0.0]], "colorscale": MAP_COLOURS, "zmin": -2, "zmax": 2, "showscale": False,
             "hovertemplate": "%{z:.3f}<extra></extra>"}  # fmt: skip
    return {"data": [image], "layout": picture}


def patch_loss_theory(view: TheoryView, log_time: bool, log_loss: bool) -> Patch:
    """A new curve, new levels, new drops; curves of the former state stay, faint, until the new ones come."""
    patch = Patch()
    patch["data"][SEEDS]["x"] = view.time.tolist()
    patch["data"][SEEDS]["y"] = [] if view.loss is None else np.round(view.loss, 6).tolist()
    for trace in range(SEEDS):
        patch["data"][trace]["opacity"] = 0.2
    patch["layout"]["shapes"] = [*levels(view), *drops(view)]
    patch["layout"]["annotations"] = names(view)
    set_axes(patch, view, log_time, log_loss)
    return patch


def set_axes(patch: Patch, view: TheoryView, log_time: bool, log_loss: bool) -> None:
    show_times(patch, view, [], log_time)
    top, bottom = float(view.levels.max()), float(view.levels.min())
    patch["layout"]["yaxis"]["type"] = "log" if log_loss else "linear"
    bounds = [float(np.log10(0.7 * bottom)), float(np.log10(1.2 * top))] if log_loss else [0, 1.08 * top]
    patch["layout"]["yaxis"]["range"] = bounds


def show_times(patch: Patch, view: TheoryView, ends: list[float], log_time: bool) -> None:
    """From before the first predicted drop to the end of theory or of the longest curve."""
    low, high = float(view.time[0]), max([float(view.time[-1]), *ends])
    patch["layout"]["xaxis"]["type"] = "log" if log_time else "linear"
    patch["layout"]["xaxis"]["range"] = [float(np.log10(low)), float(np.log10(high))] if log_time else [0, high]


def levels(view: TheoryView) -> list[dict[str, Any]]:
    dots = {"color": INK, "width": 1, "dash": "dot"}
    return [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": dots, "name": "level"}
            for y in map(float, view.levels)]  # fmt: skip


def drops(view: TheoryView) -> list[dict[str, Any]]:
    thin = {"color": FAINT, "width": 1}
    return [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": thin, "name": "drop"}
            for x in map(float, view.drops)]  # fmt: skip


def names(view: TheoryView) -> list[dict[str, Any]]:
    """Levels, named in the margin where they do not run into each other."""
    found, last = [], None
    for m, y in enumerate(map(float, view.levels)):
        if last is None or abs(y - last) > 0.045 * float(view.levels.max()):
            found.append({"xref": "paper", "x": 1.005, "y": y, "text": f"L(M<sub>{m}</sub>)", "showarrow": False,
                          "xanchor": "left", "font": {"size": 11, "color": INK}})  # fmt: skip
            last = y
    return found


def patch_loss_seeds(patch: Patch, seeds: list[dict[str, Any]], first: int, clear: bool) -> None:
    """Curves of seeds number `first` and on; `clear` empties those of the former state."""
    if clear:
        for number in range(SEEDS):
            patch["data"][seed_trace(number)]["x"] = []
            patch["data"][seed_trace(number)]["y"] = []
    for number, seed in enumerate(seeds, first):
        trace = patch["data"][seed_trace(number)]
        trace["x"], trace["y"], trace["opacity"] = seed["time"], seed["loss"], 1.0
