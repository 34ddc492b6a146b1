"""One card for every result: a title and below it notes, tables and charts; shown as text, as HTML or as JSON.

Text and axes take the colour of the page, so that HTML fits a dark page too, and it loads nothing and runs no script.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Card",
    "Chart",
    "Line",
    "Part",
    "Table",
    "WithCard",
    "as_html",
    "as_json",
    "as_text",
    "one_based",
    "relative",
]


class Line(NamedTuple):
    """A curve of a chart; theory is drawn dashed."""

    x: np.ndarray
    y: np.ndarray
    name: str = ""
    theory: bool = False


class Chart(NamedTuple):
    """Curves over time, with dotted levels; text leaves it out."""

    lines: Callable[[], Sequence[Line]]  # asked for when the chart is drawn
    xlabel: str
    ylabel: str = "loss"
    levels: Iterable[float] = ()


class Table(NamedTuple):
    """Rows of cells below a heading, which may be empty; a table without rows is not shown."""

    heading: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    digits: int = 5


class Card(NamedTuple):
    """A result as people and programs read it."""

    title: str
    parts: Sequence["Part"]  # a text is a note of one line
    fields: dict[str, Any]  # of the JSON object

    def with_parts(self, *parts: "Part") -> "Card":
        """The same card with more below it."""
        return self._replace(parts=[*self.parts, *parts])


Part = str | Chart | Table | Card


class WithCard:
    """A result that prints its card, and shows it in a notebook."""

    def card(self) -> Card:
        """Title, notes, tables and charts."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self.card())

    def _repr_html_(self) -> str:
        """The card, for notebooks."""
        return as_html(self.card())


def as_text(card: Card) -> str:
    """The card for a terminal; everything below the title is indented."""
    lines = [card.title]
    for part in card.parts:
        if isinstance(part, Card):
            lines.append(as_text(part))
        elif isinstance(part, Table):
            lines += [f"  {line}" for line in table_lines(part)]
        elif isinstance(part, str):
            lines.append(f"  {part}")
    return "\n".join(lines)


def as_html(card: Card) -> str:
    """The card for a notebook."""
    return f"<div><p><strong>{escape(card.title)}</strong></p>{''.join(map(html_of, card.parts))}</div>"


def as_json(card: Card) -> str:
    """The fields of the card as a JSON object."""
    return json.dumps(card.fields, indent=1, allow_nan=False)


def html_of(part: Part) -> str:
    """A part of a card in HTML."""
    if isinstance(part, Card):
        return as_html(part)
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Chart):
        from iclflow.results.chart import as_svg  # loads matplotlib

        return as_svg(part)
    caption = f"<caption style='text-align:left'>{escape(part.caption)}</caption>" if part.caption else ""
    heading = html_row(part.heading, "th") if part.heading else ""
    rows = "".join(html_row(cells, "td") for cells in text_rows(part))
    return f"<table>{caption}{heading}{rows}</table>" if rows else ""


def html_row(cells: Iterable[str], tag: str) -> str:
    """A row of a table in HTML."""
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def table_lines(table: Table) -> list[str]:
    """The lines of a table in text: columns of numbers end at the same place, those of words begin there."""
    rows = text_rows(table)
    if not rows:
        return []
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        column = [*table.heading[number : number + 1], *cells]
        width = max(map(len, column))
        numbers = all(map(is_number, cells))
        columns.append([cell.rjust(width) if numbers else cell.ljust(width) for cell in column])
    lines = ["   ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return [table.caption, *(f"  {line}" for line in lines)] if table.caption else lines


def text_rows(table: Table) -> list[list[str]]:
    """Every cell as text; numbers have so many digits, `None` and NaN are a dash."""
    return [[cell_text(cell, table.digits) for cell in row] for row in table.rows]


def cell_text(cell: Any, digits: int) -> str:
    """A cell as text."""
    if cell is None or (isinstance(cell, float | np.floating) and np.isnan(cell)):
        return "-"
    return f"{cell:.{digits}g}" if isinstance(cell, float | np.floating) else str(cell)


def is_number(cell: str) -> bool:
    """Whether a cell holds a number or nothing."""
    try:
        float(cell)
    except ValueError:
        return cell in ("", "-")
    return True


def relative(error: float | None, digits: int = 1) -> str | None:
    """A relative error such as 2.0e-5, or 0.012."""
    if error is None or np.isnan(error):
        return None
    if error >= 0.01 or error == 0:
        return f"{error:.{digits + 1}g}"
    mantissa, power = f"{error:.{digits}e}".split("e")
    return f"{mantissa}e{int(power)}"


def one_based(index: int | None) -> int | None:
    """The number (from 1) of an index (from 0); `None` where no single head or component is meant."""
    return None if index is None or index < 0 else index + 1
