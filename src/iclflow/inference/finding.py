r"""How many directions a curve shows, and where the fit starts.

On a curve without noise drops are the maxima of the speed $-dL/d\ln t$, with minima between them that are `CONTRAST`
times slower; on a noisy one they are those of `comparison.plateaus`. Height and slope of a drop give its eigenvalue and
the context length by the closed form of `drop`. Directions that drop together show as one drop that fits badly: a drop
is split in two as long as that makes the squares of the residuals `WORTH` times smaller, noise set aside.
"""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from jaxtyping import Float

from iclflow.comparison.plateaus import turning_peaks
from iclflow.inference.drop import HALF_SLOPE, context_of, eigenvalue_of
from iclflow.inference.fitting import LEAST, Fit, Numbers, Setting, fit
from iclflow.inference.observing import Observed

__all__ = ["best_fit", "first_guesses"]

CONTRAST = 1.5
SMALLEST = 5e-4  # height of a drop, of the fall
SLOWEST = 1e-7  # speed, of the fall per unit of ln t
SPLITS, LAGS = (0.35, 0.65), (1.0, 3.0)  # shares of the height, and distances in units of the width
GOOD = 0.1  # root mean square of the residuals below which nothing is split
WORTH, DOUBTED = 10.0, 10.0
ALIKE = 8.0  # times their median: initial sizes of directions that a split may need
HINTED, SURE = 10.0, 12.0  # independent residuals that a further number must be worth
MOST = 12  # directions

Values = Float[np.ndarray, " K"]


def best_fit(seen: Observed, setting: Setting) -> Fit | None:
    """The best fit of the staircase to a curve, with as many directions as it shows; `None` if it shows no drop."""
    guesses = first_guesses(seen, setting)
    if not guesses:
        return None
    found = settled(seen, guesses)
    while len(found.numbers.time) < MOST and found.misfit > GOOD**2:
        tried = [fit(seen, start, found.free_rest, rounds=1) for start in splits(seen, found)]
        if not tried:
            break
        closer = settled(seen, [min(tried, key=lambda f: f.misfit).numbers])
        enough = closer.excess(found) > SURE and (seen.noisy or found.misfit > WORTH * closer.misfit)
        if not enough or not alike(closer.numbers):
            break
        found = closer
    return found


def settled(seen: Observed, starts: list[Numbers]) -> Fit:
    """The better fit of several starts; directions that have not dropped are left out unless the curve needs them."""
    full = min((fit(seen, start, free_rest=False) for start in starts), key=lambda f: f.misfit)
    part = fit(seen, full.numbers)
    if seen.noisy:
        needed = part.excess(full) > HINTED or len(part.numbers.time) == 1
    else:
        needed = part.excess(full) > SURE and full.misfit > DOUBTED * part.misfit
    return part if needed and part.numbers.rest > 0 else replace(full, doubt=part if seen.noisy else None)


def first_guesses(seen: Observed, setting: Setting) -> list[Numbers]:
    """What the closed form makes of heights, slopes and times; the context also as if every direction had dropped."""
    time, saved, slope = drops_of(seen)
    if len(time) == 0:
        return []
    power = float(seen.smooth_loss[0]) + setting.noise
    pace = slope / (HALF_SLOPE * saved)
    eigenvalue = np.sqrt(pace**1.5 / (setting.outputs * np.sqrt(saved)))
    contexts = context_of(eigenvalue, saved, power)
    shaped = 1 / np.median(contexts) if np.median(contexts) > 0 else 1e-3
    guesses = []
    for per_context in (shaped, complete(saved, power, float(seen.smooth_loss[0]))):
        values = eigenvalue_of(saved, per_context, power)
        rest = max(float(seen.smooth_loss[0]) - values.sum(), 0.0)
        guesses.append(Numbers(values, float(per_context), rest, time, setting))
    return guesses


def complete(saved: Values, power: float, trace: float) -> float:
    r"""$1/N$ such that the eigenvalues of these heights add up to the trace."""
    grid = np.geomspace(LEAST, 1.0, 400)
    sums = np.array([eigenvalue_of(saved, x, power).sum() for x in grid])
    return float(grid[np.argmin(np.abs(sums - trace))])


def drops_of(seen: Observed) -> tuple[Values, Values, Values]:
    """Times, heights and slopes of the drops that a curve shows."""
    if seen.drops is not None:
        found = seen.drops
        middle = np.interp(found.times, seen.smooth_time, seen.smooth_loss)
        near = lambda share: np.interp(-(middle - share * found.sizes), -seen.smooth_loss, seen.smooth_time)
        return found.times, found.sizes, 0.4 * found.sizes / np.maximum(near(0.2) - near(-0.2), 1e-12 * found.times)
    time, loss = seen.time[1:], seen.loss[1:]
    speed = -np.gradient(loss, np.log(time)) / seen.fall
    peaks, _ = turning_peaks(np.log(np.maximum(speed, SLOWEST)), np.log(CONTRAST))
    inner = [p + int(np.argmin(speed[p : q + 1])) for p, q in pairwise(peaks)]
    edges = np.interp(np.array([0, *inner, len(loss) - 1]), np.arange(len(loss)), loss)
    edges[0] = seen.loss[0]
    heights = edges[:-1] - edges[1:]
    keep = heights > SMALLEST * seen.fall
    peaks, heights = np.array(peaks)[keep], heights[keep]
    slope = -np.gradient(loss, time)[peaks]
    return time[peaks], heights, np.maximum(slope, 1e-300)


def alike(numbers: Numbers) -> bool:
    """Whether all directions begin from weights of about one size, as random ones do."""
    sizes = numbers.sizes
    return bool(sizes.max() < ALIKE * np.median(sizes))


def splits(seen: Observed, found: Fit) -> list[Numbers]:
    """The numbers with the drop that fits worst split in two, in several ways."""
    numbers = found.numbers
    drops = numbers.drops
    nearest = np.argmin(np.abs(drops.pace * (seen.time[:, None] - numbers.time)), axis=1)
    worst = int(np.argmax(np.bincount(nearest, found.residual**2, len(numbers.time))))
    power = numbers.trace + numbers.setting.noise
    ways = []
    for share, lag in product(SPLITS, LAGS):
        parts = drops.saved[worst] * np.array([share, 1 - share])
        values = eigenvalue_of(parts, numbers.per_context, power)
        times = numbers.time[worst] + lag / drops.pace[worst] * np.array([share - 1, share])
        if (times > 0).all() and (times < 10 * seen.time[-1]).all():
            kept = lambda old, new: np.concatenate([np.delete(old, worst), new])
            ways.append(numbers._replace(eigenvalue=kept(numbers.eigenvalue, values), time=kept(numbers.time, times)))
    return ways
