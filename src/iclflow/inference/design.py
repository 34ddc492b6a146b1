r"""The verb: from wanted levels, and drop times, to a task and initial weights.

Levels give $T_d^2$, and these the eigenvalues for any $1/N$ and $\operatorname{tr}\Lambda + \sigma^2$
[`level-inverse`].
$\sum_d\lambda_d = L(0)$ decides: it holds without label noise at one $N_*$, which need not be whole, and at every whole
$N \ge N_*$ with the label noise $\sigma^2 \ge 0$ that it takes. No task has a shorter context.

A head that begins balanced along one direction follows the scalar equation alone, so a wanted half time $t_d$ gives its
size: the value of the solution whose age at $t = 0$ is that of the midpoint minus $t_d$ [`design-times`].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.inference.drop import eigenvalue_of
from iclflow.inference.result import aligned_weights
from iclflow.models import Model, Separate, Weights
from iclflow.theory.single_mode import Growth

__all__ = ["Design", "design"]

WHOLE = 1e-6  # how near to a whole number a context length must come
LONGEST = 1e9
DOUBLINGS, HALVINGS = 200, 200
CLOSEST = 1e-6  # relative difference of eigenvalues, below which directions are one
Array = Float[np.ndarray, " m"]


@dataclass(frozen=True, repr=False)
class Design:
    """A task, a model and, with wanted times, initial weights whose staircase has the wanted levels and times."""

    task: Task
    model: Separate
    weights: Weights | None
    levels: Float[np.ndarray, " levels"]
    drop_times: Array | None

    def to_dict(self) -> dict[str, Any]:
        """Return task, model and sizes, ready for JSON."""
        sizes = None if self.weights is None else self.weights["key"][:, 0].max(axis=-1).tolist()
        return {
            "eigenvalues": list(self.task.spectrum),
            "context": self.task.context,
            "label_noise": self.task.label_noise,
            "heads": self.model.heads,
            "initial_sizes": sizes,
            "levels": self.levels.tolist(),
            "drop_times": None if self.drop_times is None else self.drop_times.tolist(),
        }

    def __repr__(self) -> str:
        found = self.to_dict()
        numbers = lambda values: " ".join(f"{value:.10g}" for value in values)
        noise = f", label noise {found['label_noise']:.10g}" if found["label_noise"] else ""
        lines = [f"eigenvalues {numbers(found['eigenvalues'])}, context {found['context']}{noise}"]
        if self.weights is not None:
            lines.append(f"  initial sizes of balanced heads along them: {numbers(found['initial_sizes'])}")
        return "\n".join(lines)


def design(levels: Any, *, context: int | None = None, drop_times: Any = None, model: Model | None = None) -> Design:
    """Find a task, and initial weights, whose staircase has the wanted levels and drop times.

    Args:
        levels: the losses before the first drop and after each, falling.
        context: the context length; by default the shortest that has these levels.
        drop_times: t/tau at which half of each drop is done, rising.
        model: separate key and query of rank one, with a head for every drop; by default as many heads as drops.

    Returns:
        A `Design` with `task`, `model` and, with `drop_times`, `weights` for `train(weights=..)` and `predict`.

    Raises:
        BadInput: if no task has these levels, with the nearest that exists.

    >>> import iclflow as icl
    >>> icl.design([1, .640625, .377358, .209752, .136]).task.context
    31
    """
    wanted = read(levels, "levels")
    if len(wanted) < 2 or (np.diff(wanted) >= 0).any() or wanted[-1] <= 0:
        raise BadInput(f"levels: {shown(wanted)} must be at least two positive losses, each lower than the one before")
    saved = -np.diff(wanted)
    times = None if drop_times is None else read(drop_times, "drop_times")
    if times is None and (np.diff(saved) >= 0).any():
        nearest = wanted[0] - np.concatenate([[0.0], np.cumsum(np.sort(saved)[::-1])])
        raise BadInput(
            f"levels: {shown(wanted)} must fall by less at every drop, because small random weights learn large"
            f" eigenvalues first; nearest are {shown(nearest)}, or give drop_times, which choose the weights"
        )
    if times is not None and (len(times) != len(saved) or times[0] <= 0 or (np.diff(times) <= 0).any()):
        raise BadInput(
            f"drop_times: {shown(times)} must be {len(saved)} positive times, each later than the one before"
        )
    chosen = model_for(model, len(saved))
    length, noise = context_for(saved, float(wanted[0]), context)
    power = float(wanted[0]) + noise
    values = eigenvalue_of(saved, 1 / length, power)
    if (np.diff(np.sort(values)) <= CLOSEST * values.max()).any():
        raise BadInput(
            f"levels: {shown(wanted)} must fall by different amounts, because equal eigenvalues have no order"
        )
    order = np.argsort(-values)
    task = Task(spectrum=tuple(values[order].tolist()), basis="identity", context=length, label_noise=noise)
    weights = None if times is None else aligned_weights(task, chosen, sizes(values, saved, times)[order])
    return Design(task, chosen, weights, wanted, times)


def read(values: Any, name: str) -> Array:
    """Numbers that a user gave."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise BadInput(f"{name}: {values!r} must be numbers") from None
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise BadInput(f"{name}: {values!r} must be a list of finite numbers")
    return array


def shown(values: Array) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def model_for(model: Model | None, count: int) -> Separate:
    """The model, if it learns one direction after another with a head for each."""
    if model is None:
        return Separate(heads=count)
    if not isinstance(model, Separate) or model.softmax or model.layers > 1 or model.rank > 1:
        raise BadInput(f"model: {model.describe()} must be linear separate key and query of rank one in one layer")
    if model.heads < count:
        raise BadInput(f"model: has {model.heads} heads, needs {count}, one for every drop")
    return model


def context_for(saved: Array, trace: float, context: int | None) -> tuple[int, float]:
    """A whole context length and the label noise with which the eigenvalues add up to the trace."""
    sums = lambda per_context, power: float(eigenvalue_of(saved, per_context, power).sum()) - trace
    shortest = 1 / root(lambda per_context: sums(per_context, trace), 1 / LONGEST)
    nearest = max(round(shortest), 1)
    exact = abs(shortest - nearest) <= WHOLE * nearest
    whole = nearest if exact else int(np.ceil(shortest))
    length = whole if context is None else context
    if length < whole:
        per = 1 / length
        lowest = trace - float(saved.sum()) * root(
            lambda s: float(eigenvalue_of(s * saved, per, trace).sum()) - trace, 1e-9
        )
        raise BadInput(
            f"context: {context} must be at least {whole} for these levels; with {context} no task falls so far, the"
            f" nearest one in proportion ends at {lowest:.6g}"
        )
    if exact and length == nearest:
        return length, 0.0
    power = root(lambda power: sums(1 / length, power), trace)
    return length, max(power - trace, 0.0)


def root(rising: Callable[[float], float], start: float) -> float:
    """Where a rising function of a positive number passes zero, by bisection from a start that is too small."""
    low, high = start, 2 * start
    for _ in range(DOUBLINGS):
        if rising(high) > 0:
            break
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def sizes(values: Array, saved: Array, times: Array) -> Array:
    """Sizes of balanced heads whose drops are half done at the wanted times."""
    grown = [Growth(value**2, value**4 / height) for value, height in zip(values, saved, strict=True)]
    return np.array([float(g.value(g.midpoint_age - t)) for g, t in zip(grown, times, strict=True)])
