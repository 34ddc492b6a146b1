"""What became of one seed: the curve, the weights on the way, and how it ended. Both ways down return it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from iclflow.models import Weights

if TYPE_CHECKING:
    from iclflow.data.moments import Moments

__all__ = ["Outcome", "finite_or_none"]


@dataclass(frozen=True)
class Outcome:
    """Engines fill in the first half, on the trained part of the weights; training replaces and adds the rest."""

    times: Float[np.ndarray, " T"]  # t/tau
    losses: Float[np.ndarray, "T columns"]  # training, then tests
    recorded: Int[np.ndarray, " K"]  # which of the T times have weights
    snapshots: list[Weights]
    why: str = ""  # of the flow: "reached" the end, "settled", ran out of "steps", or what went wrong
    optimizer_state: list[np.ndarray] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    warnings: tuple[str, ...] = ()
    seed: int = 0
    initial: Weights = field(default_factory=dict)
    seconds: float = 0.0
    moments: "Moments | None" = None  # of the label blocks, where training saw a sample


def finite_or_none(value: float | np.floating) -> float | None:
    """The number, or `None` for NaN and infinity, which JSON cannot hold."""
    return float(value) if np.isfinite(value) else None
