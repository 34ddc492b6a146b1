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

import numpy as np

from iclflow.theory.landscape import Directions
from iclflow.theory.separate import check_commuting, exchange_block

__all__ = ["learning_path", "rotation_rate"]


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
