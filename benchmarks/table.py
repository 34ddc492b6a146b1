"""What a part of the benchmark hands back, and how it is printed."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Row", "as_json", "print_rows", "say", "seconds"]


@dataclass(frozen=True)
class Row:
    """One measured number in words, the number itself, and the target it is held against."""

    what: str
    measured: str
    value: float
    target: str = ""
    met: bool | None = None


def print_rows(title: str, rows: Iterable[Row]) -> None:
    rows = list(rows)
    wide = max(len(row.what) for row in rows)
    long = max(len(row.measured) for row in rows)
    print(f"\n{title}\n{'-' * len(title)}")
    for row in rows:
        verdict = {None: "", True: "met", False: "NOT MET"}[row.met]
        print(f"  {row.what:<{wide}}  {row.measured:>{long}}  {row.target}  {verdict}".rstrip())
    print(flush=True)


def say(words: str) -> None:
    """A line on what is under way."""
    print(f"... {words}", flush=True)


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def seconds(value: float) -> str:
    """A duration in the unit in which it is easiest to read."""
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (1e4, 1.0, "s")):
        if value < limit:
            return f"{value * scale:.4g} {unit}"
    return f"{value:,.0f} s"
