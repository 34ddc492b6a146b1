r"""From distances to the name of an algorithm.

The nearest candidate is named if its mean squared distance is at most `THRESHOLD` of the zero predictor's loss, fixed
beforehand; otherwise the answer is "none of these". A candidate with a parameter fitted to the subject is named only if
it is nearer than all others by the factor `EARNED`, and by more than `SETTLED`. Candidates within `TIE` of the named
one are tied with it. The margin is how much further away the next candidate with another answer is [`naming`].
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from iclflow.probing.candidates import Entry, Sets

__all__ = ["THRESHOLD", "Verdict", "by_label", "name"]

THRESHOLD = 0.02  # of the zero predictor's loss
TIE = THRESHOLD / 10
EARNED = 4.0
SETTLED = 1e-4  # a settled run may still be this far from its limit, without any fitted parameter
ROUNDING = 1e-9  # differences below this do not count, and the simplest candidate is named
FITTED = 5  # candidates of this order or higher have a parameter fitted to the subject


@dataclass(frozen=True)
class Verdict:
    """The algorithm that a snapshot implements."""

    algorithm: str  # zero, pcr, least_squares, ridge, gd, in_weight or none
    components: tuple[int, ...]  # eigenvectors learned, from 1
    label: str  # the nearest candidate, named or not
    key: str  # its key in the table of entries
    distance: float
    margin: float
    runner_up: str
    ties: tuple[str, ...]  # labels within TIE of the named one, itself included
    tied_algorithms: tuple[str, ...]
    parameter: float | None = None
    parameter_name: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if self.algorithm == "none":
            return f"none of these (nearest: {self.label}, distance {self.distance:.2g})"
        fitted = f" ({self.parameter_name} {self.parameter:.3g})" if self.parameter is not None else ""
        others = [label for label in self.ties if label != self.label]
        tied = f"; tied with {', '.join(others)}" if others else ""
        margin = f"margin {self.margin:.2g} to {self.runner_up}"
        return f"{self.label}{fitted}, distance {self.distance:.2g}, {margin}{tied}"


class Choice(NamedTuple):
    """A candidate and its distance to one snapshot."""

    label: str
    key: str
    family: str
    order: int
    components: tuple[int, ...]
    distance: float

    @property
    def answer(self) -> tuple[str, tuple[int, ...]]:
        """Algorithm and components."""
        return self.family, self.components


def by_label(entries: dict[str, Entry], sets: Sets, t: int) -> dict[str, Choice]:
    """Every candidate once, by label; sets other than the leading components are labelled by their members."""
    choices = {}
    for key, entry in entries.items():
        label = key
        if key.startswith("pcr set"):
            mask, order = (sets.shrunk, sets.order) if key.endswith("shrunk") else (sets.ideal, np.arange(sets.size))
            chosen = np.flatnonzero(mask[t])
            if set(chosen) == set(order[: len(chosen)]):
                continue  # the leading components are in the list already
            label = f"pcr {{{','.join(str(i + 1) for i in chosen)}}}" + key.removeprefix("pcr set")
        distance = float(entry.distance[t])
        choices[label] = Choice(label, key, entry.family, entry.order, components(key, sets, t), distance)
    return choices


def name(entries: dict[str, Entry], sets: Sets, t: int) -> Verdict:
    """The verdict on one snapshot [`naming`]."""
    choices = list(by_label(entries, sets, t).values())
    best = chosen(choices)
    accepted = best.distance <= THRESHOLD
    nearest_first = sorted(choices, key=lambda one: one.distance)
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


def chosen(choices: list[Choice]) -> Choice:
    """The nearest candidate, unless it is a fitted one that is not near enough to be preferred."""
    plain = nearest([one for one in choices if one.order < FITTED])
    fitted = nearest([one for one in choices if one.order >= FITTED])
    allowed = TIE if plain.key == "zero" else SETTLED  # a fitted candidate can always shrink to zero
    unearned = plain.distance <= min(EARNED * fitted.distance + allowed, THRESHOLD)
    return plain if unearned or plain.distance <= fitted.distance else fitted


def nearest(choices: list[Choice]) -> Choice:
    """The simplest of the nearest candidates."""
    least = min(one.distance for one in choices)
    return min((one for one in choices if one.distance <= least + ROUNDING), key=lambda one: (one.order, one.distance))


def comparable(one: Choice, best: Choice) -> bool:
    """Whether a candidate counts beside the best one: zero is a special case of every fitted candidate."""
    return best.key != "zero" or one.order < FITTED


def components(key: str, sets: Sets, t: int) -> tuple[int, ...]:
    """The components of a named set; for other candidates those above half their strength."""
    chosen = np.flatnonzero(sets.shrunk[t])
    if key.startswith(("zero", "least squares")):
        chosen = np.arange(0 if key == "zero" else sets.size)
    elif key.startswith("pcr-"):
        count = int(key.removeprefix("pcr-").split()[0])
        chosen = np.sort(sets.order[:count]) if key.endswith("shrunk") else np.arange(count)
    elif key == "pcr set":
        chosen = np.flatnonzero(sets.ideal[t])
    return tuple(int(i) + 1 for i in chosen)
