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
$G = \gamma A/|A|$.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float

from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions, Landscape
from iclflow.theory.merged import Quadratic

__all__ = [
    "FOLD",
    "MergedDecay",
    "conserved_share",
    "decayed_level",
    "decayed_strength",
    "decayed_time",
    "head_value",
    "merged_course",
    "merged_matrix",
    "resting_loss",
    "stretched_time",
]

FOLD = 0.75 * 4 ** (-1 / 3)  # the largest x - x^4

Array = Float[np.ndarray, "*n"]


def checked_decay(decay: float) -> float:
    if not 0 <= decay < np.inf:
        raise BadInput(f"decay: {decay} must be a number of at least 0")
    return float(decay)


def decayed_time(time: Array, decay: float) -> Array:
    r"""When drops come with decay that come at `time` without it; infinite if they never do [`decay-time`].

    Args:
        time: drop times without decay, in t/tau.
        decay: $\gamma$, per t/tau.

    Returns:
        $-\ln(1-\gamma T)/\gamma$, or infinity where $\gamma T \ge 1$.

    >>> decayed_time(np.array([1.0, 50.0, 200.0]), 0.01).round(3)
    array([ 1.005, 69.315,    inf])
    """
    time, rate = np.asarray(time, dtype=float), checked_decay(decay)
    if rate == 0:
        return time
    comes = rate * time < 1
    return np.where(comes, -np.log1p(-rate * np.where(comes, time, 0.0)) / rate, np.inf)


def stretched_time(time: Array, decay: float) -> Array:
    r"""The time $s(t) = (1 - e^{-\gamma t})/\gamma$ that has passed in the flow without decay [`decay-time`].

    Args:
        time: t/tau with decay.
        decay: $\gamma$, per t/tau.

    Returns:
        The time without decay, below $1/\gamma$.
    """
    time, rate = np.asarray(time, dtype=float), checked_decay(decay)
    return time if rate == 0 else -np.expm1(-rate * time) / rate


def conserved_share(time: float, decay: float) -> float:
    r"""What is left of a difference that the flow without decay conserves, $e^{-2\gamma t}$ [`decay-conserved`].

    Args:
        time: t/tau that has passed.
        decay: $\gamma$, per t/tau.

    Returns:
        A number between 0 and 1.
    """
    return float(np.exp(-2 * checked_decay(decay) * time))


def decayed_strength(d: Directions, decay: float) -> Float[np.ndarray, " D"]:
    r"""The strength $v^3$ at which a learned direction rests, 0 beyond the fold [`decay-level`].

    Args:
        d: the directions of the landscape.
        decay: $\gamma$, per t/tau.

    Returns:
        The stable root of $g v - m v^4 = \gamma$, cubed, for each direction.
    """
    rate, scale = checked_decay(decay), np.cbrt(d.strength)
    share = rate / (d.drive * scale)
    roots = [scipy.optimize.brentq(lambda x, y=y: x - x**4 - y, 4 ** (-1 / 3), 1.0) if y < FOLD else 0.0 for y in share]
    return (scale * np.array(roots)) ** 3


def decayed_level(d: Directions, learned: Bool[np.ndarray, " D"], decay: float) -> float:
    r"""The data loss where exactly the `learned` directions rest, $L_0 - \sum_d (2 g_d s_d - m_d s_d^2)/O$.

    Args:
        d: the directions of the landscape.
        learned: which of them are learned.
        decay: $\gamma$, per t/tau.

    Returns:
        The loss on the data, without the penalty.
    """
    s = decayed_strength(d, decay) * np.asarray(learned, dtype=bool)
    return float(d.base - np.sum(2 * d.drive * s - d.curvature * s**2) / d.outputs)


def head_value(cube: float, soft: float, decay: float) -> float:
    r"""The value weight at which a head rests that holds directions together [`decay-rank`].

    Args:
        cube: $\sum_d g_d/m_d$ over its directions.
        soft: $\sum_d 1/m_d$.
        decay: $\gamma$, per t/tau.

    Returns:
        The largest root of $v^4 - v\sum g_d/m_d + \gamma\sum 1/m_d = 0$; 0 beyond the fold.
    """
    free, rate = float(np.cbrt(cube)), checked_decay(decay)
    if rate == 0 or free == 0:
        return free
    balance = lambda v: v**4 - cube * v + rate * soft
    turn = float(np.cbrt(cube / 4))
    return float(scipy.optimize.brentq(balance, turn, free)) if balance(turn) < 0 else 0.0


