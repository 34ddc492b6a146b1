r"""Softmax attention in two limits: small weights and long contexts.

A softmax over the $N+1$ tokens averages. Small weights therefore read out the mean label as well
[`softmax-early`]:

$$\tau\dot v_h = \langle U_h, G_s\rangle - r \sum_{h'} v_{h'} + f,\qquad \tau\dot U_h = v_h\, G_s,$$
$$G_s = \Big(\frac{N}{N+1}\Big)^2 \Lambda\Omega\Lambda,\qquad
  r = \frac{N(\operatorname{tr}\Lambda\Omega + \sigma^2)}{(N+1)^2},$$

where $f = E[y_q \bar y]$ is 0 on the population and a random number of order $P^{-1/2}$ on $P$ sequences. For
$N\to\infty$ softmax attention computes what linear attention does. There is no closed form in between.
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory.landscape import Landscape, landscape

__all__ = ["drive", "forcing_scale", "growth_rates", "infinite_context", "mean_readout"]


def drive(task: Task) -> Float[np.ndarray, "D D"]:
    r"""$G_s$: the force on small key-query matrices [`softmax-early`]."""
    token, omega = checked_covariances(task)
    return (task.context / (task.context + 1)) ** 2 * token @ omega @ token


def mean_readout(task: Task) -> float:
    r"""$r = E\bar y^2$, $\bar y = \sum_n y_n/(N+1)$: the drag of reading out the mean [`softmax-early`]."""
    token, omega = checked_covariances(task)
    return task.context * (float(np.trace(token @ omega)) + task.label_noise) / (task.context + 1) ** 2


def growth_rates(task: Task, heads: int) -> tuple[float, float]:
    r"""Growth of small merged weights with $\sum v = 0$, and of the uniform mode [`softmax-growth`].

    $$\|G_s\|_F,\qquad \tfrac12\Big(-Hr + \sqrt{H^2r^2 + 4\|G_s\|_F^2}\Big)$$

    A single head has only the second.
    """
    if heads < 1:
        raise BadInput(f"heads: {heads} must be at least 1")
    strength, drag = float(np.linalg.norm(drive(task))), heads * mean_readout(task)
    return strength, float((np.hypot(drag, 2 * strength) - drag) / 2)


def forcing_scale(task: Task, samples: int) -> float:
    r"""Standard deviation of $f$ on a sample: $\sqrt{E[y_q^2 \bar y^2]/P}$ [`softmax-forcing`].

    $$E[y_q^2\bar y^2] = \frac{N}{(N+1)^2}
      \Big[(\operatorname{tr}\Lambda\Omega)^2 + 2\operatorname{tr}(\Lambda\Omega)^2
      + \sigma^2 \operatorname{tr}\Lambda\Omega\Big]$$

    Weights much smaller than $f/r$ are driven by it, all heads alike, so the first drop no longer comes later
    when the initial weights shrink further.
    """
    if samples < 1:
        raise BadInput(f"samples: {samples} must be at least 1")
    token, omega = checked_covariances(task)
    product = token @ omega
    power = np.trace(product)
    fourth = power**2 + 2 * np.trace(product @ product) + task.label_noise * power
    if task.query_noise:
        fourth += task.label_noise * (power + task.label_noise)
    return float(np.sqrt(task.context * fourth / samples) / (task.context + 1))


def infinite_context(task: Task) -> Landscape:
    r"""The landscape of $N\to\infty$, for softmax and linear attention alike [`softmax-infinite`].

    It has $C_1 = B = \Lambda\Omega\Lambda$. Exponential tilting of Gaussian tokens makes $\sum_b
    \text{softmax}_b(x_b'Ux_q)\, x_b \to \Lambda U x_q$ exact for every $U$ [`softmax-infinite`]; at finite
    $N$ corrections are of the order $\sqrt{e^{\text{var(logit)}}/N}$.
    """
    token, omega = checked_covariances(task)
    cross = token @ omega @ token
    return Landscape(cross, cross, token, landscape(task).base, task.out_dim)


def checked_covariances(task: Task) -> tuple[Float[np.ndarray, "D D"], Float[np.ndarray, "D D"]]:
    if task.icl_fraction < 1:
        raise BadInput(f"icl_fraction: {task.icl_fraction} must be 1 for the theory of softmax attention")
    if task.prefix_loss:
        raise BadInput("prefix_loss: True must be False for the theory of softmax attention")
    return covariances(task)[:2]
