"""What a prediction holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from jaxtyping import Float, Int

from iclflow.results.card import Card, WithCard

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Curve", "Prediction", "Predictions", "Times"]

Times = Float[np.ndarray, " T"]
Curve = Callable[[Times], np.ndarray]
Method = Literal["closed", "reduced", "followed"]


@dataclass(frozen=True, repr=False)
class Prediction(WithCard):
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON; heads and directions count from 1, -1 is all at once."""
        number = lambda x: None if np.isnan(x) else float(x)
        return {
            "levels": self.levels.tolist(),
            "drop_times": self.drop_times.tolist(),
            "drop_intervals": [[number(low), number(high)] for low, high in self.drop_intervals],
            "heads": [int(i + (i >= 0)) for i in self.heads],
            "directions": [int(i + (i >= 0)) for i in self.directions],
            "head_shares": [number(share) for share in self.head_shares],
            "never": [i + 1 for i in self.never],
            "floors": self.floors.tolist(),
            "reliable": self.reliable,
            "notes": list(self.notes),
            "method": self.method,
        }

    def card(self) -> Card:
        """The curve, the drops and the notes."""
        from iclflow.prediction.card import prediction_card

        return prediction_card(self)


class Predictions(WithCard, Sequence[Prediction]):
    """The predictions of several seeds: a sequence, with what they share as arrays over seed and drop (from 1)."""

    def __init__(self, seeds: Sequence[int], predictions: Sequence[Prediction]) -> None:
        self.seeds, self.predictions = list(seeds), list(predictions)

    def __len__(self) -> int:
        return len(self.predictions)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            return Predictions(self.seeds[index], self.predictions[index])
        return self.predictions[index]

    @property
    def drop_times(self) -> "xr.DataArray":
        """Times over (seed, drop); NaN where a seed has fewer drops."""
        return self.labelled("drop_time", "time t/tau of a drop", lambda p: p.drop_times)

    @property
    def drop_intervals(self) -> "xr.DataArray":
        """The 95 % intervals over (seed, drop, end); the ends are `low` and `high`."""
        return self.labelled(
            "drop_interval", "95 % interval of a drop time", lambda p: p.drop_intervals, end=["low", "high"]
        )

    @property
    def reliable(self) -> "xr.DataArray":
        """Whether the theory is inside its range, over seed."""
        import xarray as xr

        return xr.DataArray([p.reliable for p in self], dims="seed", coords={"seed": self.seeds}, name="reliable")

    def labelled(
        self, name: str, about: str, part: Callable[[Prediction], np.ndarray], **more: list[str]
    ) -> "xr.DataArray":
        """A part of every prediction, filled up with NaN."""
        import xarray as xr

        most = max(len(p.drop_times) for p in self)
        rows = np.full((len(self), most, *(len(labels) for labels in more.values())), np.nan)
        for row, p in zip(rows, self, strict=True):
            row[: len(p.drop_times)] = part(p)
        coords = {"seed": self.seeds, "drop": np.arange(1, most + 1), **more}
        return xr.DataArray(rows, dims=tuple(coords), coords=coords, name=name, attrs={"long_name": about})

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON."""
        return {"predictions": [{"seed": s, **p.to_dict()} for s, p in zip(self.seeds, self, strict=True)]}

    def card(self) -> Card:
        """All curves, and one row of drop times a seed."""
        from iclflow.prediction.card import predictions_card

        return predictions_card(self)
