"""The pictures as plain plotly dictionaries: sent once in full, then patched.

Simulation is solid and coloured, theory dashed or dotted in ink. Seeds, components, heads and the cursor have colours
of their own, and every picture has a legend.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from dash import Patch

from iclflow.explorer.detail import Detail, SeedCurve
from iclflow.explorer.theory_view import TheoryView

__all__ = ["COMPONENTS", "CURSOR", "HEADS", "SEEDS", "empty_gains", "empty_loss", "empty_map", "empty_values",
           "loss_lines", "patch_gains", "patch_theory", "patch_values", "show_times", "times_shown"]  # fmt: skip

INK, FAINT = "#70707a", "rgba(128,128,136,0.25)"  # on white; the page paints text in the colour of its scheme
THEORY = {"color": INK, "width": 1.8, "dash": "dash"}
BAND = {"line": {"color": "rgba(112,112,122,0.75)", "width": 1}, "fillcolor": "rgba(128,128,136,0.3)"}
CURSOR = "#D55E00"
SEEDS = ("#0072B2", "#7FB2D6")  # the first, and all others
COMPONENTS = ("#009E73", "#CC79A7", "#E69F00", "#8C6BB1", "#7A9A01", "#B5651D", "#17BECF", "#E15759")
HEADS = ("#5D69B1", "#52BCA3", "#99C945", "#CC61B0", "#24796C", "#DAA51B", "#2F8AC4", "#764E9F", "#ED645A", "#A5AA99")
DASHES = ("solid", "dot", "dashdot")  # where there are more lines than colours
MAP_COLOURS = [[0.0, "#D55E00"], [0.5, "#f4f4f4"], [1.0, "#0072B2"]]  # the browser has those of the dark scheme


def look(colours: Sequence[str], number: int, width: int | float) -> dict[str, Any]:
    """The style of line `number`."""
    dash = DASHES[number // len(colours) % len(DASHES)]
    return {"color": colours[number % len(colours)], "dash": dash, "width": width}


def layout(title: str, y: str, **more: Any) -> dict[str, Any]:
    """The layout that all pictures share."""
    axis = {"gridcolor": FAINT, "zerolinecolor": FAINT, "linecolor": INK, "color": INK}
    return {
        "margin": {"l": 54, "r": 56, "t": 34, "b": 88},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": INK},
        "title": {"text": title, "x": 0.02, "font": {"size": 14}},
        "xaxis": {**axis, "title": {"text": "time t/τ", "standoff": 8}, "type": "log", "exponentformat": "power",
                  "dtick": 1, "minor": {"ticks": "outside", "ticklen": 3, "tickcolor": FAINT}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 6}},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 11},
                   "itemwidth": 30, "tracegroupgap": 0},
        "hovermode": "closest",
        "uirevision": "same",
        **more,
    }  # fmt: skip


def line(name: str, x: list[float], y: Sequence[int | float], style: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One line of a plot; `more` are further settings of plotly."""
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": style, "hoverinfo": "x+y+name",
            **more}  # fmt: skip


def cursor_key() -> dict[str, Any]:
    """The cursor's entry in the legend; the line itself is drawn by the browser."""
    return {"type": "line", "xref": "paper", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 0, "name": "cursor",
            "line": {"color": CURSOR, "width": 2}, "showlegend": True, "legendrank": 2000}  # fmt: skip


def times_shown(view: TheoryView, seeds: list[SeedCurve]) -> list[float]:
    """The times that all pictures show: from before the first predicted drop to the end of theory or of the runs."""
    low, high = float(view.time[0]), float(view.time[-1])
    ends = [seed["time"][-1] for seed in seeds if seed["time"]]
    if view.loss is None and ends:  # without a forecast the curves say what there is to see
        return [min(low, 1e-4 * max(ends)), max(ends)]
    return [low, max([high, *ends])]


def show_times(patch: Patch, view: TheoryView, bounds: list[float], axes: Any) -> None:
    """Name the time axis by its clock and show the times between two bounds."""
    axis, log = patch["layout"]["xaxis"], is_chosen("time", axes)
    axis["title"]["text"] = f"time {view.clock}"
    axis["type"] = "log" if log else "linear"
    tens = [float(np.log10(max(bound, 1e-300))) for bound in bounds]
    axis["dtick"] = (1 if tens[1] - tens[0] > 3 else "D2") if log else None
    axis["range"] = tens if log else [0, bounds[1]]


