r"""Adam's two regimes, on the clock learning rate x step.

Where gradients are far above $\epsilon$, every entry moves by the learning rate in each step, whatever its gradient:
the time to learn is of the order of the size $c = (g/m)^{1/3}$ of the learned weights, it does not depend on the
initial weights, and there is no staircase. Where $\epsilon$ is larger than the gradients, Adam is gradient descent with
the learning rate $\eta/\epsilon$: a drop that the flow makes at $T$ comes after $\eta n = T\epsilon/r$ ($r$ the clock
rate, 2 for one output), so the staircase and its law $T\propto 1/\text{init}$ return [`adam-regimes`].

Which one a training is in is decided by the longer of the two times, $T\epsilon/r$ against $c$, and not by the first
gradient against $\epsilon$: gradients that begin below $\epsilon$ may pass it long before anything is learned.
"""

from typing import Literal, NamedTuple

__all__ = ["EPSILON", "AdamRegime", "adam_regime"]

EPSILON = 1e-8  # of the engines, and of most programs
FACTOR = 3.0  # by which one time must exceed the other

Name = Literal["epsilon", "entries", "between"]


class AdamRegime(NamedTuple):
    """In which regime a training is: its name, and t/tau that passes while learning rate x step grows by one."""

    name: Name
    pace: float
    note: str


def adam_regime(time: float, size: float, rate: float, epsilon: float = EPSILON) -> AdamRegime:
    r"""Which of Adam's regimes the first drop is in [`adam-regimes`].

    >>> adam_regime(500.0, 1.0, 2.0).name, adam_regime(1e10, 1.0, 2.0).name
    ('entries', 'epsilon')
    """
    slow, pace = time * epsilon / rate, rate / epsilon
    compared = f"learning rate x step would be {slow:.2g} by descent with lr/eps, {size:.2g} at one lr a step"
    if slow > FACTOR * size:
        return AdamRegime("epsilon", pace, f"adam: gradients are below eps, so it is descent with lr/eps ({compared})")
    if slow < size / FACTOR:
        note = f"adam: every entry moves by lr in a step, so there is no staircase to predict ({compared})"
        return AdamRegime("entries", pace, note)
    note = f"adam: between its two regimes, so there are no times to predict ({compared})"
    return AdamRegime("between", pace, note)
