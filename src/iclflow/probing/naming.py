r"""From distances to a name.

The nearest candidate is named if its mean squared distance is at most `THRESHOLD` of the zero predictor's loss, fixed
beforehand; otherwise the answer is "none of these". A candidate with a number fitted to the subject has to earn its
place: it is named only if it is nearer than all others by the factor `EARNED`, and by more than `SETTLED`. Ties are the
candidates within `TIE` of the named one. The margin is by how much the next candidate with another answer, not tied, is
further away [`naming`].
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from iclflow.probing.candidates import Entry, Sets

__all__ = ["THRESHOLD", "Verdict", "by_label", "name"]

THRESHOLD = 0.02  # of the zero predictor's loss
TIE = THRESHOLD / 10
EARNED = 4.0
SETTLED = 1e-4  # what a run that counts as settled may still be away from its end; no fitted number is needed for it
ROUNDING = 1e-9  # nearer than this all are equal, and the simplest is named
FITTED = 5  # candidates of this order and beyond have a number fitted to the subject


@dataclass(frozen=True)
class Verdict:
    """Which algorithm a snapshot runs."""

    algorithm: str  # zero, pcr, least_squares, ridge, gd, in_weight or none
    components: tuple[int, ...]  # eigenvectors learned, from 1
    label: str  # the nearest candidate in words, named or not
    key: str  # the same in the table of distances
    distance: float
    margin: float
    runner_up: str
    ties: tuple[str, ...]  # labels within TIE of the named one, itself included
    tied_algorithms: tuple[str, ...]
    parameter: float | None = None
    parameter_name: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.algorithm == "none":
            return f"none of these (nearest: {self.label}, distance {self.distance:.2g})"
        fitted = f" ({self.parameter_name} {self.parameter:.3g})" if self.parameter is not None else ""
        others = [label for label in self.ties if label != self.label]
        tied = f"; tied with {', '.join(others)}" if others else ""
        next_one = f"margin {self.margin:.2g} to {self.runner_up}"
        return f"{self.label}{fitted}, distance {self.distance:.2g}, {next_one}{tied}"


class Choice(NamedTuple):
    """A candidate as it stands before one snapshot."""

    label: str
    key: str
    family: str
    order: int
    components: tuple[int, ...]
    distance: float

    @property
    def answer(self) -> tuple[str, tuple[int, ...]]:
        return self.family, self.components


def by_label(entries: dict[str, Entry], sets: Sets, t: int) -> dict[str, Choice]:
    """Every candidate once; a set of components that training would not learn first has a label of its own."""
    found = {}
    for key, entry in entries.items():
        label = key
        if key.startswith("pcr set"):
            mask, order = (sets.shrunk, sets.order) if key.endswith("shrunk") else (sets.ideal, np.arange(sets.size))
            chosen = np.flatnonzero(mask[t])
            if set(chosen) == set(order[: len(chosen)]):
                continue  # the leading components: listed already
            label = f"pcr {{{','.join(str(i + 1) for i in chosen)}}}" + key.removeprefix("pcr set")
        has = components(key, sets, t)
        found[label] = Choice(label, key, entry.family, entry.order, has, float(entry.distance[t]))
    return found


def name(entries: dict[str, Entry], sets: Sets, t: int) -> Verdict:
    """The verdict on one snapshot [`naming`]."""
    found = by_label(entries, sets, t)
    best = chosen(list(found.values()))
    accepted = best.distance <= THRESHOLD
    nearest_first = sorted(found.values(), key=lambda one: one.distance)
    ties = [one for one in nearest_first if one.distance <= best.distance + TIE and comparable(one, best)]
    others = [one for one in nearest_first if one not in ties and one.answer != best.answer and comparable(one, best)]
    runner_up = others[0] if others else best
    entry = entries[best.key]
    return Verdict(
        algorithm=best.family if accepted else "none",
        components=best.components if accepted else components("", sets, t),
        label=best.label,
        key=best.key,
        distance=best.distance,
        margin=runner_up.distance - best.distance,
        runner_up=runner_up.label,
        ties=tuple(one.label for one in ties) if accepted else (),
        tied_algorithms=tuple(dict.fromkeys(one.family for one in ties)) if accepted else (),
        parameter=None if entry.parameter is None else float(entry.parameter[t]),
        parameter_name=entry.meaning,
    )


def chosen(found: list[Choice]) -> Choice:
    """The nearest, unless it is a fitted one that has not earned it."""
    plain = nearest([one for one in found if one.order < FITTED])
    fitted = nearest([one for one in found if one.order >= FITTED])
    allowed = TIE if plain.key == "zero" else SETTLED  # what is fitted can always shrink to nothing
    unearned = plain.distance <= min(EARNED * fitted.distance + allowed, THRESHOLD)
    return plain if unearned or plain.distance <= fitted.distance else fitted


def nearest(found: list[Choice]) -> Choice:
    least = min(one.distance for one in found)
    return min((one for one in found if one.distance <= least + ROUNDING), key=lambda one: (one.order, one.distance))


def comparable(one: Choice, best: Choice) -> bool:
    """Fitted candidates say nothing beside zero, which all of them contain."""
    return best.key != "zero" or one.order < FITTED


def components(key: str, sets: Sets, t: int) -> tuple[int, ...]:
    """Those of the named set; for what is not a set, those at more than half strength."""
    chosen = np.flatnonzero(sets.shrunk[t])
    if key.startswith(("zero", "least squares")):
        chosen = np.arange(0 if key == "zero" else sets.size)
    elif key.startswith("pcr-"):
        count = int(key.removeprefix("pcr-").split()[0])
        chosen = np.sort(sets.order[:count]) if key.endswith("shrunk") else np.arange(count)
    elif key == "pcr set":
        chosen = np.flatnonzero(sets.ideal[t])
    return tuple(int(i) + 1 for i in chosen)
