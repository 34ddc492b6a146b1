"""How a run ended, judged from its losses alone.

A NaN check is not enough: a learning rate 1.2 to 1.5 times too large often ends finite and wrong, hopping around the
minimum. Full-batch gradient descent below the stable step never rises, so rises near the end give it away.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Verdict", "judge_descent"]

TAIL = 0.1  # share of the run that counts as its end
RISE = 1e-4  # of the zero loss: a hop in one step that is more than the small ripple of a flat minimum
REBOUND = 1e-2  # of the zero loss: how far above its lowest value a monotone run may end
RESTLESS = 0.1  # of the zero loss: how far other optimisers may swing in the tail
HIGH = 1.5  # times the larger of zero loss and early mean: where a noisy run has gone wrong
BLOWN_UP = 1e6  # times the larger of first and zero loss


class Verdict(NamedTuple):
    status: str  # ok, max_steps, unstable, diverged or failed
    why: str


Kind = Literal["monotone", "smooth", "noisy"]


def judge_descent(losses: Float[np.ndarray, " T"], zero_loss: float, kind: Kind) -> Verdict:
    """`monotone` is full-batch gradient descent, whose loss has no reason to rise; `noisy` losses are of batches."""
    if not np.isfinite(losses[0]):
        return Verdict("diverged", "the loss is not a finite number before the first step: see model, weights and data")
    scale = max(abs(zero_loss), np.finfo(float).tiny)
    bad = ~np.isfinite(losses) | (np.abs(losses) > BLOWN_UP * max(scale, abs(losses[0])))
    if bad.any():
        return Verdict("diverged", f"the loss blew up at step {int(np.argmax(bad))}")
    tail = losses[-max(3, int(TAIL * len(losses))) :]
    rise, rebound = float(np.diff(tail).max(initial=0.0)) / scale, float(losses[-1] - losses.min()) / scale
    if kind == "monotone" and rise > RISE:
        return Verdict("unstable", f"the loss still rises by up to {rise:.1e} of the zero loss in a step at the end")
    if kind == "monotone" and rebound > REBOUND:
        return Verdict("unstable", f"the loss ends {rebound:.1e} of the zero loss above its lowest value")
    if kind == "smooth" and np.ptp(tail) > RESTLESS * scale and tail.mean() > 0.5 * scale:
        return Verdict("unstable", "the loss ends high and restless")
    if kind != "monotone" and tail.mean() > HIGH * max(scale, float(losses[: len(tail)].mean())):
        return Verdict("unstable", "the loss ends above where it started")
    return Verdict("ok", "")
