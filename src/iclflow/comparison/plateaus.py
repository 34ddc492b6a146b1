r"""Plateaus and drops of any falling curve, from this program or from elsewhere, clean or noisy.

Read the curve sideways: $w(\ell)$ is the time spent while the loss falls through a thin band at level $\ell$,
that is $\delta / |dL/dt|$. A **plateau** is a level at which $w$ has a local maximum; a **drop** is a fall
between two plateaus on which the loss, at its fastest, moves at least `CONTRAST` times faster than on either
of them and lies above the chord between them by `BULGE` of the fall. So a drop needs a flat stretch before it
and after it, in linear time.

Any convex curve has no drop: an exponential decay, a sum of exponentials however far apart their time
constants, a power law. Their speed only falls, $w$ only rises. The definition does not use the time grid: it
may be even, logarithmic or anything else.

Noise is removed by the best falling fit (isotonic regression), which leaves a curve that falls already
untouched. Where the noise of single points would hide a drop of `WANTED` of the fall, as with minibatches, they are
averaged over windows first, just long enough for such a drop to stand out by `NOISE_SIZES`. The thickness of the band
and the smallest drop that counts grow with the noise that is left.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Num

from iclflow.errors import BadInput

__all__ = ["Drops", "Plateaus", "before_blow_up", "count_main_drops", "find_drops", "find_plateaus", "smoothed"]

BLOWN = 10.0  # times the initial or the zero loss: beyond it a loss has blown up
CONTRAST = 5.0  # a drop is this much faster than the plateaus beside it
BULGE = 0.05  # and the curve rises above its chord between them by this fraction of the drop
SMALLEST = 0.005  # smallest drop, as a fraction of the whole fall
FLAT = 0.005  # a curve that falls by less than this fraction of its start never left its plateau
NOISE_SIZES = 6.0  # smallest drop in units of the noise
WIDTH = 5.0  # thickness of the band in units of the noise
WANTED = 0.05  # the drop that noise should not hide, as a fraction of the whole fall
FEWEST = 100  # windows that are left at least
WORTHWHILE = 4  # shorter windows change nothing
STRETCHES, SHORTEST = 10, 200  # parts of a curve whose noise is estimated one by one, and the points of each
POINTS = 20_000  # longer curves are averaged down to about this many
SMOOTHING = 0.1  # in ln t, for curves whose plateaus are not flat
MAIN = 0.02  # smallest speed of a main drop, as a fraction of the initial loss per unit of ln t


Unchecked = Num[np.ndarray, "..."]  # `falling_fit` checks that time and loss are one-dimensional and of one shape


class Drops(NamedTuple):
    """`times` at which half of each drop is done, and `sizes`, the loss between the plateaus on its sides."""

    times: Float[np.ndarray, " K"]
    sizes: Float[np.ndarray, " K"]


class Plateaus(NamedTuple):
    """Each lasts from nine tenths of the drop before it to one tenth of the drop after it."""

    levels: Float[np.ndarray, " K"]
    starts: Float[np.ndarray, " K"]
    lengths: Float[np.ndarray, " K"]


class Falling(NamedTuple):
    """The best falling fit to a curve and the noise it removed."""

    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]
    noise: float
    window: int  # how many points were averaged

    def crossing(self, levels: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
        """The time at which the loss first reaches each level; levels out of range give an end of the curve."""
        after = np.searchsorted(-self.loss, -np.asarray(levels, dtype=float), side="left")
        i = np.clip(after, 1, len(self.loss) - 1)
        gap = np.maximum(self.loss[i - 1] - self.loss[i], np.finfo(float).tiny)
        part = np.clip((self.loss[i - 1] - levels) / gap, 0.0, 1.0)
        return self.time[i - 1] + part * (self.time[i] - self.time[i - 1])


class Rest(NamedTuple):
    """A level at which the curve dwells, and when it enters and leaves the band around it."""

    entered: float
    left: float
    level: float


def find_drops(time: Unchecked, loss: Unchecked) -> Drops:
    """Find the times at which the drops of a loss curve are half done, and their sizes.

    >>> t = np.linspace(0, 100, 500)
    >>> find_drops(t, 2 - np.tanh(t - 30) - np.tanh(t - 60)).times.round(1)
    array([30., 60.])
    >>> find_drops(t, np.exp(-t) + np.exp(-t / 20)).times
    array([], dtype=float64)
    """
    curve = falling_fit(time, loss)
    levels = plateau_levels(curve)
    return Drops(curve.crossing((levels[:-1] + levels[1:]) / 2), levels[:-1] - levels[1:])


def find_plateaus(time: Unchecked, loss: Unchecked) -> Plateaus:
    """Find the levels at which a loss curve rests, with the start and the length of each plateau.

    There is one plateau more than there are drops, and none on a convex curve. A run that has not left its first
    level, or is just leaving it, has that one plateau.
    """
    curve = falling_fit(time, loss)
    levels = plateau_levels(curve)
    sizes = levels[:-1] - levels[1:]
    starts, ends = np.full(len(levels), curve.time[0]), np.full(len(levels), curve.time[-1])
    starts[1:] = curve.crossing(levels[1:] + 0.1 * sizes)
    ends[:-1] = curve.crossing(levels[:-1] - 0.1 * sizes)
    if len(levels) == 1:
        ends[0] = curve.crossing(levels - 0.1 * (levels - curve.loss[-1]))[0] if not flat(curve) else ends[0]
    return Plateaus(levels, starts, ends - starts)


def falling_fit(time: Unchecked, loss: Unchecked) -> Falling:
    """The best falling fit to the finite points of a curve, averaged down if there are many."""
    time, loss = np.asarray(time, dtype=float), np.asarray(loss, dtype=float)
    if time.ndim != 1 or time.shape != loss.shape:
        raise BadInput(f"loss: shape {loss.shape} must be the one-dimensional shape {time.shape} of time")
    finite = np.isfinite(time) & np.isfinite(loss)
    time, loss = time[finite], loss[finite]
    if len(time) < 3 or (np.diff(time) < 0).any():
        raise BadInput(f"time: {len(time)} finite points must be at least 3, in rising order")
    single, window, ends = roughness(loss), needed_window(loss), (time[0], time[-1])
    time, loss = averaged(time, window), averaged(loss, window)
    time = np.concatenate([ends[:1], time[1:-1], ends[1:]])
    rough = max(roughness(loss), single / np.sqrt(window))
    # A running median and an isotonic fit both return a falling curve unchanged, so clean curves are not smeared.
    falling = bool((np.diff(loss) <= 0).all())
    loss = loss if falling else scipy.ndimage.median_filter(loss, size=5, mode="nearest")
    time, loss, count = thinned(time, loss)
    fit = loss if falling else scipy.optimize.isotonic_regression(loss, weights=count, increasing=False).x
    removed = 2 * float(np.sqrt(np.average((loss - fit) ** 2, weights=count)))
    return Falling(time, fit, max(rough, removed), window)


def smoothed(
    time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"]
) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"], int]:
    """Times and losses of the best falling fit to a noisy curve, and how many points were averaged before the fit."""
    curve = falling_fit(time, loss)
    return curve.time, curve.loss, curve.window


def needed_window(loss: Float[np.ndarray, " T"]) -> int:
    """How many points must be averaged for the noise not to hide a drop of `WANTED` of the fall."""
    ends = max(len(loss) // 100, 1)
    fall = float(loss[:ends].mean() - loss[-ends:].mean())
    longest = max(len(loss) // FEWEST, 1)
    if not fall > 0:
        return 1
    window = int(min(np.ceil((NOISE_SIZES * roughness(loss) / (WANTED * fall)) ** 2), longest))
    return window if window >= WORTHWHILE else 1


def averaged(values: Float[np.ndarray, " T"], window: int) -> Float[np.ndarray, " W"]:
    """Means over windows of so many points; the last window is shorter."""
    if window == 1:
        return values
    starts = np.arange(0, len(values), window)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))


def roughness(loss: Float[np.ndarray, " T"]) -> float:
    r"""The standard deviation of white noise on a smooth curve, from third differences.

    On noise neighbouring third differences have opposite signs (their correlation is $-3/4$), on a smooth
    curve the same; the median of minus their product is at most 0 on a smooth curve and 5.87 variances on
    white noise. It is the largest over stretches of the curve, because the noise of minibatches grows with the loss.
    """
    third = np.diff(loss, 3)
    if len(third) < 2:
        return 0.0
    products = np.array_split(-third[1:] * third[:-1], max(min(STRETCHES, len(third) // SHORTEST), 1))
    return float(np.sqrt(max(0.0, *(float(np.median(part)) for part in products)) / 5.87))


def thinned(
    time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"]
) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
    """Means over blocks that are short both in time and in log time, and the number of points in each block."""
    if len(time) <= POINTS:
        return time, loss, np.ones(len(time))
    even = np.linspace(time[0], time[-1], POINTS // 2)
    first = max(time[1] - time[0], (time[-1] - time[0]) * 1e-12)
    edges = np.union1d(even, time[0] + np.geomspace(first, max(time[-1] - time[0], first), POINTS // 2))
    block = np.searchsorted(edges, time, side="right")
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    count = np.diff(starts, append=len(time)).astype(float)
    return np.add.reduceat(time, starts) / count, np.add.reduceat(loss, starts) / count, count


def plateau_levels(curve: Falling) -> Float[np.ndarray, " K"]:
    """The levels of all plateaus, top to bottom."""
    if flat(curve):
        return np.array([np.median(curve.loss)])
    band = max(SMALLEST * fall(curve), WIDTH * curve.noise)
    levels = np.arange(curve.loss[0], curve.loss[-1] + band, -band / 4)
    levels = np.append(levels, curve.loss[-1] + band)
    entered, left = curve.crossing(levels), curve.crossing(levels - band)
    left[-1] = curve.time[-1]
    dwell = np.log(left - entered + 1e-12 * (curve.time[-1] - curve.time[0]))
    peaks, falling = turning_peaks(dwell, np.log(CONTRAST))
    rests = [Rest(entered[p], left[p], float(np.interp((entered[p] + left[p]) / 2, *curve[:2]))) for p in peaks]
    kept = [rest.level for rest in kept_apart(curve, rests)]
    begun = falling and kept[-1] - curve.loss[-1] >= smallest_drop(curve)
    return np.array(kept if len(kept) > 1 or begun else [])


def fall(curve: Falling) -> float:
    """The loss at the start minus the loss at the end."""
    return float(curve.loss[0] - curve.loss[-1])


def smallest_drop(curve: Falling) -> float:
    """The size below which a fall between plateaus does not count as a drop."""
    return max(SMALLEST * fall(curve), NOISE_SIZES * curve.noise)


def flat(curve: Falling) -> bool:
    """Whether the curve never left its first level."""
    return bool(fall(curve) <= max(FLAT * abs(curve.loss[0]), NOISE_SIZES * curve.noise))


def turning_peaks(height: Float[np.ndarray, " M"], contrast: float) -> tuple[list[int], bool]:
    """The maxima of a zigzag whose every leg is at least `contrast` high, and whether its last leg falls."""
    peaks, top, bottom, rising = [], 0, 0, True
    for i, value in enumerate(height):
        if rising:
            top = i if value > height[top] else top
            if value < height[top] - contrast:
                peaks.append(top)
                bottom, rising = i, False
        else:
            bottom = i if value < height[bottom] else bottom
            if value > height[bottom] + contrast:
                top, rising = i, True
    return ([*peaks, top], False) if rising else (peaks, True)


def kept_apart(curve: Falling, rests: list[Rest]) -> list[Rest]:
    """The rests that are separated by a true drop; of two neighbours without one only the longer is kept."""
    kept: list[Rest] = []
    for rest in rests:
        if kept and not dropped(curve, kept[-1], rest):
            kept[-1] = max(kept[-1], rest, key=lambda r: r.left - r.entered)
        else:
            kept.append(rest)
    return kept


def dropped(curve: Falling, upper: Rest, lower: Rest) -> bool:
    """Whether the levels are far enough apart and the curve between them bulges above its chord."""
    size = upper.level - lower.level
    inside = (curve.time > upper.entered) & (curve.time < lower.entered)
    start, end = np.interp([upper.entered, lower.entered], *curve[:2])
    chord = np.interp(curve.time[inside], [upper.entered, lower.entered], [start, end])
    return bool(size >= smallest_drop(curve) and (curve.loss[inside] - chord > BULGE * size).any())


def count_main_drops(time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"]) -> int:
    """Count the maxima of -dL/d ln t of the smoothed curve, a rougher count for softmax, whose plateaus slope."""
    spacing = SMOOTHING / 10
    after = time > 0
    log_time, falling = np.log(time[after]), loss[after]
    grid = np.arange(log_time[0] + 1, log_time[-1], spacing)
    smooth = scipy.ndimage.gaussian_filter1d(np.interp(grid, log_time, falling), SMOOTHING / spacing)
    return len(scipy.signal.find_peaks(-np.gradient(smooth, spacing), height=MAIN * falling[0])[0])


def before_blow_up(loss: Float[np.ndarray, " T"], zero: float) -> int:
    """How many losses come before the first that is no number or far above both the initial and the zero loss."""
    blown = ~(loss <= BLOWN * max(float(loss[0]), zero))
    return int(np.argmax(blown)) if blown.any() else len(loss)
