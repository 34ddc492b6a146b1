"""A run summarised in one line: how many drops its loss has, and how far it is from theory."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from iclflow.comparison.comparing import Comparison, compare_one
from iclflow.comparison.plateaus import find_drops
from iclflow.errors import BadInput
from iclflow.results.run import Run

__all__ = ["Account", "account"]


@dataclass(frozen=True)
class Account:
    """Drops and comparison of every seed; without a theory `comparisons` is empty and `why_not` gives the reason."""

    drops: list[int]
    comparisons: list[Comparison]
    why_not: str

    def __str__(self) -> str:
        theory = against_theory(self.comparisons, with_times=max(self.drops) > 0)
        return ", ".join(part for part in (count(self.drops), theory) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the account, ready for JSON."""
        return {"drops": self.drops, "comparison": [c.to_dict() for c in self.comparisons], "no_theory": self.why_not}


def account(run: Run) -> Account:
    """Count the drops of every seed and compare the run with theory."""
    drops = [count_drops(run.select(seed)) for seed in run.seeds]
    try:
        comparisons = [compare_one(run.select(seed), None) for seed in run.seeds]
    except BadInput as error:  # no theory for this run, such as softmax
        return Account(drops, [], str(error))
    return Account(drops, comparisons, "")


def count_drops(run: Run) -> int:
    """The number of drops in the finite part of the loss curve."""
    curves = run.arrays("curves")
    finite = np.isfinite(curves["loss"])
    time, loss = curves["time"][finite], curves["loss"][finite]
    return len(find_drops(time, loss).times) if len(time) > 2 else 0


def count(drops: list[int]) -> str:
    """`in 4 drops`, or the range over seeds, `in 3 to 4 drops`."""
    fewest, most = min(drops), max(drops)
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"in {number} drop{'' if fewest == most == 1 else 's'}" if most else "without a drop"


def against_theory(comparisons: list[Comparison], with_times: bool) -> str:
    """The largest deviations of plateaus, drop times and mean loss from theory over all seeds."""
    if not comparisons:
        return ""
    levels = [abs(p.observed_level / p.predicted_level - 1) for c in comparisons for p in c.plateaus]
    times = [drop.error for c in comparisons for drop in c.drops if drop.error is not None]
    phrases = []
    if levels:
        phrases.append(f"plateaus within {max(levels):.2g} of theory")
    if times and with_times:
        phrases.append(f"drop times within {max(times):.2g}")
    until = " until it blows up" if any(c.blown_up for c in comparisons) else ""
    phrases.append(f"mean gap {max(c.mean_gap for c in comparisons):.2g}{until}")
    return ", ".join(phrases)
