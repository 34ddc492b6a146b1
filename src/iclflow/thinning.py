"""Long curves in few points, where both a linear and a logarithmic time axis need them."""

import numpy as np
from jaxtyping import Float, Int

__all__ = ["kept_places"]


def kept_places(times: Float[np.ndarray, " T"], losses: Float[np.ndarray, " T"], length: int) -> Int[np.ndarray, " L"]:
    """Which values to keep of a curve that is too long: both ends, and in between evenly along its path.

    The path counts the fall of the loss, time, and the logarithm of time alike, so that between two neighbours none of
    the three moves by more than a few shares of `3 / length`.
    """
    if len(times) <= length:
        return np.arange(len(times))
    total = lambda steps: steps / max(steps.sum(), np.finfo(float).tiny)
    fall = np.abs(np.diff(np.where(np.isfinite(losses), losses, 0.0)))
    start = times[times > times[0]][0] - times[0]
    late = np.log(np.maximum(times - times[0], start))
    path = np.concatenate([[0.0], np.cumsum(total(fall) + total(np.diff(times)) + total(np.diff(late)))])
    places = np.searchsorted(path, np.linspace(0.0, path[-1], length))
    places[-1] = len(times) - 1
    return np.unique(places)
