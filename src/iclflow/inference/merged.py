r"""The one drop of merged key-query: drive, minimum and initial size.

From small weights the loss leaves its first level as [`merged-start`]

$$y = L(0) - L = \frac{2\alpha\gamma}{O}\,e^{2\gamma t}\,(1 + O(y)),\qquad \gamma = \sqrt O|C_1|,$$

so $\ln y$ against $t$ and $y$ is a plane, whose slope is $2\gamma$ and whose height gives $\alpha$; $\sqrt\alpha$ is
the size of the weights along the direction that grows. Later all eigenvalues act at once and no closed form remains:
the minimum is read off the end.
"""

import numpy as np

from iclflow.comparison.plateaus import find_drops
from iclflow.errors import BadInput
from iclflow.inference.fitting import Setting
from iclflow.inference.observing import Observed
from iclflow.inference.result import DropInference

__all__ = ["infer_drop"]

FIRST, LAST = 1e-4, (0.03, 0.1, 0.3)  # part of the fall over which the drop begins
NOISES = 5.0  # the part begins above so many standard errors of a point
FEWEST = 8  # points on it
BENT = 0.1  # root mean square by which a begin may leave the plane, in ln y
SETTLED = 1e-3  # of the fall, over the last tenth of the time
WIDTH = 3.0  # standard errors in an interval


def infer_drop(seen: Observed, setting: Setting, name: str) -> DropInference:
    """Drive, minimum and initial size of a curve with one drop."""
    time, loss, error, fall = seen.time, seen.loss, seen.error, seen.fall
    if not fall > 0:
        raise BadInput(f"curve: {name!r} does not fall, so there is no drop to infer anything from")
    flat = loss[: max(np.argmax(seen.smooth_loss[0] - loss > FIRST * fall) // 2, 1)]
    base = float(flat.mean()) if seen.noisy else float(loss[0])
    gone = base - loss
    first = max(FIRST * fall, NOISES * float(error.max()))
    begun = int(np.argmax(gone > first))
    for last in LAST:  # as early as there are points enough
        part = np.arange(begun, begun + int(np.argmax(gone[begun:] > max(last * fall, 3 * first))))
        if len(part) >= FEWEST:
            break
    if len(part) < FEWEST:
        raise BadInput(f"curve: {name!r} has {len(part)} points where its drop begins, needs {FEWEST}")
    plane = np.column_stack([np.ones(len(part)), time[part], gone[part]])
    scale = np.abs(plane).max(axis=0)
    height, *_ = np.linalg.lstsq(plane / scale, np.log(gone[part]), rcond=None)
    left = np.log(gone[part]) - plane / scale @ height
    spread = float(left @ left) / max(len(part) - 3, 1) * np.linalg.inv((plane / scale).T @ (plane / scale))
    rate, rate_error = height[1] / scale[1], np.sqrt(spread[1, 1]) / scale[1]
    drive, outputs = rate / 2, setting.outputs
    # ln size = (height_0 - ln(2 drive / O)) / 2, and the drive follows height_1
    along = np.array([1.0, -1 / height[1], 0.0]) / 2
    size = float(np.exp((height[0] - np.log(max(2 * drive / outputs, 1e-300))) / 2))
    size_error = float(np.sqrt(along @ spread @ along))
    late = loss[time > time[-1] - 0.1 * (time[-1] - time[0])]
    minimum, moved = float(late[-1] if not seen.noisy else late.mean()), float(np.ptp(late))
    settled = seen.noisy or moved < SETTLED * fall
    half = float(np.interp(-(base - fall / 2), -seen.smooth_loss, seen.smooth_time))
    rough = float(np.sqrt(np.mean(left**2)))
    fits, why = judged(seen, drive, base + setting.noise, rough, outputs)
    noise = WIDTH * float(error[-1])
    ends = lambda value, width: np.array([value - width, value + width])
    spans = {
        "drive": ends(drive, WIDTH * rate_error / 2),
        "minimum": np.array([minimum - noise - (0.0 if settled else fall), minimum + noise + 1e-6 * fall]),
        "initial_size": size * np.exp(ends(0.0, WIDTH * size_error)),
    }
    said = ["The eigenvalues and the context length act together in one drop, and a curve does not tell them apart."]
    if not settled:
        said.append("The curve still falls at its end, so its minimum is lower; a longer curve would show it.")
    return DropInference(
        name, float(drive), minimum, size, half, spans, fits, 0.0 if fits is False else 1.0, why, tuple(said)
    )


def judged(seen: Observed, drive: float, power: float, rough: float, outputs: int) -> tuple[bool | None, str]:
    """Whether merged key-query can have made the drop: one drop cannot show more."""
    count = len(find_drops(seen.smooth_time, seen.smooth_loss).times)
    if count > 1:
        return False, f"Merged key-query did not make the curve: it makes one drop, the curve has {count}."
    if rough > BENT:
        return (
            False,
            f"Merged key-query did not make the curve: its drop does not begin as an exponential ({rough:.2g}).",
        )
    if drive > np.sqrt(outputs) * power**2:
        return (
            False,
            f"Merged key-query did not make the curve: no spectrum of trace {power:.3g} has drive {drive:.3g}.",
        )
    return None, "It cannot be told: one drop that begins as an exponential fits, and others make such a drop too."
