r"""Does this theory apply to the curve at all?

$K$ drops with $K$ heights, $K$ slopes and the loss at the start are fitted by $K$ eigenvalues, one context length and
what has not dropped, and the shape of every drop is fixed: from two drops on this can fail [`curve-test`]. The misfit
$M$ is the root mean square of what the fit leaves, beyond the noise, in units of the fall. Curves that this theory does
make leave something too, because heads are not quite alone: more of it for larger initial weights, whose drops are
wider, $\varepsilon = \max_d 1/(w_dT_d^*)$. Over random configurations $z = \ln M - a\ln\varepsilon$ has the tail in
`TAIL`, and $\ln M$ that in `FAR`; the p-value is the share of such curves that fit no better, the smaller of the two.
On a curve that noise rules, whose weights are shaken too, $z$ decides alone.
"""

from typing import NamedTuple

import numpy as np

from iclflow.inference.fitting import Fit
from iclflow.inference.observing import Observed

__all__ = ["Verdict", "judge", "misfit_score", "widest"]

POWER = 1.0  # a
TAIL = ((-4.8, 0.5), (-3.3, 0.2), (-2.1, 0.1), (-1.3, 0.05), (-0.3, 0.02), (0.5, 0.01))  # z and the share beyond it
FAR = ((-11.0, 0.5), (-8.1, 0.2), (-7.1, 0.1), (-6.4, 0.05), (-5.8, 0.02), (-5.6, 0.01))  # ln M, likewise
REJECTED = 0.015
SHAKEN = 3.0  # root mean square of the residuals, in standard errors, up to which noise rules a curve
CHANCE = 3.0  # standard errors that the square of the noise is given
WIDEST = 0.12  # epsilon, beyond which drops have no plateaus before them
LONGEST = 2000.0  # context, beyond which a curve does not tell it from an infinite one


class Verdict(NamedTuple):
    """Whether the theory applies, how surprising the misfit would be if it did, and why in one sentence."""

    fits: bool | None
    p_value: float
    why: str


def widest(fit: Fit) -> float:
    r"""$\varepsilon$, the width of the drop that is widest for its time."""
    return float(np.max(1 / (fit.numbers.drops.pace * fit.numbers.time)))


def misfit_score(seen: Observed, fit: Fit) -> tuple[float, float]:
    """The misfit and its $z$."""
    noise = float(np.mean(seen.error**2)) * (1 + CHANCE * np.sqrt(2 / len(seen.loss)))
    left = float(np.mean((fit.residual * fit.error) ** 2)) - noise
    misfit = max(float(np.sqrt(max(left, 0.0))) / seen.fall, 1e-8)
    return misfit, float(np.log(misfit) - POWER * np.log(widest(fit)))


def share_beyond(z: float, tail: tuple[tuple[float, float], ...]) -> float:
    """The share of curves of the theory that fit no better, between the places of a table and beyond them."""
    places, shares = np.array(tail).T
    slope = np.log(shares[-1] / shares[-2]) / (places[-1] - places[-2])
    beyond = np.log(shares[-1]) + slope * (z - places[-1])
    return float(np.exp(np.where(z > places[-1], beyond, np.interp(z, places, np.log(shares)))))


def judge(seen: Observed, fit: Fit | None) -> Verdict:
    """The verdict on a fit; `None` is the fit to a curve without drops."""
    if fit is None:
        return Verdict(False, 0.0, "The curve shows no drop between two plateaus, and this theory makes nothing else.")
    misfit, z = misfit_score(seen, fit)
    p = share_beyond(z, TAIL)
    if not seen.noisy or fit.misfit > SHAKEN**2:
        p = min(p, share_beyond(float(np.log(misfit)), FAR))
    context, count = 1 / fit.numbers.per_context, len(fit.numbers.time)
    off = f"the best staircase of this theory is {misfit:.2g} of the fall away from the curve"
    if p < REJECTED:
        return Verdict(False, p, f"This theory did not make the curve: {off}.")
    if widest(fit) > WIDEST:
        return Verdict(None, p, "It cannot be told: the drops are too wide for plateaus to precede them.")
    if count == 1:
        return Verdict(None, p, "It cannot be told: one drop has no more numbers than are fitted.")
    if context > LONGEST:
        return Verdict(
            None,
            p,
            "It cannot be told: the lowest loss is so near zero that no context length shows.",
        )
    return Verdict(True, p, f"The curve is what this theory makes: {off}.")