def is_chosen(name: str, axes: Any) -> bool:
    """Whether an axis is to be logarithmic."""
    return isinstance(axes, list) and name in axes


# --- the loss ---------------------------------------------------------------------------------------------------------


def empty_loss() -> dict[str, Any]:
    return {"data": [line("theory", [], [], THEORY)], "layout": layout("Loss", "loss", shapes=[cursor_key()])}


def theory_trace(view: TheoryView) -> dict[str, Any]:
    """Theory, the first trace, so that it can be replaced whatever the number of others; it is drawn over them."""
    y = [] if view.loss is None else np.round(view.loss, 6).tolist()
    return line("theory", view.time.tolist(), y, THEORY, zorder=1, showlegend=bool(y))


def loss_lines(view: TheoryView, seeds: list[SeedCurve]) -> list[dict[str, Any]]:
    """Theory and one curve per seed; the first seed comes last, thicker and over the others."""
    curves = []
    for i, seed in enumerate(seeds):
        name = f"seed {seed['seed']}"
        style = {"color": SEEDS[min(i, 1)], "width": 1.2 if i else 2.6}
        several = f"seeds {seeds[1]['seed']} to {seeds[-1]['seed']}" if i and len(seeds) > 2 else name
        more = {"legendgroup": "others", "showlegend": False} if i > 1 else {"legendgroup": "others"} if i else {}
        named = several if i == 1 else name
        curves.append(line(named, seed["time"], seed["loss"], style, legendrank=1001 + min(i, 1), **more))
    return [theory_trace(view), *curves[::-1]]


def patch_theory(view: TheoryView, axes: Any) -> Patch:
    """A new theory curve with its levels and drops; the simulated curves stay until new ones come."""
    patch, log = Patch(), is_chosen("loss", axes)
    patch["data"][0] = theory_trace(view)
    patch["layout"]["shapes"] = [*levels(view), *drops(view), cursor_key()]
    patch["layout"]["annotations"] = names(view)
    top, bottom = float(view.levels.max()), float(view.levels.min())
    patch["layout"]["yaxis"]["type"] = "log" if log else "linear"
    bounds = [float(np.log10(0.7 * bottom)), float(np.log10(1.2 * top))] if log else [0, 1.08 * top]
    patch["layout"]["yaxis"]["range"] = bounds
    return patch


def levels(view: TheoryView) -> list[dict[str, Any]]:
    """A horizontal line at every predicted plateau."""
    dots = {"color": INK, "width": 1, "dash": "dot"}
    return [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": dots, "name": "level",
             "legend": "legend", **key("plateaus (theory)", i == 0, 1010)}
            for i, y in enumerate(map(float, view.levels))]  # fmt: skip


