r"""Steps of finite size, with momentum $\beta$: $u_n = \beta u_{n-1} + h F(W_n)$, $W_{n+1} = (1-\delta) W_n + u_n$.

$h$ is the step on the clock $t/\tau$ without momentum, $F = -\tfrac12\partial L/\partial W$, and $\delta$ the share of
the weights that decoupled decay takes in a step. After $n$ steps the clock shows $t/\tau = nh/(1-\beta)$, on which the
decay is $\gamma = \delta(1-\beta)/h$. On this clock training lags behind the flow.

**Separate key and query** [`momentum-lag`]. A drop that the flow makes at the time $T$ is that of a single mode,
$F = gv^2 - mv^5$, from the weight $v_0 \approx 1/gT$. For steps that are neither tiny nor large the map of this mode is
late by $\frac{1+\beta}{1-\beta}\ln(v_{half}/v_0)$ steps.

**Merged attention** [`momentum-merged`] grows by $e^r$ in a step, $(e^r - 1 + \delta)(1 - \beta e^{-r}) = h\sqrt
O|C_1|$, and its whole drop is the map of one pair $(v, U)$.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.collinear import flow
from iclflow.theory.merged import Quadratic, modes

__all__ = ["SteppedDrop", "merged_growth", "merged_steps", "mode_lag"]

DIVERGED = 1e3  # times the loss of zero weights
MOST_STEPS = 300_000  # that are iterated; beyond them the lag is a vanishing share of the time
MIDDLE = 1 - np.sqrt(0.5)  # share of the strength at which half of the loss of a direction has gone


def checked_step(step: float, beta: float) -> None:
    if not 0 < step < np.inf:
        raise BadInput(f"step: {step} must be a positive number")
    if not 0 <= beta < 1:
        raise BadInput(f"beta: {beta} must be at least 0 and below 1")


def mode_lag(drive: float, curvature: float, time: float, step: float, beta: float = 0.0) -> float:
    r"""How much later than at `time`, where the flow makes it, a drop of separate attention comes [`momentum-lag`]."""
    checked_step(step, beta)
    grown = np.cbrt(MIDDLE * drive / curvature) * drive * time  # v_half/v_0
    return step * (1 + beta) / (1 - beta) ** 2 * float(np.log(grown))


def merged_growth(drive: float, beta: float = 0.0, shrink: float = 0.0) -> float:
    r"""The logarithm $r$ of the growth of merged attention in one step, exactly [`momentum-merged`].

    >>> round(merged_growth(0.01), 6), round(merged_growth(0.01, 0.9), 6)
    (0.00995, 0.062654)
    """
    # a quadratic in e^r:  x^2 - (1 - shrink + beta + drive) x + beta (1 - shrink) = 0
    half = (1 - shrink + beta + drive) / 2
    return float(np.log(half + np.sqrt(half**2 - beta * (1 - shrink))))


class SteppedDrop(NamedTuple):
    """The drop of merged attention by steps: times on its clock, the loss there, and when half of it is done."""

    time: Float[np.ndarray, " n"]
    loss: Float[np.ndarray, " n"]
    half_time: float
    diverged: bool = False  # the steps are too large for where it would rest


def merged_steps(
    L: Quadratic, alpha: float, lowest: float, step: float, beta: float = 0.0, shrink: float = 0.0
) -> SteppedDrop:
    r"""The drop of merged attention by finite steps, from the growing part of its weights [`momentum-merged`]."""
    checked_step(step, beta)
    m, pace = modes(L), step / (1 - beta)
    rate = merged_growth(step * float(np.linalg.norm(m.drive)), beta, shrink)
    count = (5 - np.log(max(np.sqrt(alpha), 1e-300))) / rate + 30 / (1 - beta) if rate > 0 else np.inf
    if not count < MOST_STEPS or lowest >= L.base:
        return SteppedDrop(np.zeros(0), np.zeros(0), np.inf)
    weights = [np.sqrt(alpha) * part for part in (np.ones(1), m.drive / np.linalg.norm(m.drive))]
    moved, losses = [np.zeros_like(part) for part in weights], [float(m.product_loss(np.outer(*weights)))]
    while len(losses) < MOST_STEPS:
        pushes = flow(*weights, m.drive - m.curve(np.outer(*weights)))
        moved = [beta * last + step * push for last, push in zip(moved, pushes, strict=True)]
        weights = [(1 - shrink) * part + new for part, new in zip(weights, moved, strict=True)]
        losses.append(float(m.product_loss(np.outer(*weights))))
        if not losses[-1] < DIVERGED * L.base:
            return SteppedDrop(np.zeros(0), np.zeros(0), np.inf, diverged=True)
        if abs(losses[-1] - lowest) < 1e-6 * (L.base - lowest) and len(losses) > count / 2:
            break
    loss, middle = np.array(losses), (L.base + lowest) / 2
    i = int(np.argmax(loss <= middle))
    half = (i - (middle - loss[i]) / (loss[i - 1] - loss[i])) if i else np.inf
    return SteppedDrop(pace * np.arange(len(loss)), loss, pace * half)
