"""What happened in a run, in a line: drops found on the curve, and theory beside them where there is one."""

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
    """One entry a seed; `comparisons` is empty where there is no theory, and `why_not` says why."""

    drops: list[int]
    comparisons: list[Comparison]
    why_not: str

    def __str__(self) -> str:
        return ", ".join(part for part in (count(self.drops), against_theory(self.comparisons)) if part)

    def to_dict(self) -> dict[str, Any]:
        return {"drops": self.drops, "comparison": [c.to_dict() for c in self.comparisons], "no_theory": self.why_not}


def account(run: Run) -> Account:
    drops = [count_drops(run.select(seed)) for seed in run.seeds]
    try:
        comparisons = [compare_one(run.select(seed), None) for seed in run.seeds]
    except BadInput as error:  # no theory for this run, such as softmax
        return Account(drops, [], str(error))
    return Account(drops, comparisons, "")


def count_drops(run: Run) -> int:
    """Of the finite part of the curve; the softest test of what happened there is."""
    finite = np.isfinite(run.loss.values)
    time, loss = run.time.values[finite], run.loss.values[finite]
    return len(find_drops(time, loss).times) if len(time) > 2 else 0


def count(drops: list[int]) -> str:
    """`in 4 drops`, or of many seeds the range."""
    fewest, most = min(drops), max(drops)
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"in {number} drop{'' if fewest == most == 1 else 's'}" if most else "without a drop"


def against_theory(comparisons: list[Comparison]) -> str:
    """How far plateaus and drop times are from theory, the worst of the seeds."""
    if not comparisons:
        return ""
    levels = [abs(p.observed_level / p.predicted_level - 1) for c in comparisons for p in c.plateaus]
    times = [drop.error for c in comparisons for drop in c.drops if drop.error is not None]
    told = []
    if levels:
        told.append(f"plateaus within {max(levels):.2g} of theory" if max(levels) < 0.1 else "")
    if times:
        told.append(f"drop times within {max(times):.2g}")
    told.append(f"mean gap {max(c.mean_gap for c in comparisons):.2g}")
    return ", ".join(part for part in told if part)
