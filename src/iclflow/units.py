r"""One clock and one scale for weights: how the normalisations of attention turn into each other.

With a scale $\nu$ in front of the attention sum, $\hat y = \nu\, f(W)$ and $f$ homogeneous of degree $p$ in
the weights (2 for merged, 3 for separate), the network depends on $\nu^{1/p} W$ alone, so [`normalisation`]

$$W_{to} = (\nu/\nu_{to})^{1/p}\, W,\qquad \eta_{to} = (\nu/\nu_{to})^{2/p}\, \eta,$$

step by step and not only in the limit of a small learning rate $\eta$. The scale is $\nu = 1/N$ (`context`),
$1/(N+1)$ (`tokens`) or $1$ (`none`). Gradient descent on the mean over $O$ outputs runs at [`clock`]

$$t/\tau = 2\,\eta\,\text{step}\;N^{2/p}/O \quad(\text{none}),\qquad
  t/\tau = 2\,\eta\,\text{step}/O \quad(\text{otherwise}),$$

because the flow of the paper, $\tau \dot W = -\tfrac12\, \partial L/\partial W$ (Eq. 5), has a half where
descent has none.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task, Training
from iclflow.errors import BadInput
from iclflow.models import Model

__all__ = [
    "Clock",
    "Converted",
    "clock_of",
    "clock_rate",
    "convert",
    "descent_lag",
    "to_paper_weights",
    "weight_factor",
]

NORMALISERS = ("context", "tokens", "none")


class Converted(NamedTuple):
    """The same training in another normalisation; what was not given stays `None`."""

    lr: float | None
    init: float | None
    time: float | None
    weight_decay: float | None = None


def clock_rate(task: Task, model: Model) -> float:
    r"""$t/\tau$ that passes in one step of unit learning rate [`clock`].

    >>> from iclflow import Merged, Task
    >>> clock_rate(Task(), Merged()), clock_rate(Task(normalize="none"), Merged())
    (2.0, 62.0)
    """
    return 2 * native_factor(task, model, 2) / task.out_dim


class Clock(NamedTuple):
    """How long a step takes: in t/tau for descent and momentum; other rules share no clock and count lr x step."""

    rate: float  # t/tau that passes in one step of unit learning rate, without momentum
    beta: float  # momentum, which makes a step 1/(1 - beta) longer
    shared: bool  # whether the rule is on the clock of the flow

    def flow_time(self, lr: float) -> float:
        """t/tau that one step takes the flow."""
        return self.rate * lr / (1 - self.beta)

    def time(self, lr: float) -> float:
        """How far one step moves the coordinate `time` of a run."""
        return self.flow_time(lr) if self.shared else lr


def clock_of(task: Task, model: Model, training: Training) -> Clock:
    """The clock of the rule of a training [`clock`].

    >>> from iclflow import Merged, Task, Training
    >>> clock_of(Task(), Merged(), Training(optimizer="momentum", beta=0.75)).time(0.25)
    2.0
    """
    rule = training.optimizer
    beta = training.beta if rule == "momentum" else 0.0
    return Clock(clock_rate(task, model), beta, rule in ("sgd", "momentum"))


def to_paper_weights(
    task: Task, model: Model, weights: Float[np.ndarray, "..."] | float
) -> Float[np.ndarray, "..."] | float:
    r"""Weights in the units of `theory.landscape`: times $N^{1/p}$ for `none`, else as they are.

    With `tokens` and with the prefix loss the normaliser is part of the landscape ($\kappa$), not of the
    weights.
    """
    return native_factor(task, model, 1) * weights


def native_factor(task: Task, model: Model, power: int) -> float:
    if task.normalize != "none" or model.degree is None:
        return 1.0
    return float(task.context) ** (power / model.degree)


def weight_factor(task: Task, model: Model, to: str) -> float:
    r"""$(\nu/\nu_{to})^{1/p}$: weights times this are the same network under `to` [`normalisation`]."""
    if to not in NORMALISERS:
        raise BadInput(f"to: {to!r} must be one of {', '.join(NORMALISERS)}")
    start = task.normalize or "context"
    if model.degree is None:
        raise BadInput(f"to: {to!r} has no meaning with {model.describe()}, whose weights do not absorb a scale")
    if start == to:
        return 1.0
    if task.prefix_loss:
        raise BadInput(f"to: {to!r} must be {start!r} with prefix_loss, whose lengths all scale differently")
    scale = {"context": 1 / task.context, "tokens": 1 / (task.context + 1), "none": 1.0}
    return (scale[start] / scale[to]) ** (1 / model.degree)


def convert(
    task: Task,
    model: Model,
    to: str,
    *,
    lr: float | None = None,
    init: float | None = None,
    time: float | None = None,
    weight_decay: float | None = None,
) -> Converted:
    """Learning rate, initial scale and time of the same training in the normalisation `to` [`normalisation`].

    Step `k` of one run is step `k` of the other. `time` is each normalisation's own clock: it agrees between
    `context` and `none`, whose clock counts in the paper's units already, and differs for `tokens`.

    >>> from iclflow import Merged, Task
    >>> convert(Task(context=4, normalize="none"), Merged(), "context", lr=0.1, init=1e-3)
    Converted(lr=0.4, init=0.002, time=None, weight_decay=None)
    """
    factor = weight_factor(task, model, to)
    clocks = clock_rate(task.replace(normalize=to), model) / clock_rate(task, model)
    return Converted(
        lr=None if lr is None else lr * factor**2,
        init=None if init is None else init * factor,
        time=None if time is None else time * factor**2 * clocks,
        weight_decay=None if weight_decay is None else weight_decay / factor**2,
    )


def descent_lag(model: Model, initial: float, half: float) -> float:
    r"""Steps by which gradient descent trails the flow, whatever the learning rate [`descent-lag`].

    A weight that grows from `initial` to `half`, its size halfway down the drop, obeys $\dot w \propto w$
    (merged) or $\propto w^2$ (separate). Euler's error along such growth adds up to $\tfrac12
    \ln(w_{half}/w_0)$ or $\ln(w_{half}/w_0)$ steps.
    """
    if not 0 < initial <= half:
        raise BadInput(f"initial: {initial} must be positive and at most half = {half}")
    if model.degree is None:
        raise BadInput(f"model: {model.describe()} has no law of growth that its lag could be read from")
    return float((model.degree - 1) / 2 * np.log(half / initial))
