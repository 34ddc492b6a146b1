r"""Descent as a flow: the field that steps of finite size follow [`descent-field`].

Steps $y_{n+1} = y_n + h f(y_n)$ lie on the flow of a field that is near $f$,

$$\tilde f = f - \tfrac h2 f'f + O(h^2),$$

so a solver for flows also predicts descent, its lag and the winners of near ties included, without taking its steps.
For a gradient, $f = -\nabla E$, it is that of $E + \tfrac h4|\nabla E|^2$; no fixed point moves.

Derivatives along $f$ are central differences: the fields here are polynomials of low degree. What a solver calls ten
thousand times is not checked at run time (`no_type_check`).
"""

from collections.abc import Callable
from typing import no_type_check

import numpy as np
from jaxtyping import Float

__all__ = ["along", "stepped", "stepped_jacobian"]

State = Float[np.ndarray, "*shape"]
Field = Callable[[State], State]

NUDGE = 1e-4  # of the largest number of the state, for differences


@no_type_check
def along(function: Callable[[float], np.ndarray], state: State, velocity: State) -> np.ndarray:
    """The derivative of a function of time, at time 0, at which the state has this velocity."""
    fastest = float(np.abs(velocity).max(initial=0.0))
    nudge = NUDGE * float(np.abs(state).max(initial=0.0)) / fastest if fastest > 0 else 1.0
    return (function(nudge) - function(-nudge)) / (2 * nudge)


@no_type_check
def stepped(field: Field, y: State, step: float) -> State:
    """The field that descent follows [`descent-field`].

    Args:
        field: The right-hand side f.
        y: The state.
        step: The step h in the time of the flow; 0 gives f itself.

    Returns:
        Its velocity at y.
    """
    velocity = field(y)
    if step == 0:
        return velocity
    return velocity - step / 2 * along(lambda t: field(y + t * velocity), y, velocity)


def stepped_jacobian(
    field: Field, jacobian: Callable[[State], Float[np.ndarray, "n n"]], y: State, step: float
) -> Float[np.ndarray, "n n"]:
    r"""Its derivative, $J - \tfrac h2(J^2 + J'f)$ with the derivative $J'f$ of $J$ along $f$ [`descent-field`].

    Args:
        field: The right-hand side f.
        jacobian: Its derivative J at a state.
        y: The state.
        step: The step h in the time of the flow.

    Returns:
        The matrix.
    """
    J = jacobian(y)
    if step == 0:
        return J
    velocity = field(y)
    return J - step / 2 * (J @ J + along(lambda t: jacobian(y + t * velocity), y, velocity))
