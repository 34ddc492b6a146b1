"""What a claim is: a statement, where the paper makes it, a measured number and the bound it must keep.

A claim is a function that returns a number, small when the claim holds. Called with `sabotage=True` it does the same
with one thing wrong on purpose (another context length, a dropped term, a changed weight); its number must then break
the bound, and a test sees to it: a claim that cannot fail says nothing.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from iclflow.system.precision import double_precision

__all__ = ["REGISTRY", "Claim", "Outcome", "check", "claim"]


class Measure(Protocol):
    def __call__(self, sabotage: bool = False) -> float: ...


@dataclass(frozen=True)
class Claim:
    id: str
    statement: str
    source: str  # equation, figure or section of arXiv 2501.16265, or "beyond the paper"
    quantity: str  # what the number is
    bound: float
    seeds: str  # which seeds, or "none"
    quick: bool  # a second or two: part of the test suite
    measure: Measure


@dataclass(frozen=True)
class Outcome:
    claim: Claim
    measured: float
    seconds: float

    @property
    def holds(self) -> bool:
        return bool(self.measured <= self.claim.bound)  # NaN never holds

    def to_dict(self) -> dict[str, object]:
        c = self.claim
        return {
            "id": c.id,
            "statement": c.statement,
            "source": c.source,
            "quantity": c.quantity,
            "measured": self.measured,
            "bound": c.bound,
            "seeds": c.seeds,
            "seconds": round(self.seconds, 2),
            "status": "pass" if self.holds else "fail",
        }


REGISTRY: dict[str, Claim] = {}


def claim(
    id: str, statement: str, *, source: str, quantity: str, bound: float, seeds: str = "none", quick: bool = False
) -> Callable[[Measure], Measure]:
    """Register a function as the measurement of a claim."""

    def register(measure: Measure) -> Measure:
        if id in REGISTRY and REGISTRY[id].measure is not measure:
            raise ValueError(f"id: {id!r} is taken")
        REGISTRY[id] = Claim(id, statement, source, quantity, bound, seeds, quick, measure)
        return measure

    return register


def check(claims: list[Claim]) -> Iterator[Outcome]:
    """Measure claim after claim."""
    for one in claims:
        begun = time.perf_counter()
        with double_precision():
            measured = float(one.measure())
        yield Outcome(one, measured, time.perf_counter() - begun)
