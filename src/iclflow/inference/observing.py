r"""The points of a curve that a fit sees, and how well each of them is known.

Points stand evenly along the curve as it is drawn over $\ln t$, so that every drop and every plateau has its share,
whatever grid of times the curve came on. The loss of a minibatch scatters by a share $\rho$ of itself; such a curve is
averaged between neighbouring points, and a mean over $n$ losses is known to $\rho L/\sqrt n$.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.comparison.plateaus import Drops, find_drops, smoothed

__all__ = ["Observed", "observe"]

POINTS = 500
STEEPNESS = 10.0  # what the whole fall counts, in units of ln t
ROUNDING = 1e-6  # of the fall: a curve that rises by no more has no noise
EARLY = 1e-3  # of the last time: ln t counts from there

Times = Float[np.ndarray, " T"]


class Observed(NamedTuple):
    """What is fitted: means of the loss at some times, their standard errors, and the falling fit to the whole."""

    time: Float[np.ndarray, " n"]
    loss: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]
    smooth_time: Float[np.ndarray, " B"]
    smooth_loss: Float[np.ndarray, " B"]
    drops: Drops | None  # of a noisy curve

    @property
    def fall(self) -> float:
        """The loss at the start minus the loss at the end."""
        return float(self.smooth_loss[0] - self.smooth_loss[-1])

    @property
    def noisy(self) -> bool:
        """Whether the curve scatters at all."""
        return self.drops is not None


def observe(time: Times, loss: Times) -> Observed:
    """The points of a curve that a fit sees."""
    smooth_time, smooth_loss, _ = smoothed(time, loss)
    span = max(float(smooth_loss[0] - smooth_loss[-1]), 1e-300)
    clock = np.log(time - time[0] + EARLY * (time[-1] - time[0]))
    height = np.interp(time, smooth_time, smooth_loss)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(clock), STEEPNESS * np.diff(height) / span))])
    if np.diff(loss).max() <= ROUNDING * span:
        chosen = np.unique(np.searchsorted(along, np.linspace(0, along[-1], POINTS)).clip(max=len(time) - 1))
        return Observed(time[chosen], loss[chosen], np.zeros(len(chosen)), smooth_time, smooth_loss, None)
    scatter = np.sqrt(np.mean((np.diff(loss) / (loss[1:] + loss[:-1])) ** 2) * 2)
    block = np.searchsorted(np.linspace(0, along[-1], POINTS), along, side="right")
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    count = np.diff(starts, append=len(time))
    mean = lambda values: np.add.reduceat(values, starts) / count
    error = scatter * np.abs(mean(height)) / np.sqrt(count)
    return Observed(mean(time), mean(loss), error, smooth_time, smooth_loss, find_drops(time, loss))
