r"""Weight decay: the flow $\tau\dot W = -\tfrac12\,\partial L/\partial W - \gamma W$, in the paper's units.

**Separate key and query** [`decay-time`]. On a plateau the force is constant and the flow homogeneous of degree two in
$W$, so $W = e^{-\gamma t}\tilde W(s)$ maps it exactly to the flow without decay, in a time that ends at $1/\gamma$:

$$s(t) = (1 - e^{-\gamma t})/\gamma .$$

A drop that comes at $T$ without decay therefore comes at $t = -\ln(1-\gamma T)/\gamma$ if $\gamma T < 1$, and never
otherwise. Since $T \propto 1/\text{init}$, the number of components that are learned is a function of
$\gamma/\text{init}$.

**What a learned direction rests at** [`decay-level`]: $g v - m v^4 = \gamma$, which has a root only up to the fold
$\gamma < \tfrac34\,4^{-1/3}\, g c$, $c = (g/m)^{1/3}$.

**Heads of higher rank** [`decay-rank`] hold directions that share one value weight. They rest where $|k_d|^2 =
|q_d|^2 = (g_d - \gamma/v)/m_dv$ and $v^2 = \sum_d|k_d|^2$, that is

$$v^3 + \frac\gamma v\sum_d\frac1{m_d} = \sum_d\frac{g_d}{m_d} .$$

The drop that opens a head follows the rule above. A further component grows in a head that is large already, at the
rate $vg_d - \gamma$: it comes after a logarithmic wait if $\gamma < vg_d$, whatever the initial weights.

**Merged attention** [`decay-merged`] is homogeneous of degree one on its plateau: the weights grow at $|C_1| -
\gamma$, so all is learned if $\gamma < |C_1|$, whatever the initial weights, and nothing otherwise. It rests where
$G = \gamma A/|A|$ (`theory.collinear.Modes.rest`).
"""

import numpy as np
import scipy
from jaxtyping import Bool, Float

from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions

__all__ = [
    "FOLD",
    "conserved_share",
    "decayed_level",
    "decayed_strength",
    "decayed_time",
    "head_value",
]

FOLD = 0.75 * 4 ** (-1 / 3)  # the largest x - x^4

Array = Float[np.ndarray, "*n"]


def checked_decay(decay: float) -> float:
    if not 0 <= decay < np.inf:
        raise BadInput(f"decay: {decay} must be a number of at least 0")
    return float(decay)


def decayed_time(time: Array, decay: float) -> Array:
    r"""When drops come with decay that come at `time` without it; infinite if they never do [`decay-time`].

    >>> decayed_time(np.array([1.0, 50.0, 200.0]), 0.01).round(3)
    array([ 1.005, 69.315,    inf])
    """
    time, rate = np.asarray(time, dtype=float), checked_decay(decay)
    if rate == 0:
        return time
    comes = rate * time < 1
    return np.where(comes, -np.log1p(-rate * np.where(comes, time, 0.0)) / rate, np.inf)


def conserved_share(time: float, decay: float) -> float:
    r"""What is left of a difference that the flow without decay conserves, $e^{-2\gamma t}$ [`decay-conserved`]."""
    return float(np.exp(-2 * checked_decay(decay) * time))


def decayed_strength(d: Directions, decay: float) -> Float[np.ndarray, " D"]:
    r"""The strength $v^3$ at which a learned direction rests, 0 beyond the fold [`decay-level`]."""
    rate, scale = checked_decay(decay), np.cbrt(d.strength)
    share = rate / (d.drive * scale)
    roots = [scipy.optimize.brentq(lambda x, y=y: x - x**4 - y, 4 ** (-1 / 3), 1.0) if y < FOLD else 0.0 for y in share]
    return (scale * np.array(roots)) ** 3


def decayed_level(d: Directions, learned: Bool[np.ndarray, " D"], decay: float) -> float:
    r"""The data loss where exactly the `learned` directions rest, $L_0 - \sum_d (2 g_d s_d - m_d s_d^2)/O$."""
    s = decayed_strength(d, decay) * np.asarray(learned, dtype=bool)
    return float(d.base - np.sum(2 * d.drive * s - d.curvature * s**2) / d.outputs)


def head_value(cube: float, soft: float, decay: float) -> float:
    r"""The value weight at which a head rests that holds directions together [`decay-rank`]."""
    free, rate = float(np.cbrt(cube)), checked_decay(decay)
    if rate == 0 or free == 0:
        return free
    balance = lambda v: v**4 - cube * v + rate * soft
    turn = float(np.cbrt(cube / 4))
    return float(scipy.optimize.brentq(balance, turn, free)) if balance(turn) < 0 else 0.0
