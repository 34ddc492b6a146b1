"""Results as notebooks show them: HTML tables and small curves in SVG, without scripts or anything to load.

Text and axes take the colour of the page, so that both fit a dark page too. Simulation is drawn solid, theory dashed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Num

from iclflow.system.thinning import kept_places

__all__ = ["MOST_LINES", "Line", "card", "chart", "paragraph", "shown", "table"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
WIDTH, HEIGHT = 440, 170  # pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 32  # margins
MOST_POINTS, MOST_LINES = 300, 24
Values = Num[np.ndarray, "..."]
Number = int | float | np.ndarray


@dataclass(frozen=True)
class Line:
    """A curve of a chart."""

    x: Values
    y: Values
    name: str = ""
    theory: bool = False


def chart(lines: Sequence[Line], xlabel: str, ylabel: str = "loss", levels: Iterable[float] = ()) -> str:
    """The curves as SVG, zero included; time is logarithmic where most of the fall comes early."""
    lines = [line for line in map(finite, lines) if len(line.x) > 1][:MOST_LINES]
    if not lines:
        return ""
    logarithmic = falls_early(lines[0])
    first = min(smallest_shown(line, logarithmic) for line in lines)
    last = max(float(line.x[-1]) for line in lines)
    least, most = min(float(np.min(line.y)) for line in lines), max(float(np.max(line.y)) for line in lines)
    low = least if least < -0.01 * abs(most) else 0.0  # rounding below zero is not worth an axis
    top = low + 1.05 * (most - low) or 1.0
    scale = (lambda x: np.log(np.maximum(x, first) / first) / np.log(last / first)) if logarithmic else (
        lambda x: (x - first) / (last - first)
    )  # fmt: skip
    across = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * np.clip(scale(np.asarray(x, dtype=float)), 0, 1)
    down = lambda y: (
        TOP + (HEIGHT - TOP - BOTTOM) * (1 - np.clip((np.asarray(y, dtype=float) - low) / (top - low), 0, 1))
    )
    parts = [f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="currentColor" fill="none"/>']
    for level in levels:
        parts.append(
            f'<path d="M{LEFT} {down(level):.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".4"'
            ' stroke-dasharray="1 3" fill="none"/>'
        )
    solid = sum(not line.theory for line in lines)
    for number, line in enumerate(lines):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across(line.x), down(line.y), strict=True))
        colour = "currentColor" if line.theory else COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if line.theory else ""
        width = 1.2 if line.theory or solid > 3 else 1.8
        parts.append(
            f'<polyline points="{points}" stroke="{colour}" stroke-width="{width}" fill="none"{dash}>'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    ticks = [first, np.sqrt(first * last) if logarithmic else (first + last) / 2, last]
    for tick, anchor in zip(ticks, ("start", "middle", "end"), strict=True):
        parts.append(text(across(tick), HEIGHT - BOTTOM + 13, f"{tick:.4g}", anchor))
    parts += [text(LEFT - 4, down(y) + 4, f"{y:.2g}", "end") for y in (low, low + (top - low) / 1.05)]
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 5, xlabel + (", logarithmic" if logarithmic else ""), "middle"))
    parts.append(text(12, (TOP + HEIGHT - BOTTOM) / 2, ylabel, "middle", upright=True))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' role="img" aria-label="{escape(ylabel)} over {escape(xlabel)}">{"".join(parts)}</svg>'
    )


def finite(line: Line) -> Line:
    """At most `MOST_POINTS` of the finite points of a line."""
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    x, y = x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]
    places = kept_places(x, y, MOST_POINTS) if len(x) > MOST_POINTS else np.arange(len(x))
    return Line(x[places], y[places], line.name, line.theory)


def falls_early(line: Line) -> bool:
    """Whether the first tenth of the fall is done within the first tenth of the time."""
    begun = np.flatnonzero(line.y <= line.y[0] - 0.1 * (line.y[0] - line.y[-1]))
    start, end = float(line.x[0]), float(line.x[-1])
    return bool(line.y[-1] < line.y[0] and 0 < float(line.x[begun[0]]) - start < 0.1 * (end - start))


def smallest_shown(line: Line, logarithmic: bool) -> float:
    """Where the time axis begins; a logarithmic one at a third of the time at which the fall has begun."""
    if not logarithmic:
        return float(line.x[0])
    begun = np.flatnonzero((line.y <= line.y[0] - 0.1 * (line.y[0] - line.y[-1])) & (line.x > 0))
    return float(line.x[begun[0]]) / 3 if len(begun) else float(line.x[-1]) / 1e3


def text(x: Number, y: Number, words: str, anchor: str, upright: bool = False) -> str:
    """A label."""
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if upright else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}'
    return f'<text {place} font-size="11" font-family="sans-serif" fill="currentColor">{escape(words)}</text>'


def table(rows: Iterable[Sequence[Any]], heading: Sequence[str] | None = None) -> str:
    """Rows of cells as an HTML table; numbers have five digits, `None` is a dash."""
    lines = [row_of(row, "td") for row in rows]
    if heading is not None and lines:
        lines.insert(0, row_of(heading, "th"))
    return f"<table>{''.join(lines)}</table>"


def row_of(cells: Sequence[Any], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(shown(cell))}</{tag}>' for cell in cells)}</tr>"


def shown(cell: Any) -> str:
    """A cell as text."""
    if cell is None:
        return "-"
    return f"{cell:.5g}" if isinstance(cell, float | np.floating) else str(cell)


def card(title: str, *parts: str) -> str:
    """A title and what stands below it."""
    return f"<div><p><strong>{escape(title)}</strong></p>{''.join(parts)}</div>"


def paragraph(words: str) -> str:
    """A line of text."""
    return f"<p>{escape(words)}</p>"
