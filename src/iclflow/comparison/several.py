"""The comparisons of several seeds of one run."""

from collections.abc import Sequence
from typing import Any, overload

from iclflow.comparison.comparing import Comparison
from iclflow.comparison.levels import LevelComparison
from iclflow.system.notebook import card, table

__all__ = ["Comparisons"]

HEADING = ("seed", "drops inside their intervals", "largest error", "mean gap")


class Comparisons(Sequence[Comparison | LevelComparison]):
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

    def rows(self) -> list[tuple[int, str, str, str]]:
        """Seed, drops inside of those that can be judged, largest error of a drop time, mean gap."""
        return [row_of(one) for one in self if isinstance(one, Comparison)]

    def __str__(self) -> str:
        rows = self.rows()
        lines = [HEADING, *((str(seed), *rest) for seed, *rest in rows)] if rows else []
        table = [f"  {seed:>4s}   {drops:28s}   {error:13s}   {gap}" for seed, drops, error, gap in lines]
        notes = dict.fromkeys(note for one in self if isinstance(one, Comparison) for note in one.prediction.notes)
        levels = (str(one) for one in self if isinstance(one, LevelComparison))
        return "\n".join([*table, *(f"  {note}" for note in notes), *levels])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same table, for notebooks."""
        levels = (one._repr_html_() for one in self if isinstance(one, LevelComparison))
        return card(f"Theory over simulation, {len(self)} seeds", table(self.rows(), HEADING), *levels)


def row_of(one: Comparison) -> tuple[int, str, str, str]:
    """The row of a seed."""
    judged = [drop.inside for drop in one.drops if drop.inside is not None]
    errors = [drop.error for drop in one.drops if drop.error is not None]
    return one.seed, f"{sum(judged)} of {len(judged)}", f"{max(errors):.2%}" if errors else "-", f"{one.mean_gap:.2e}"
