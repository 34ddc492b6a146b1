r"""Head rotation: a head leaves a direction that is fast to learn for one that saves more loss.

Small weights learn by falling drive $g_d$; a rank-limited head rests by saved loss $T_d^2 = g_d^2/m_d$.
Where a task covariance makes the two orders differ, $g_i > g_j$ but $T_j^2 > T_i^2$, the head that has
learned $i$ sits on a true saddle. Its key and query parts along $j$ obey, with $X$ the fraction of its
strength that $i$ has reached and $d\eta = v\,dt/\tau$ [`rotation`],

$$\frac{d}{d\eta}\begin{pmatrix}k_j\\q_j\end{pmatrix} =
  \begin{pmatrix}-g_iX B_j/B_i & g_j\\ g_j & -g_iX\lambda_j/\lambda_i\end{pmatrix}
  \begin{pmatrix}k_j\\q_j\end{pmatrix},$$

and at $X = 1$ grow at the rate $\mu$, $v$ times the top eigenvalue. The loss falls by $T_j^2 - T_i^2$ while
the head turns, direction $i$ is free again, and another head learns it later:
$\emptyset\to\{i\}\to\{j\}\to\{i,j\}$.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from iclflow.theory.landscape import Directions
from iclflow.theory.separate import check_commuting, exchange_block
from iclflow.theory.single_mode import Growth

__all__ = ["Rotation", "learning_path", "residual_amplitude", "rotation", "rotation_rate"]

SEED = 1e-4  # relative size of the part along j where the orbit starts; the error is of second order
RECORDS = 2000

Times = Float[np.ndarray, "*times"] | float


def rotation_rate(d: Directions, i: int, j: int, value: float | None = None) -> float:
    r"""$\mu$: rate at which a head of value $v$ (alone: $\alpha_i^{1/3}$) leaves $i$ for $j$ [`rotation`].

    Negative where $T_j^2 < T_i^2$: the component along $j$ then decays.
    """
    check_commuting(d, "head rotation")
    value = d.strength[i] ** (1 / 3) if value is None else value
    return float(np.linalg.eigvalsh(exchange_block(d, i, j, value))[-1])


def learning_path(d: Directions, places: int) -> tuple[tuple[int, ...], ...]:
    """The sets of directions that rank-one heads hold in turn, from small initial weights [`path`].

    A new head takes the free direction of largest drive. Before the next head has grown, heads turn to better
    free directions, the fastest turn first, until none is left.
    """
    check_commuting(d, "the path of learned sets")
    learned: list[int] = []
    path: list[tuple[int, ...]] = [()]
    while len(learned) < min(places, len(d.drive)):
        learned.append(next(int(j) for j in d.order if j not in learned))
        path.append(tuple(sorted(learned)))
        while turn := fastest_turn(d, learned):
            learned[learned.index(turn[0])] = turn[1]
            path.append(tuple(sorted(learned)))
    return tuple(path)


def fastest_turn(d: Directions, learned: list[int]) -> tuple[int, int] | None:
    free = [j for j in range(len(d.drive)) if j not in learned]
    turns = [(rotation_rate(d, i, j), i, j) for i in learned for j in free if better(d, j, i)]
    return max(turns)[1:] if turns else None


def better(d: Directions, j: int, i: int) -> bool:
    return bool(d.saved[j] > d.saved[i] * (1 + 1e-9))


def residual_amplitude(d: Directions, i: int, j: int, growth: Growth, lead: float, k: float, q: float) -> float:
    r"""Part along $j$ of a head that has learned $i$: size at the switch age of what grows as $e^{\mu t}$.

    `lead` is the amplitude along $i$ at the moment at which `k` and `q` are the parts along $j$; signs are
    those of a positive value weight.
    """
    context, query = d.drive[i] * d.context[j] / d.context[i], d.drive[i] * d.query[j] / d.query[i]
    drive = d.drive[j]

    def field(y: Float[np.ndarray, " 2"], u: float) -> list[float]:
        X = float(scipy.special.expit(u))
        stretch = growth.rate(u) * np.cbrt(growth.held + growth.strength * X)  # d eta / du
        k, q = y
        return [stretch * (drive * q - context * X * k), stretch * (drive * k - query * X * q)]

    end = 30.0  # X is 1 to thirteen digits
    begin = min(-(2 if growth.held else 3) * float(np.log(growth.full_amplitude / lead)), end - 1)
    y = scipy.integrate.odeint(field, [k, q], [begin, end], rtol=1e-8, atol=1e-30, mxstep=10_000)[-1]
    if not np.hypot(*y) < 1e6 * growth.final_value:  # the head turns long before it is fully grown
        return growth.final_value
    rates, vectors = np.linalg.eigh(exchange_block(d, i, j, growth.final_value))
    since = float(growth.eta(end)) - growth.stretch - growth.final_value * growth.switch_age
    return float(abs(vectors[:, -1] @ y) * np.exp(-rates[-1] / growth.final_value * since))


@dataclass(frozen=True)
class Rotation:
    """The turn of a head; age 0 is when its new part, growing freely, is as large as the value weight."""

    ages: Float[np.ndarray, " n"]
    share: Float[np.ndarray, " n"]  # of the loss that the turn saves
    cubes: Float[np.ndarray, " n"]  # change of v^3

    @property
    def midpoint_age(self) -> float:
        """Age at which half of the loss that the turn saves is gone."""
        return float(np.interp(0.5, self.share, self.ages))

    @property
    def switch_age(self) -> float:
        """Age at which the new direction is switched off for all other heads."""
        return self.midpoint_age

    def fallen_at(self, age: Times) -> Times:
        """Share of the loss that is gone at an age."""
        return np.interp(age, self.ages, self.share)

    def gained(self, age: Times) -> Times:
        """What the turn has added to the cube of the head's value weight at an age."""
        return np.interp(age, self.ages, self.cubes)


