r"""From distances to the name of an algorithm.

The nearest candidate is named if its mean squared distance is at most `THRESHOLD` of the zero predictor's loss, fixed
beforehand; otherwise the answer is "none of these". A candidate with a parameter fitted to the subject is named only if
it is nearer than all others by the factor `EARNED`, and by more than `SETTLED`. Candidates within `TIE` of the named
one are tied with it. The margin is how much further away the next candidate with another answer is [`naming`].

A snapshot on the way between two fixed points is not given the name of a fitted candidate that it happens to pass: it
is none of these, and `between` says where it is. The same holds while the loss of a run is falling, where only fixed
points of the model itself are named.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from iclflow.probing.between import Between
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

    algorithm: str  # zero, pcr, least_squares, ridge, gd, in_weight, dmmse (of K fixed tasks) or none
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
    between: tuple[str, ...] = ()  # the two fixed points that it is on the way between
    where: str = ""  # the same in words, and whether the loss is falling

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.where}; " if self.where else ""
        if self.algorithm == "none":
            return f"{where}none of these (nearest: {self.label}, distance {self.distance:.2g})"
        fitted = f" ({self.parameter_name} {self.parameter:.3g})" if self.parameter is not None else ""
        about = self.called != self.label
        others = [label for label in self.ties if label != self.label and not (about and label.startswith("gd "))]
        tied = f"; tied with {', '.join(others)}" if others else ""
        margin = f"margin {self.margin:.2g} to {self.runner_up}"
        return f"{where}{self.called}{fitted}, distance {self.distance:.2g}, {margin}{tied}"

    @property
    def called(self) -> str:
        """The label; a number of steps of descent is "about" so many where other numbers are as near."""
        words = self.label.split()
        alike = [tie.split() for tie in self.ties if tie != self.label and tie.split()[3:] == words[3:]]
        if words[0] != "gd" or not any(tie[0] == "gd" for tie in alike):
            return self.label
        return " ".join([words[0], "about", *words[1:]])


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
        if np.isnan(distance):
            continue  # a candidate of other snapshots
        choices[label] = Choice(label, key, entry.family, entry.order, components(key, sets, t), distance)
    return choices


def name(
    entries: dict[str, Entry],
    sets: Sets,
    t: int,
    way: Between | None = None,
    falling: bool = False,
    one_by_one: bool = True,
) -> Verdict:
    """The verdict on one snapshot [`naming`].

    Args:
        entries: the candidates.
        sets: which components each snapshot has learned.
        t: the number of the snapshot.
        way: the nearest way between two fixed points.
        falling: whether the loss of a run is falling there.
        one_by_one: whether the model learns components one by one, and so rests at any set of them.
    """
    choices = list(by_label(entries, sets, t).values())
    best = chosen(choices)
    on_its_way = way is not None and way.partial and EARNED * way.distance + SETTLED < best.distance > TIE
    rests = best.order < FITTED and (one_by_one or best.family in ("zero", "least_squares"))
    falling = falling and not (rests and best.distance <= TIE)
    passing = falling and not rests
    if way is not None and on_its_way:
        passing |= best.order >= FITTED or way.halfway
    accepted = best.distance <= THRESHOLD and not passing
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
        **located(way if on_its_way else None, falling, one_by_one),
    )


def located(way: Between | None, falling: bool, one_by_one: bool) -> dict[str, Any]:
    """Where a snapshot is, if it is on its way: the fixed points around it, and words."""
    ends, words = ((), "") if way is None else (way.labels, str(way))
    if falling and not one_by_one:
        ends, words = ("zero", "least squares shrunk"), "between zero and least squares shrunk"
    return {"between": ends, "where": ", ".join(filter(None, ("inside a drop" if falling else "", words)))}


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
