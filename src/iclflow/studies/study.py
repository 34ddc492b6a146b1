"""What a study is: something measured, against a bound or beside a picture.

A claim is a function that returns a number, small when its statement holds. The docstring is the statement, and says
behind "Measured:" what the number is. Called with `sabotage=True`, it measures the same with one deliberate mistake
(another context length, a dropped term, a changed weight). Its number must then exceed the bound, and a test checks
that it does: a claim that cannot fail says nothing. A claim is about any seeds. `offset` is added to every seed that it
uses: `seed=offset` and `data_seed=offset` where `icl.train` is called, `shifted(TASK, offset)` for the seed of the
task. A claim without seeds takes `offset` and stays as it is.

A figure is a function that returns a `Result`, drawn in the style of all figures. The first line of its docstring is
the title, the rest says what to see.
"""

import inspect
import io
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from iclflow.experiment import Experiment
from iclflow.figures.style import styled
from iclflow.models import Weights
from iclflow.system.precision import double_precision

__all__ = ["ELSEWHERE", "STUDIES", "Measured", "Result", "Study", "check", "claim", "figure"]

ELSEWHERE = "beyond the paper"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Measured:
    """A number that should be small: how far theory is from simulation, or what a claim keeps below its bound."""

    what: str
    number: float
    bound: float | int | None = None

    @property
    def holds(self) -> bool:
        """Whether the number is within its bound, if it has one; NaN is not."""
        return self.bound is None or bool(self.number <= self.bound)

    def __str__(self) -> str:
        return f"{self.what}: {self.number:.2g}"


@dataclass(frozen=True)
class Result:
    """What a study found, with everything that is written beside it."""

    picture: Figure | None
    tables: dict[str, pd.DataFrame]  # what is drawn, one table per file
    measured: tuple[Measured, ...]  # the most important one first
    runs: dict[str, Experiment]  # every run, by its name in the picture
    weights: dict[str, Weights] = field(default_factory=dict)  # initial weights that the study itself sets

    def _repr_png_(self) -> bytes | None:
        """The picture, for notebooks."""
        if self.picture is None:
            return None
        image = io.BytesIO()
        self.picture.savefig(image, format="png")
        return image.getvalue()


@dataclass(frozen=True)
class Study:
    """A claim, which has a bound, or a figure."""

    name: str
    title: str  # of a claim its statement
    text: str  # what to see in a figure, what the number of a claim is
    source: str  # equation, figure or section of arXiv 2501.16265, or "beyond the paper"
    function: Callable[..., Any]
    bound: float | int | None = None
    seeds: str = "none"  # which seeds a claim uses at offset 0
    quick: bool = False  # a claim that takes a second or two and is part of the test suite

    def measure(self, *, fast: bool = False, sabotage: bool = False, offset: int = 0) -> Result:
        """Measure: a figure in full or `fast`, a claim at any `offset` of its seeds, as it is or with a mistake."""
        if self.bound is None:
            with styled():
                return self.function(fast)
        with double_precision():
            number = float(self.function(sabotage=sabotage, offset=offset))
        return Result(None, {}, (Measured(self.text, number, self.bound),), {})


STUDIES: dict[str, Study] = {}


def claim(
    *, bound: float | int, source: str = ELSEWHERE, seeds: str = "none", quick: bool = False
) -> Callable[[Function], Function]:
    """Register a function as a claim under its own name."""
    return partial(register, "\nMeasured: ", source=source, bound=bound, seeds=seeds, quick=quick)


def figure(*, source: str = ELSEWHERE) -> Callable[[Function], Function]:
    """Register a function as a figure under its own name."""
    return partial(register, ".\n", source=source)


def register(mark: str, function: Function, **settings: Any) -> Function:
    """Register a function whose docstring has title and text before and behind a mark."""
    title, _, text = (inspect.getdoc(function) or "").partition(mark)
    name = function.__name__.replace("_", "-")
    if name in STUDIES:
        raise ValueError(f"name: {name!r} is taken")
    STUDIES[name] = Study(name, " ".join(title.split()), " ".join(text.split()), function=function, **settings)
    return function


def check(claims: Iterable[Study], offset: int = 0) -> Iterator[dict[str, Any]]:
    """Measure claims one after another, with `offset` added to every seed; outcomes as JSON files hold them."""
    for study in claims:
        begun = time.perf_counter()
        [measured] = study.measure(offset=offset).measured
        yield {
            "id": study.name,
            "statement": study.title,
            "source": study.source,
            "quantity": measured.what,
            "measured": measured.number,
            "bound": measured.bound,
            "seeds": study.seeds,
            "seconds": round(time.perf_counter() - begun, 2),
            "status": "pass" if measured.holds else "fail",
        }
