r"""One linearly implicit step of order 5 that no stiffness limits: Rodas5P (Steinebach 2023, BIT 63:27).

$$\Big(\frac1{h\gamma} - f'(y)\Big)\,u_i = f\big(y + \textstyle\sum_{j<i} a_{ij} u_j\big)
  + \frac1h\sum_{j<i} c_{ij} u_j,\qquad y_1 = y + \sum_j a_{8j} u_j + u_8 .$$

Eight stages share the root of one matrix, and one compiled right-hand side: they are rounds of a loop. The method is
L-stable: what has relaxed stays relaxed at any step. $u_8$ is the error of the embedded result of order 4, and far more
than that of $y_1$ itself: a fiftieth of it is reported, with which drop times are as exact as by explicit steps.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iclflow.data.moments import AnyArray
from iclflow.engines.field import Field, State
from iclflow.engines.tsitouras import padded
from iclflow.system.compiled import put

__all__ = ["between", "implicit_step"]

SHARE = 0.02  # of the embedded error
GAMMA = 0.21193756319429014
A6 = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946)
A = (
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    A6,
    (*A6, 1.0),
    (*A6, 1.0, 1.0),
    (*A6, 1.0, 1.0, 1.0),  # the end of the step
)
C = (
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662),
    (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627),
    (),
)  # fmt: skip
BEND = (
    (25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204, 0.524948541321073,
     1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
    (-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796, 20.176138334709044,
     15.98066361424651, -6.789040303419874, -6.710236069923372),
    (11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643, -52.072871366152654,
     -59.78993625266729, -0.15582684282751913, 4.883087185713722),
)  # fmt: skip


def implicit_step(
    field: Field, y: State, f: State, h: Float[Array, ""]
) -> tuple[State, State, State, Float[Array, "3 G p"]]:
    """From the state `y` with velocity `f` over the time `h`.

    Args:
        field: the right-hand side.
        y: the state.
        f: its velocity.
        h: the step.

    Returns:
        The new state and its velocity, the error estimate, and what `between` needs for the states on the way.
    """
    solve = field.solver(y, 1 / (h * GAMMA))
    weights = jnp.asarray(np.stack([padded(A, 9), padded(C, 9)], axis=1))

    def stage(i: Array, carry: tuple[Array, State, State]) -> tuple[Array, State, State]:
        stages = carry[0]
        moved, pulled = jnp.tensordot(weights[i], stages, 1)
        velocity = field.velocity(y + moved)
        return put(stages, i + 1, solve(velocity + pulled / h)), y + moved, velocity

    first = put(jnp.zeros((9, *y.shape)), 0, solve(f))
    stages, end, velocity = jax.lax.fori_loop(0, 8, stage, (first, y, f))  # of the last round only the velocity counts
    return end, velocity, SHARE * stages[7], jnp.tensordot(np.array(BEND), stages[:8], 1)


def between(first: Float[AnyArray, "G p"], last: Float[AnyArray, "G p"], bend: Float[AnyArray, "3 G p"], s: Any) -> Any:
    """The state at the share `s` of a step, to order 4."""
    return (1 - s) * first + s * last + s * (1 - s) * (bend[0] + s * (bend[1] + s * bend[2]))
