"""The comparisons of several seeds of one run."""

from collections.abc import Sequence
from typing import Any, overload

from iclflow.comparison.comparing import Comparison
from iclflow.comparison.levels import LevelComparison
from iclflow.results.card import Card, Table, WithCard, relative

__all__ = ["Comparisons"]


class Comparisons(WithCard, Sequence[Comparison | LevelComparison]):
    """A run of several seeds beside theory: a sequence that prints one row a seed, and in full what has only levels."""

    def __init__(self, comparisons: Sequence[Comparison | LevelComparison]) -> None:
        self.comparisons = list(comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    @overload
    def __getitem__(self, index: int) -> Comparison | LevelComparison: ...
    @overload
    def __getitem__(self, index: slice) -> "Comparisons": ...
    def __getitem__(self, index: int | slice) -> "Comparison | LevelComparison | Comparisons":
        return Comparisons(self.comparisons[index]) if isinstance(index, slice) else self.comparisons[index]

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON."""
        return {"runs": [one.to_dict() for one in self]}

    def card(self) -> Card:
        """One row a seed, and in full what has only levels."""
        timed = [one for one in self if isinstance(one, Comparison)]
        rows = []
        for one in timed:
            judged = [drop.inside for drop in one.drops if drop.inside is not None]
            largest = max((drop.error for drop in one.drops if drop.error is not None), default=None)
            rows.append((one.seed, f"{sum(judged)} of {len(judged)}", relative(largest), relative(one.mean_gap, 2)))
        table = Table(("seed", "drops inside their intervals", "largest error", "mean gap"), rows)
        notes = dict.fromkeys(note for one in timed for note in one.prediction.notes)
        levels = [one.card() for one in self if isinstance(one, LevelComparison)]
        return Card(f"Theory over simulation, {len(self)} seeds", [table, *notes, *levels], self.to_dict())
