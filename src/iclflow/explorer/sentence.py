"""What is happening at a moment, in plain words."""

import numpy as np
from jaxtyping import Float

__all__ = ["sentence"]

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen")  # fmt: skip
MOVING = (0.05, 0.9)  # a gain between these is on its way


def sentence(
    one_by_one: bool, time: float, gains: Float[np.ndarray, " D"], most: int, drops: Float[np.ndarray, " m"]
) -> str:
    """From the gains of all components; `most` is how many the model can hold, `drops` are predicted times."""
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
    if learned == 0 and not moving:
        return f"the plateau: nothing learned yet{ahead}"
    if learned == dim and not moving:
        return f"the end: all {WORDS[dim]} components learned"
    return f"the drop: {count(learned, dim)}, the others on their way"


def count(learned: int, dim: int) -> str:
    return f"{WORDS[learned]} of {WORDS[dim]} components learned"
