"""What an inference holds, and how it is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.inference.fitting import Fit, Numbers, Setting
from iclflow.inference.observing import Observed
from iclflow.inference.testing import Verdict
from iclflow.models import Separate, Weights
from iclflow.models.parts import empty
from iclflow.results.card import Card, Table, WithCard
from iclflow.theory.single_mode import Growth

__all__ = ["DropInference", "Inference", "aligned_weights", "in_words", "of_fit"]

CLEAN, NOISY = 4.5, 2.9  # standard errors in a 95 % interval, calibrated on curves of known origin
REST_SHARE = 0.999  # of the smallest eigenvalue: largest one that directions without a drop are given in `task`

Interval = Float[np.ndarray, "..."]  # lower and upper ends along the last axis


@dataclass(frozen=True, repr=False)
class Inference(WithCard):
    """What made a curve of separate key and query; eigenvalues fall, drops come in order of time."""

    name: str
    eigenvalues: Float[np.ndarray, " K"]
    context: float
    initial_sizes: Float[np.ndarray, " K"]  # of a balanced head along each direction that drops when this one did
    levels: Float[np.ndarray, " levels"]
    drop_times: Float[np.ndarray, " K"]  # t/tau at which half of each drop is done
    directions: Int[np.ndarray, " K"]  # which eigenvalue (from 0) each drop has learned
    rest: float  # the trace of directions that have not dropped
    intervals: dict[str, Interval]  # 95 %, by the names above
    fits: bool | None
    p_value: float
    why: str
    notes: tuple[str, ...]
    setting: Setting

    @cached_property
    def task(self) -> Task:
        """A task with these eigenvalues and this context; what has not dropped is spread over small directions."""
        left: list[float] = []
        if self.rest > 0 and len(self.eigenvalues):
            count = int(np.ceil(self.rest / (REST_SHARE * self.eigenvalues[-1])))
            left = [self.rest / count] * count
        context = int(np.clip(round(self.context), 1, 10**9))
        spectrum = tuple(float(value) for value in (*self.eigenvalues, *left))
        return Task(
            spectrum=spectrum, basis="identity", context=context, out_dim=self.setting.outputs,
            label_noise=self.setting.noise,
        )  # fmt: skip

    @cached_property
    def model(self) -> Separate:
        """A model with one head for every direction that has dropped."""
        return Separate(heads=max(len(self.eigenvalues), 1))

    @property
    def weights(self) -> Weights:
        """Initial weights, one balanced head along each direction, from which `model` makes these drops."""
        return aligned_weights(self.task, self.model, self.initial_sizes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything under the names above, ready for JSON; directions count from 1."""
        finite = lambda value: None if not np.isfinite(value) else float(value)
        return {
            "eigenvalues": self.eigenvalues.tolist(),
            "context": finite(self.context),
            "initial_sizes": self.initial_sizes.tolist(),
            "levels": self.levels.tolist(),
            "drop_times": self.drop_times.tolist(),
            "directions": (self.directions + 1).tolist(),
            "rest": self.rest,
            "intervals": {name: plain(array) for name, array in self.intervals.items()},
            "fits": self.fits,
            "p_value": self.p_value,
            "why": self.why,
            "notes": list(self.notes),
        }  # fmt: skip

    @property
    def in_words(self) -> str:
        """Eigenvalues and context in one line."""
        return in_words(self.eigenvalues, self.context)

    def card(self) -> Card:
        """The verdict, the context and one row a drop."""
        rows = [(d, between(span), size, time, level) for d, size, time, level, span in self.rows]
        names = ("eigenvalue", "95 %", "initial size", "drop at t/tau", "level after")
        said = [f"context {self.context:.4g} {between(self.intervals['context'])}"] if rows else []
        title = f"{self.name}: {self.why}" + (f" (p = {self.p_value:.2g})" if rows else "")
        return Card(title, [*said, Table(names, rows), *self.notes], self.to_dict())

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """One row a drop, in order of time."""
        spans = self.intervals.get("eigenvalues", np.empty((0, 2)))
        drops = zip(self.directions, self.drop_times, self.levels[1:], strict=True)
        return [(self.eigenvalues[d], self.initial_sizes[d], time, level, spans[d]) for d, time, level in drops]


