"""Which values of a long series to keep, and where to look between those that are kept."""

import numpy as np
from jaxtyping import Float, Int

__all__ = ["even_places", "kept_places", "log_places", "subdivided"]


def even_places(length: int, most: int) -> Int[np.ndarray, " L"]:
    """At most `most` of the indices below `length`, both ends included, evenly spaced."""
    return np.unique(np.linspace(0, length - 1, min(most, length)).round().astype(int))


def log_places(length: int, most: int) -> Int[np.ndarray, " L"]:
    """At most `most` of the indices below `length`, both ends included, denser at the beginning."""
    offsets = np.concatenate([[0.0], np.geomspace(max(length - 1, 1), 1, most - 1)])
    places = np.unique(np.round(offsets).astype(int))
    return places[places < length]


def subdivided(parts: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Intervals in so many equal parts each: the interval of every part, and the share of it at which the part ends."""
    interval = np.repeat(np.arange(len(parts)), parts)
    return interval, (np.arange(len(interval)) - np.repeat(np.cumsum(parts) - parts, parts) + 1) / parts[interval]


def kept_places(times: Float[np.ndarray, " T"], losses: Float[np.ndarray, " T"], length: int) -> Int[np.ndarray, " L"]:
    """The indices to keep of a curve that is too long: both ends, and in between evenly along its path.

    The path weighs the change of the loss, time and the logarithm of time equally, so that between two neighbours none
    of the three changes by much more than `3 / length` of its total change.
    """
    if len(times) <= length:
        return np.arange(len(times))
    share = lambda steps: steps / max(steps.sum(), np.finfo(float).tiny)
    fall = np.abs(np.diff(np.where(np.isfinite(losses), losses, 0.0)))
    start = times[times > times[0]][0] - times[0]
    late = np.log(np.maximum(times - times[0], start))
    path = np.concatenate([[0.0], np.cumsum(share(fall) + share(np.diff(times)) + share(np.diff(late)))])
    places = np.searchsorted(path, np.linspace(0.0, path[-1], length))
    places[-1] = len(times) - 1
    return np.unique(places)