def rotation(d: Directions, i: int, j: int, others: tuple[int, ...] = ()) -> Rotation:
    """The orbit from the saddle where a head holds `i` (and `others`) to the one where it holds `j` instead.

    It is unique up to its time origin, so one integration of the head's own flow gives the entire event.
    """
    check_commuting(d, "head rotation")
    axes = [i, *others, j]
    g, B, L, alpha = (x[axes] for x in (d.drive, d.context, d.query, d.strength))
    rank, size = len(axes) - 1, len(axes)
    value = np.cbrt(alpha[:-1].sum())
    K = np.eye(rank, size) * np.sqrt(alpha[:-1] / value)[:, None]
    Q = K.copy()
    rates, vectors = np.linalg.eigh(exchange_block(d, i, j, value))
    K[0, -1], Q[0, -1] = SEED * value * vectors[:, -1] * np.sign(vectors[0, -1])

    curvature = np.outer(B, L)
    field = plane_field(g, curvature) if rank == 1 else head_field(g, curvature)
    settle = abs(rotation_rate(d, j, i, np.cbrt(alpha[1:].sum())))
    horizon = (np.log(1 / SEED) + 6) / rates[-1] + 20 / settle
    start = np.concatenate([[value], K.ravel(), Q.ravel()])
    times = np.linspace(0, horizon, RECORDS)
    course = scipy.integrate.odeint(field, start, times, rtol=1e-9, atol=1e-13, mxstep=10_000)
    key, query = np.moveaxis(course[:, 1:].reshape(-1, 2, rank, size), 1, 0)
    A = course[:, 0, None, None] * (np.swapaxes(key, 1, 2) @ query)
    losses = np.sum(A**2 * curvature, axis=(1, 2)) - 2 * np.einsum("tdd,d->t", A, g)
    share = np.maximum.accumulate((losses[0] - losses) / (losses[0] - losses[-1]))
    return Rotation(times - np.log(1 / SEED) / rates[-1], share, course[:, 0] ** 3 - value**3)


def head_field(g: Float[np.ndarray, " n"], curvature: Float[np.ndarray, "n n"]) -> Callable:
    """The flow of one head that holds n - 1 directions: of its value, key and query, in one vector."""
    drive, size = np.diag(g), len(g)

    def field(y: Float[np.ndarray, " m"], _: float) -> Float[np.ndarray, " m"]:
        v, (K, Q) = y[0], y[1:].reshape(2, size - 1, size)
        G = drive - v * curvature * (K.T @ Q)
        felt = Q @ G.T
        return np.concatenate([[np.vdot(K, felt)], v * felt.ravel(), v * (K @ G).ravel()])

    return field


def plane_field(g: Float[np.ndarray, " 2"], curvature: Float[np.ndarray, "2 2"]) -> Callable:
    """The same for a head of rank one, in plain numbers: it is evaluated tens of thousands of times."""
    (g1, g2), ((m11, m12), (m21, m22)) = g.tolist(), curvature.tolist()

    def field(y: Float[np.ndarray, " 5"], _: float) -> tuple[float, ...]:
        v, k1, k2, q1, q2 = y.tolist()
        G11, G12 = g1 - v * m11 * k1 * q1, -v * m12 * k1 * q2
        G21, G22 = -v * m21 * k2 * q1, g2 - v * m22 * k2 * q2
        felt1, felt2 = G11 * q1 + G12 * q2, G21 * q1 + G22 * q2
        return k1 * felt1 + k2 * felt2, v * felt1, v * felt2, v * (G11 * k1 + G21 * k2), v * (G12 * k1 + G22 * k2)

    return field
