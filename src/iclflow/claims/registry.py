"""What a claim is: a statement, where the paper makes it, a measured number and the bound it must keep.

A claim is a function that returns a number, small when the claim holds. Called with `sabotage=True`, it measures the
same with one deliberate mistake (another context length, a dropped term, a changed weight). Its number must then exceed
the bound, and a test checks that it does: a claim that cannot fail says nothing.

A claim is about any seeds. `offset` is added to every seed that the measurement uses: `seed=offset` and
`data_seed=offset` where `icl.train` is called, `shifted(TASK, offset)` for the seed of the task. A claim without seeds
takes `offset` and stays as it is.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from iclflow.config import Task
from iclflow.system.precision import double_precision

__all__ = ["REGISTRY", "Claim", "Outcome", "check", "claim", "shifted"]


@runtime_checkable
class Measure(Protocol):
    """The function that measures a claim."""

    def __call__(self, sabotage: bool = False, offset: int = 0) -> float: ...


@dataclass(frozen=True)
class Claim:
    """A statement with the measurement that tests it."""

    id: str
    statement: str
    source: str  # equation, figure or section of arXiv 2501.16265, or "beyond the paper"
    quantity: str  # what the number is
    bound: float | int
    seeds: str  # which seeds at offset 0, or "none"
    quick: bool  # takes a second or two and is part of the test suite
    measure: Measure


@dataclass(frozen=True)
class Outcome:
    """A claim with its measured number."""

    claim: Claim
    measured: float
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the number is within the bound; NaN is not."""
        return bool(self.measured <= self.claim.bound)

    def to_dict(self) -> dict[str, object]:
        """The outcome as it is written to JSON files."""
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
    id: str, statement: str, *, source: str, quantity: str, bound: float | int, seeds: str = "none", quick: bool = False
) -> Callable[[Measure], Measure]:
    """Register a function as the measurement of a claim."""

    def register(measure: Measure) -> Measure:
        if id in REGISTRY and REGISTRY[id].measure is not measure:
            raise ValueError(f"id: {id!r} is taken")
        REGISTRY[id] = Claim(id, statement, source, quantity, bound, seeds, quick, measure)
        return measure

    return register


def shifted(task: Task, offset: int) -> Task:
    """The task with `offset` added to the seed of its random basis and in-weight task."""
    return task.replace(task_seed=task.task_seed + offset)


def check(claims: list[Claim], offset: int = 0) -> Iterator[Outcome]:
    """Measure the claims one after another.

    Args:
        claims: what to measure.
        offset: is added to every seed of every claim.
    """
    for each in claims:
        begun = time.perf_counter()
        with double_precision():
            measured = float(each.measure(offset=offset))
        yield Outcome(each, measured, time.perf_counter() - begun)
