r"""A snapshot on its way from one fixed point to the next.

Training moves from $M_S$ to $M_{S\cup\{f\}}$ along $A = A_S + s\,\alpha_fe_fe_f'$, $0 < s < 1$ [`between`]. Such a
matrix can lie near a step of gradient descent or near ridge regression without being either, so the way between is
measured too: $f$ is the component whose gain is nearest to one half, $s$ its gain, $S$ the others that are learned.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.probing.components import Components

__all__ = ["Between", "between", "set_label"]

PART = (0.1, 0.9)  # a share outside of this is that of a component that is absent or learned
MIDDLE = (1 / 3, 2 / 3)  # a share inside of this belongs to neither fixed point


@dataclass(frozen=True)
class Between:
    """The two fixed points around a snapshot, and how far it is from the way between them."""

    labels: tuple[str, str]
    component: int  # the one on its way, from 1
    share: float  # of its strength
    distance: float

    @property
    def partial(self) -> bool:
        """Whether the component is neither absent nor learned."""
        return PART[0] < self.share < PART[1]

    @property
    def halfway(self) -> bool:
        """Whether neither of the two fixed points has a better claim."""
        return MIDDLE[0] < self.share < MIDDLE[1]

    def __str__(self) -> str:
        return f"between {self.labels[0]} and {self.labels[1]} ({self.share:.0%} of component {self.component})"


def between(
    form: Components,
    gain: Float[np.ndarray, "T D"],
    strength: Float[np.ndarray, " D"],
    order: Int[np.ndarray, " D"],
) -> tuple[Between, ...]:
    """For every snapshot the nearest way between two fixed points [`between`]."""
    rows = np.arange(len(gain))
    on_its_way = np.abs(gain - 0.5).argmin(axis=1)
    share = np.clip(gain[rows, on_its_way], 0.0, 1.0)
    before = gain > 0.5
    before[rows, on_its_way] = False
    after = before.copy()
    after[rows, on_its_way] = True
    strengths = before * strength
    strengths[rows, on_its_way] = share * strength[on_its_way]
    distance = form.distance(strengths)
    return tuple(
        Between(
            (set_label(before[t], order), set_label(after[t], order)),
            int(on_its_way[t]) + 1,
            float(share[t]),
            float(distance[t]),
        )
        for t in rows
    )


def set_label(learned: Bool[np.ndarray, " D"], order: Int[np.ndarray, " D"]) -> str:
    """The name of a fixed point, as in the list of candidates."""
    chosen = np.flatnonzero(learned)
    if len(chosen) == 0:
        return "zero"
    if len(chosen) == len(order):
        return "least squares shrunk"
    if set(chosen) == set(order[: len(chosen)]):
        return f"pcr-{len(chosen)} shrunk"
    return f"pcr {{{','.join(str(i + 1) for i in chosen)}}} shrunk"