@dataclass(frozen=True, repr=False)
class DropInference(WithCard):
    """What made the one drop of merged key-query."""

    name: str
    drive: float  # |C_1|, half the rate at which the drop begins
    minimum: float
    initial_size: float  # sqrt(alpha)
    drop_time: float
    intervals: dict[str, Interval]
    fits: bool | None
    p_value: float
    why: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything under the names above, ready for JSON."""
        finite = lambda value: None if not np.isfinite(value) else float(value)
        names = ("drive", "minimum", "initial_size", "drop_time", "p_value")
        spans = {name: [finite(end) for end in span] for name, span in self.intervals.items()}
        said = {"intervals": spans, "fits": self.fits, "why": self.why, "notes": list(self.notes)}
        return {**{name: finite(getattr(self, name)) for name in names}, **said}

    def card(self) -> Card:
        """The verdict and one row a number."""
        names = ("drive", "minimum", "initial_size")
        rows = [(name.replace("_", " "), getattr(self, name), between(self.intervals[name])) for name in names]
        return Card(f"{self.name}: {self.why}", [Table((), rows), *self.notes], self.to_dict())


def plain(array: Any) -> Any:
    """Lists of finite numbers, with `None` for what has no end."""
    if np.ndim(array) == 0:
        return None if not np.isfinite(array) else float(array)
    return [plain(part) for part in array]


def between(span: Interval) -> str:
    """An interval as text."""
    low, high = span
    return f"({low:.5g} to {high:.5g})" if np.isfinite(high) else f"(at least {low:.5g})"


def in_words(eigenvalues: Float[np.ndarray, " K"], context: float) -> str:
    """Eigenvalues and context in one line."""
    return f"eigenvalues {' '.join(f'{value:.3g}' for value in eigenvalues)} at context {context:.3g}"


def aligned_weights(task: Task, model: Separate, sizes: Float[np.ndarray, " K"]) -> Weights:
    """One balanced head of each size along each of the first directions of a task whose basis is the identity."""
    weights, dim, outputs = empty(model, task), task.dim, task.out_dim
    for d, size in enumerate(sizes):
        weights["key"][d, 0, d] = weights["query"][d, 0, d] = size
        weights["value"][d, dim:, dim:] = size * np.eye(outputs) / np.sqrt(outputs)
    return weights


def of_fit(
    seen: Observed, fit: Fit | None, verdict: Verdict, title: str, setting: Setting, notes: tuple[str, ...]
) -> Inference:
    """The inference from a fit to a curve."""
    if fit is None:
        none = np.empty(0)
        start = seen.smooth_loss[:1]
        nothing = {"eigenvalues": np.empty((0, 2)), "context": np.array([1.0, np.inf])}
        return Inference(
            title, none, np.nan, none, start, none, none.astype(int), 0.0, nothing, *verdict, notes, setting
        )
    numbers = fit.numbers
    falling, order = np.argsort(-numbers.eigenvalue, kind="stable"), np.argsort(numbers.time)
    quantities: dict[str, Callable[[Numbers], np.ndarray]] = {
        "eigenvalues": lambda n: np.log(n.eigenvalue[falling]),
        "initial_sizes": lambda n: np.log(n.sizes[falling]),
        "drop_times": lambda n: np.log(half_times(n)[order]),
        "levels": lambda n: levels(n, order),
        "context": lambda n: np.array([n.per_context]),
    }
    values = {name: of(numbers) for name, of in quantities.items()}
    spans = {name: interval(fit, of, seen.noisy) for name, of in quantities.items()}
    for name in ("eigenvalues", "initial_sizes", "drop_times"):
        values[name], spans[name] = np.exp(values[name]), np.exp(spans[name])
    low, high = spans["context"][0]
    spans["context"] = np.array([1 / high, 1 / low if low > 0 else np.inf])
    return Inference(
        title, values["eigenvalues"], 1 / numbers.per_context, values["initial_sizes"], values["levels"],
        values["drop_times"], np.argsort(falling)[order], max(numbers.rest, 0.0), spans, *verdict, notes, setting,
    )  # fmt: skip


def half_times(numbers: Numbers) -> Float[np.ndarray, " K"]:
    """When half of each drop is done."""
    return numbers.time + Growth(1.0, 1.0).midpoint_age / numbers.drops.pace


def levels(numbers: Numbers, order: Int[np.ndarray, " K"]) -> Float[np.ndarray, " levels"]:
    """The loss before the first drop and after each."""
    return numbers.trace - np.concatenate([[0.0], np.cumsum(numbers.drops.saved[order])])


def interval(fit: Fit, of: Callable[[Numbers], np.ndarray], noisy: bool) -> Interval:
    """The 95 % interval of quantities; where noise hides whether all directions have dropped, of either case."""
    ends = []
    for one in (fit, fit.doubt):
        if one is not None:
            center, width = of(one.numbers), (NOISY if noisy else CLEAN) * one.spread(of)
            ends.append((center - width, center + width))
    lows, highs = zip(*ends, strict=True)
    return np.stack([np.min(lows, axis=0), np.max(highs, axis=0)], axis=-1)
