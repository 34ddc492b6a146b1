r"""One explicit step of order 5 with an embedded error estimate (Tsitouras 2011), for stretches that are not stiff.

$$k_i = f\big(y + h\textstyle\sum_{j<i} a_{ij} k_j\big),\qquad y_1 = y + h\sum_j a_{7j} k_j,\qquad
  \text{error} = h\sum_j e_j k_j .$$

The last two stages are both taken at the end of the step, so that their difference tells how fast nearby solutions
meet: $\varrho = |k_7 - k_6| / |y_7 - y_6|$ is close to the largest rate wherever stability limits the step, and the
step then cannot exceed about $3.3/\varrho$. Inside the step
$y_0 + h\sum_j b_j(s) k_j$ with polynomials $b_j$ has order 4. The stages are rounds of a loop, so that the right-hand
side is compiled once.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iclflow.engines.field import Equation, State
from iclflow.system.compiled import put

__all__ = ["LIMIT", "explicit_step", "padded"]

LIMIT = 3.3  # of the step times the largest rate
A = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
)
E = (
    -0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995, -0.1447110071732629, 0.5823571654525552,
    -0.45808210592918697, 1 / 66,
)  # fmt: skip
B = (  # of s^2, s^3 and s^4 in every b_j
    (-2.763706197274826, 2.9132554618219126, -1.0530884977290216),
    (0.13169999999999998, -0.2234, 0.1017),
    (3.9302962368947516, -5.941033872131505, 2.490627285651253),
    (-12.411077166933676, 30.33818863028232, -16.548102889244902),
    (37.50931341651104, -88.1789048947664, 47.37952196281928),
    (-27.896526289197286, 65.09189467479366, -34.87065786149661),
    (1.5, -4.0, 2.5),
)
BEND = -np.array(B)[:, ::-1].cumsum(1)[:, ::-1].T  # the same in the form of `rosenbrock.between`


def padded(rows: tuple[tuple[float, ...], ...], length: int) -> np.ndarray:
    """Rows of a lower triangle as a matrix."""
    return np.array([row + (0.0,) * (length - len(row)) for row in rows])


def explicit_step(
    field: Equation, y: State, f: State, h: Float[Array, ""]
) -> tuple[State, State, State, Float[Array, "3 G p"], Float[Array, ""]]:
    """From the state `y` with velocity `f` over the time `h`.

    Args:
        field: the right-hand side.
        y: the state.
        f: its velocity.
        h: the step.

    Returns:
        The new state and its velocity, the error estimate, what `between` needs for the states on the way, and the
        largest rate as far as it shows.
    """

    def stage(i: Array, carry: tuple[Array, State, State]) -> tuple[Array, State, State]:
        stages, _, before = carry
        end = y + h * jnp.tensordot(jnp.asarray(padded(A, 7))[i], stages, 1)
        return put(stages, i + 1, field.velocity(end)), before, end

    first = put(jnp.zeros((7, *y.shape)), 0, f)
    stages, before, end = jax.lax.fori_loop(0, 6, stage, (first, y, y))
    error, *bend = h * jnp.tensordot(np.array([E, *BEND]), stages, 1)
    apart = jnp.linalg.norm(end - before)
    rate = jnp.linalg.norm(stages[6] - stages[5]) / jnp.where(apart > 0, apart, 1.0)
    return end, stages[6], error, jnp.stack(bend), rate