def resting_loss(
    L: Quadratic, v: Float[np.ndarray, " H"], K: Float[np.ndarray, "H R D"], Q: Float[np.ndarray, "H R D"], decay: float
) -> float:
    r"""The data loss where heads come to rest with decay, from where they rest without it [`decay-rank`].

    They descend $\tfrac12OL + \tfrac\gamma2|W|^2$; any landscape, any rank.

    Args:
        L: the loss, of the population or of a sample.
        v: value weights of the heads that have grown.
        K: their keys.
        Q: their queries.
        decay: $\gamma$, per t/tau.

    Returns:
        The loss on the data, without the penalty.
    """
    rate, shape, root = checked_decay(decay), K.shape, np.sqrt(L.outputs)
    if not len(v):
        return L.base
    split = lambda w: (w[: len(v)], *(part.reshape(shape) for part in np.split(w[len(v) :], 2)))
    matrix = lambda w: np.einsum("h,hrd,hre->de", *split(w)) / root

    def penalised(w: np.ndarray) -> tuple[float, np.ndarray]:
        v, K, Q = split(w)
        G = root * L.force(matrix(w))
        felt = np.einsum("de,hre->hrd", G, Q)
        force = [np.sum(K * felt, axis=(1, 2)), (v[:, None, None] * felt).ravel(), (v[:, None, None] * (K @ G)).ravel()]
        return L.outputs * L.loss(matrix(w)) / 2 + rate * float(w @ w) / 2, rate * w - np.concatenate(force)

    start = np.concatenate([v, K.ravel(), Q.ravel()])
    options = {"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-10}
    found = scipy.optimize.minimize(penalised, start, jac=True, method="L-BFGS-B", options=options)
    return float(L.loss(matrix(found.x)))


class MergedDecay(NamedTuple):
    """A course of merged attention with decay."""

    loss: Float[np.ndarray, " T"]
    half_time: float  # infinite if nothing is learned


def merged_matrix(L: Quadratic, decay: float) -> Float[np.ndarray, "D D"]:
    r"""Where merged attention rests with decay: $C_1 - BA\Lambda = \gamma A/(\sqrt O |A|)$ [`decay-merged`].

    Args:
        L: the quadratic loss.
        decay: $\gamma$, per t/tau.

    Returns:
        The effective matrix of one output; zero if $\gamma \ge \sqrt O |C_1|$.
    """
    rate = checked_decay(decay) / np.sqrt(L.outputs)
    if rate >= np.linalg.norm(L.cross):
        return np.zeros_like(L.cross)
    if not isinstance(L, Landscape):
        return penalised_matrix(L, rate)
    b, U = np.linalg.eigh(L.context)
    lam, V = np.linalg.eigh(L.query)
    force, stiffness = U.T @ L.cross @ V, np.outer(b, lam)
    matrix = lambda size: force / (stiffness + rate / size)
    excess = lambda log_size: np.linalg.norm(matrix(np.exp(log_size))) / np.exp(log_size) - 1
    free = np.linalg.norm(force / stiffness)
    size = np.exp(scipy.optimize.brentq(excess, np.log(free) - 60, np.log(free) + 1e-9)) if rate > 0 else free
    return U @ (matrix(size) if rate > 0 else force / stiffness) @ V.T


def penalised_matrix(L: Quadratic, rate: float) -> Float[np.ndarray, "D D"]:
    r"""The lowest point of $\tfrac12L + \text{rate}\,|A|$ on any quadratic landscape, which is convex."""
    shape, size = L.cross.shape, float(np.linalg.norm(L.cross))

    def penalised(a: np.ndarray) -> tuple[float, np.ndarray]:
        A, norm = a.reshape(shape), max(float(np.linalg.norm(a)), 1e-300)
        return L.loss(A) / 2 + rate * norm, (rate / norm) * a - L.force(A).ravel()

    options = {"maxiter": 20_000, "ftol": 1e-15, "gtol": 1e-10}
    start = (L.cross / size).ravel()
    return scipy.optimize.minimize(penalised, start, jac=True, method="L-BFGS-B", options=options).x.reshape(shape)


def merged_course(L: Quadratic, alpha: float, decay: float, times: Float[np.ndarray, " T"]) -> MergedDecay:
    r"""The loss of merged attention with decay, from the part $\alpha$ of small initial weights that grows.

    On the balanced, aligned manifold one matrix $U$ of size $v = |U|$ stands for all heads:
    $\dot U = \sqrt O\, v\, G(vU/\sqrt O) - \gamma U$, from $\sqrt\alpha\, C_1/|C_1|$ [`decay-merged`].

    Args:
        L: the quadratic loss.
        alpha: the growing part of the initial weights (`theory.merged.alignment`).
        decay: $\gamma$, per t/tau.
        times: t/tau at which the loss is wanted.

    Returns:
        The loss on the data, and the time at which half of the drop is done.
    """

    rate, root = checked_decay(decay), np.sqrt(L.outputs)
    lowest = L.loss(merged_matrix(L, rate))
    if lowest >= L.base:
        return MergedDecay(np.full(len(times), L.base), np.inf)
    growth = root * float(np.linalg.norm(L.cross)) - rate
    start = np.sqrt(alpha) * L.cross / np.linalg.norm(L.cross)
    effective = lambda U: np.linalg.norm(U) * U / root

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        U = y.reshape(L.cross.shape)
        return (root * np.linalg.norm(U) * L.force(effective(U)) - rate * U).ravel()

    middle = (L.base + lowest) / 2
    event = lambda t, y: L.loss(effective(y.reshape(L.cross.shape))) - middle
    end = max(float(np.max(times, initial=0.0)), 20 * max(np.log(1 / alpha), 1.0) / growth)
    course = scipy.integrate.solve_ivp(
        velocity, (0.0, end), start.ravel(), method="LSODA", rtol=1e-9, atol=1e-14, dense_output=True, events=event
    )
    losses = [L.loss(effective(course.sol(t).reshape(L.cross.shape))) for t in times]
    crossings = course.t_events[0]
    return MergedDecay(np.array(losses), float(crossings[0]) if len(crossings) else np.inf)