def drops(view: TheoryView) -> list[dict[str, Any]]:
    """The 95 % interval of every predicted drop as a band, or a line at the drop where theory gives no interval.

    The edge of a band is a pixel wide, so that an interval which is narrower than that is still to be seen.
    """
    shapes = []
    for i, (x, (low, high)) in enumerate(zip(view.drops.tolist(), view.intervals.tolist(), strict=True)):
        whole = bool(np.isfinite([low, high]).all())
        place = {"x0": low, "x1": high} if whole else {"x0": x, "x1": x}
        words = "drops, 95 % interval (theory)" if whole else "drops (theory)"
        shape = {"type": "rect" if whole else "line", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", **BAND}
        shapes.append({**shape, **place, "name": "interval" if whole else "drop", **key(words, i == 0, 1005)})
    return shapes


def key(words: str, first: bool, rank: int) -> dict[str, Any]:
    """The legend entry of a group of shapes: that of the first of them."""
    return {"legendgroup": words, "showlegend": first, "legendrank": rank, **({"name": words} if first else {})}


def names(view: TheoryView) -> list[dict[str, Any]]:
    """The names of the levels, in the margin, except those that would overlap."""
    labels, last = [], None
    for m, y in enumerate(map(float, view.levels)):
        if last is None or abs(y - last) > 0.045 * float(view.levels.max()):
            labels.append({"xref": "paper", "x": 1.005, "y": y, "text": f"L(M<sub>{m}</sub>)", "showarrow": False,
                           "xanchor": "left", "font": {"size": 11, "color": INK}})  # fmt: skip
            last = y
    return labels


# --- components and value weights -------------------------------------------------------------------------------------


def empty_gains() -> dict[str, Any]:
    title = {"text": "number learned"}
    second = {"overlaying": "y", "side": "right", "color": INK, "showgrid": False, "title": title,
              "rangemode": "tozero", "dtick": 1, "zeroline": False}  # fmt: skip
    return {"data": [], "layout": layout("Components learned", "gain", yaxis2=second, shapes=[cursor_key()])}


def patch_gains(detail: Detail | None, view: TheoryView, bounds: list[float], axes: Any) -> Patch:
    """The components learned over time, and how many of them are learned; nothing without a run."""
    patch = Patch()
    patch["data"] = []
    show_times(patch, view, bounds, axes)
    if detail is None:
        return patch
    lines, time, dim = [], detail.time.tolist(), next(iter(detail.maps.values())).shape[-1]
    for i, (name, gain) in enumerate(zip(detail.names, np.round(np.nan_to_num(detail.gains.T), 4), strict=True)):
        layered = {"dash": DASHES[i // dim % len(DASHES)]} if len(detail.names) > dim else {}
        style = {**look(COMPONENTS, i % dim, 1.8), **layered}
        lines.append(line(f"component {name}", time, gain.tolist(), style))
    if detail.learned is not None and len(detail.names) == dim:
        stairs = {"color": INK, "width": 2, "shape": "hv"}
        lines.append(line("number learned", time, detail.learned, stairs, yaxis="y2"))
    patch["data"] = lines
    shown = np.clip(np.nan_to_num(detail.gains), -0.5, 3.0)
    heights = [min(-0.06, 1.05 * float(shown.min())), max(1.12, 1.05 * float(shown.max()))]
    patch["layout"]["yaxis"]["range"] = heights
    patch["layout"]["yaxis2"]["range"] = [dim * height for height in heights]  # all components learned is a gain of 1
    return patch


def empty_values() -> dict[str, Any]:
    return {"data": [], "layout": layout("Value weights", "value weight v", shapes=[cursor_key()])}


def patch_values(detail: Detail | None, view: TheoryView, bounds: list[float], axes: Any) -> Patch:
    """The value weights over time, simulated and predicted; nothing without a run."""
    patch, lines = Patch(), []
    show_times(patch, view, bounds, axes)
    if detail is not None:
        time, simulated = detail.time.tolist(), np.nan_to_num(detail.values)
        for h, v in enumerate(simulated.T):
            lines.append(line(f"head {h + 1}", time, np.round(v, 5).tolist(), look(HEADS, h, 2)))
        predicted: Iterable[np.ndarray] = (
            [] if view.prediction is None else view.prediction.values(detail.time)[:, : simulated.shape[1]].T
        )
        for i, v in enumerate(v for v in predicted if np.isfinite(v).all()):
            more = {"legendgroup": "theory", "showlegend": i == 0, "zorder": 1}
            lines.append(line("theory", time, np.round(v, 5).tolist(), THEORY, **more))
    patch["data"] = lines
    return patch


# --- maps of weights --------------------------------------------------------------------------------------------------


def empty_map(title: str) -> dict[str, Any]:
    picture = layout(title, "head", margin={"l": 48, "r": 10, "t": 40, "b": 48}, showlegend=False)
    picture["xaxis"] = {"color": INK, "title": {"text": "eigenvector", "standoff": 4}, "dtick": 1, "showgrid": False}
    picture["yaxis"] |= {"autorange": "reversed", "showgrid": False, "dtick": 1}
    bar = {"title": {"text": "weight", "side": "top"}, "thickness": 12, "outlinewidth": 0, "len": 0.95}
    image = {"type": "heatmap", "z": [[None]], "colorscale": MAP_COLOURS, "zmin": -2, "zmax": 2, "showscale": True,
             "colorbar": bar, "hovertemplate": "%{z:.3f}<extra></extra>"}  # fmt: skip
    return {"data": [image], "layout": picture}
