"""One sentence on what is happening at a given time."""

import numpy as np
from jaxtyping import Float

__all__ = ["sentence"]

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen")  # fmt: skip
MOVING = (0.05, 0.9)  # a component is being learned while its gain is between these


def sentence(
    one_by_one: bool, time: float, gains: Float[np.ndarray, " D"], most: int, drops: Float[np.ndarray, " m"]
) -> str:
    """The sentence for the gains of all components.

    `most` is the number of components that the model can hold, `drops` are the predicted drop times.
    """
    if not np.isfinite(gains).all():
        return "training has diverged"
    dim, learned = len(gains), int(np.sum(gains > 0.5))
    moving = np.flatnonzero((gains > MOVING[0]) & (gains < MOVING[1]))
    coming = [t for t in drops if t > time]
    ahead = f"; next drop predicted at t = {coming[0]:.4g}" if coming else ""
    if not one_by_one:
        return merged_words(learned, len(moving), dim, ahead)
    if len(moving):
        which = " and ".join(str(i + 1) for i in moving[:3])
        return f"drop {min(learned + 1, most)} of {most}: component {which} is being learned"
    if learned >= most:
        rest = "the end: " if most == dim else "the heads are full: "
        return f"{rest}{count(learned, dim)}"
    return f"plateau {learned + 1} of {most + 1}: {count(learned, dim)}{ahead}"


def merged_words(learned: int, moving: int, dim: int, ahead: str) -> str:
    """The sentence for models that learn all components in one drop."""
    if learned == 0 and not moving:
        return f"the plateau: nothing learned yet{ahead}"
    if learned == dim and not moving:
        return f"the end: all {WORDS[dim]} components learned"
    return f"the drop: {count(learned, dim)}, the others on their way"


def count(learned: int, dim: int) -> str:
    """How many components are learned."""
    return f"{WORDS[learned]} of {WORDS[dim]} components learned"
