"""What a prediction holds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

__all__ = ["Curve", "Prediction", "Times"]

Times = Float[np.ndarray, " T"]
Curve = Callable[[Times], np.ndarray]
Method = Literal["closed", "reduced", "followed"]


@dataclass(frozen=True, repr=False)
class Prediction:
    """The predicted training run; all times are t/tau, heads and directions are indices from 0.

    `head_shares` says how sure head and direction of a drop are: the share of the direction that the head will hold, 1
    if it holds it alone, or 0 where two settings of the theory name different heads or directions, so that small
    effects decide. Printed, heads and directions count from 1.
    """

    levels: Float[np.ndarray, " levels"]  # loss before the first drop and after each of the m drops
    drop_times: Float[np.ndarray, " m"]  # when half of each drop is done
    heads: Int[np.ndarray, " m"]  # which head learns; -1 if all learn at once
    directions: Int[np.ndarray, " m"]  # which eigen-direction (from 0) is learned; -1 if all are learned at once
    loss: Callable[[Times], Times]
    values: Callable[[Times], Float[np.ndarray, "T H"]]
    never: tuple[int, ...] = ()  # eigen-directions (from 0) that weight decay keeps from being learned
    reliable: bool = True  # False where the theory is outside its range
    notes: tuple[str, ...] = ()  # sentences that say why, or what else one should know
    drop_intervals: Float[np.ndarray, "m 2"] = field(default_factory=lambda: np.empty((0, 2)))  # 95 % of each drop time
    head_shares: Float[np.ndarray, " m"] = field(default_factory=lambda: np.empty(0))  # see above
    floors: Float[np.ndarray, "*levels"] = field(default_factory=lambda: np.empty(0))  # of minibatches, in the levels
    method: Method = "closed"  # formulas; reduced: equations of theory, solved; followed: the model's own, solved

    def __post_init__(self) -> None:
        if len(self.drop_intervals) != len(self.drop_times):  # a theory that does not know its error
            object.__setattr__(self, "drop_intervals", np.full((len(self.drop_times), 2), np.nan))
        if len(self.head_shares) != len(self.drop_times):
            object.__setattr__(self, "head_shares", np.full(len(self.drop_times), np.nan))

    def moved(self, times: Float[np.ndarray, " n"], **changes: Any) -> "Prediction":
        """The same with the first drops at other times, whose intervals are as wide in relation to them.

        Args:
            times: The new times; fewer than before if later drops do not come.
            changes: Other fields that change.

        Returns:
            The changed prediction.
        """
        n = len(times)
        ratio = times / self.drop_times[:n]
        kept = {"drop_intervals": self.drop_intervals[:n] * ratio[:, None], "head_shares": self.head_shares[:n]}
        kept |= {"heads": self.heads[:n], "directions": self.directions[:n]}
        return replace(self, **{**kept, "drop_times": times, **changes})

    def noted(self, *notes: str) -> "Prediction":
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def unknown_values(self) -> Callable[[Times], Float[np.ndarray, "T H"]]:
        """Value weights that theory does not give."""
        heads = self.values(np.zeros(1)).shape[1]
        return lambda t: np.full((len(t), heads), np.nan)

    @property
    def levels_alone(self) -> "Prediction":
        """The levels, where no times are known."""
        unknown = lambda t: np.full(np.shape(t), np.nan)
        return self.moved(np.array([]), loss=unknown, values=self.unknown_values)

    @property
    def end(self) -> float:
        """A time well after the last drop."""
        last = self.drop_times[-1] if len(self.drop_times) else 1.0
        return 1.25 * float(last) + 1.0

    def __repr__(self) -> str:
        from iclflow.prediction.notebook import prediction_text

        return prediction_text(self)

    def _repr_html_(self) -> str:
        """The predicted curve and a table of its drops, for notebooks."""
        from iclflow.prediction.notebook import prediction_card

        return prediction_card(self)
