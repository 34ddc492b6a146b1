r"""The whole training curve of separate attention: its levels, and when which head learns what.

The race of the heads (`theory.race`) gives the course of all weights, with an accuracy that can be chosen; the
difference between two accuracies estimates the error. Drops are timed as on an observed curve: when the loss crosses
the middle between two levels. They are therefore positive and in order, or there are none [`forecast`].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.theory.all_blocks import AllBlocks, feature_moments
from iclflow.theory.equations import Flow, Layout, Parts
from iclflow.theory.landscape import Directions, Landscape, directions, landscape
from iclflow.theory.race import Accuracy, Momentum, Race, Rest, run
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.single_mode import MIDPOINT

__all__ = ["Forecast", "forecast", "stepped"]

RESTING = 0.1  # of its speed in a drop: how slowly the loss falls where it rests
HALFWAY = 0.01  # of the loss at zero: a resting place farther from every level holds a direction in part
PARTS, ROUNDS = 64, 5  # into which the step of a crossing is divided, and how often
MOST_FEATURES = 1000  # of all blocks, up to which they are followed through drops

Matrix = Float[np.ndarray, "D D"]
Times = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class Forecast:
    """The predicted training: loss and value weights along time t/tau, and its drops."""

    time: Times
    curve: Times
    slope: Times  # dL/dt at each time
    value: Float[np.ndarray, "T 2 H"]  # and its slope
    levels: Float[np.ndarray, " levels"]
    drop_times: Float[np.ndarray, " m"]
    heads: Int[np.ndarray, " m"]  # which head holds most of the direction afterwards
    held: Float[np.ndarray, " m"]  # the share of it that this head holds
    directions: Int[np.ndarray, " m"]  # index in `Directions`, or the number of directions learned before
    leading_order: bool = False  # vector blocks are there, but only their two channels were followed
    halfway: bool = False  # heads rest on the way in a state that holds a direction in part
    turning: bool = False  # grown heads turn slowly while others wait, which was not followed
    together: bool = False  # heads at rest stayed in the race of the others

    def loss(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The loss at any times, interpolated with its slope [`forecast`]."""
        return hermite(np.asarray(time, dtype=float), self.time, self.curve, self.slope)

    def values(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n H"]:
        """The value weight of every head at any times."""
        at, heads = np.asarray(time, dtype=float), range(self.value.shape[2])
        return np.stack([hermite(at, self.time, *self.value[:, :, h].T) for h in heads], axis=1)


def forecast(
    source: Task | Landscape | SampleLandscape,
    starts: Sequence[Parts],
    accuracies: Sequence[Accuracy],
    decay: float = 0.0,
    step: float = 0.0,
    delay: float = 0.0,
) -> list[Forecast | None]:
    """Predict the flow, or descent, from initial weights in the paper's units, all races side by side [`forecast`].

    `step` is that of descent in t/tau, 0 for the flow; `delay` says when heads begin to move."""
    L = landscape(source) if isinstance(source, Task) else source
    names = names_of(source)
    layout = Layout.of(starts[0], L.outputs)
    flow = Flow(L, layout, all_blocks(source, layout), decay, step)
    races = [Race(flow, layout.join(start), accuracy) for start, accuracy in zip(starts, accuracies, strict=True)]
    with np.errstate(all="ignore"):
        lost = run(races)
    return [None if any(race is one for one in lost) else summarize(race, names, delay) for race in races]


def stepped(
    source: Task | Landscape | SampleLandscape, start: Parts, accuracy: Accuracy, pace: Momentum
) -> Forecast | None:
    """Predict steps by taking them where heads move fast, on the same equations [`momentum-lag`].

    `None` where they diverge.
    """
    L = landscape(source) if isinstance(source, Task) else source
    layout = Layout.of(start, L.outputs)
    flow = Flow(L, layout, all_blocks(source, layout), pace.shrink / pace.time, pace.lag)
    race = Race(flow, layout.join(start), accuracy)
    race.begin()
    with np.errstate(all="ignore"):
        return summarize(race, names_of(source)) if race.followed(pace) else None


def all_blocks(source: Task | Landscape | SampleLandscape, layout: Layout) -> AllBlocks | None:
    """The loss of all blocks, where vector blocks need it and it is known."""
    if not 0 < layout.feature_count <= MOST_FEATURES:
        return None
    if isinstance(source, SampleLandscape):
        return None if source.features is None else AllBlocks.of_sample(layout, source)
    if not isinstance(source, Task) or source.tasks is not None:
        return None
    return AllBlocks.of(layout, feature_moments(source))


def names_of(source: Task | Landscape | SampleLandscape) -> Directions | None:
    """The directions that are learned, where they do not mix and each saves a loss of its own."""
    if not isinstance(source, Task) or not (d := directions(source)).commuting:
        return None
    saved = np.sort(d.saved)
    return d if (np.diff(saved) > 1e-6 * saved[-1]).all() else None


def summarize(race: Race, d: Directions | None, delay: float = 0.0) -> Forecast:
    """Curves and drops of a course that has come to its end."""
    time, loss, slope, value, _ = (np.array(column) for column in zip(*race.records, strict=True))
    time[1:] += delay
    levels, drops, halfway = [float(race.landscape.base)], [], False
    for before, after in zip(race.rests, race.rests[1:], strict=False):
        for level, direction, key, query, held_at in steps(race, d, before, after):
            middle = (levels[-1] + level) / 2
            when = crossing(time[before.record :], loss[before.record :], slope[before.record :], middle)
            if level >= levels[-1]:  # what was held in part has moved on
                continue
            held = np.einsum("d,hde,e->h", key, race.layout.matrices(after.rows), query)
            if held_at is not None:  # it is the head that has grown by then
                held = np.abs(value[held_at, 0]) - np.abs(value[before.record, 0])
            head = int(np.argmax(held))
            if when is None or when <= 0:  # it was learned before training began
                levels[-1] = level
                continue
            levels.append(level)
            drops.append((when, head, float(np.clip(held[head] / held.sum(), 0, 1)), direction))
        drifting = race.flow.blocks is not None and race.flow.blocks.push is not None  # which lowers the loss further
        halfway |= not drifting and bool(abs(loss[after.record] - levels[-1]) > HALFWAY * levels[0])
    times, heads, shares, directions = zip(*drops, strict=True) if drops else ((), (), (), ())
    return Forecast(
        time, loss, slope, value, np.array(levels), np.array(times, dtype=float), np.array(heads, dtype=int),
        np.array(shares, dtype=float), np.array(directions, dtype=int),
        leading_order=race.layout.channels > 0 and race.flow.blocks is None, halfway=halfway, turning=race.turning,
        together=race.together,
    )  # fmt: skip


class Step(NamedTuple):
    """A drop between two moments of rest: the level behind it, and the dual vectors of what is learned."""

    level: float
    direction: int
    key: Float[np.ndarray, " D"]
    query: Float[np.ndarray, " D"]
    held_at: int | None = None  # the record at which a direction is held that is left again before the heads rest


def steps(race: Race, d: Directions | None, before: Rest, after: Rest) -> list[Step]:
    """The drops between two moments of rest, in the order in which directions come to be held.

    A head can turn from one direction to another: the first one is held for a while, and then no more.
    """
    first, last = (race.layout.matrix(rest.rows) for rest in (before, after))
    if d is None:
        return [counted(race, m, last) for m in range(race.learned(first), race.learned(last))]
    left, right = np.linalg.inv(d.left), np.linalg.inv(d.right)
    gains = lambda A: np.einsum("di,...ij,dj->...d", left, A, right) / d.full_gain
    records = race.records[before.record : after.record + 1]
    course = np.concatenate([gains(np.array([record[4] for record in records])), gains(last)[None]])
    calm = np.array([abs(record[2]) for record in records] + [0.0])  # the slope of the loss
    held, most = gains(first) > race.held_from, course.max(axis=0)
    kept = np.where(course[-1] > race.held_from, course[-1], most)  # decay leaves less than the whole
    strength = d.strength if race.flow.decay == 0 else kept * d.strength
    saved = (2 * d.drive - d.curvature * strength) * strength / d.outputs
    events = sorted((r, int(j)) for j in range(len(held)) for r in comings(course[:, j], race.held_from, calm))
    done = []
    for (begin, j), (end, _) in zip(events, [*events[1:], (len(course), -1)], strict=False):
        held[j] = True
        rest = begin + int(np.argmin(calm[begin:end])) if end > begin else begin
        left_again = (course[rest] < race.held_from) & (course[: rest + 1] > race.held_from).any(axis=0)
        left_again[j] = False
        held &= ~left_again
        place = None if course[-1, j] > race.held_from else before.record + rest
        done.append(Step(float(d.base - saved[held].sum()), j, left[j], right[j], place))
    return done


def comings(gain: Times, held_from: float, speed: Times) -> list[int]:
    """The records at which half of a direction's loss is saved, each time that it comes to be held.

    One that is left again counts only if the loss, which falls at this speed, rests in between.
    """
    found, away = [], bool(gain[0] < held_from)
    for begin in np.flatnonzero((gain[1:] > MIDPOINT) & (gain[:-1] <= MIDPOINT)) + 1:
        later = gain[begin:]
        falls = np.flatnonzero(later < MIDPOINT)
        rises = later[: falls[0]] if len(falls) else later
        pace = speed[begin : begin + len(rises)]
        if away and rises.max() > held_from and (not len(falls) or pace.min() < RESTING * pace.max()):
            found.append(int(begin))
        away = away or bool(len(falls))
    return found or ([0] if away and gain.max() > held_from else [])


def counted(race: Race, m: int, A: Matrix) -> Step:
    """The same where directions have no names: the best matrix of rank m + 1, and the new singular pair."""
    roots, L = race.whitening, race.landscape
    u, s, wt = np.linalg.svd(roots[0] @ A @ roots[1])
    if race.flow.decay == 0:
        best = rank_optimum(L, m + 1)
    else:  # the leading part of what is held
        kept = (u[:, : m + 1] * s[: m + 1]) @ wt[: m + 1]
        best = np.linalg.solve(roots[0], kept) @ np.linalg.inv(roots[1]) / np.sqrt(L.outputs)
    return Step(float(L.loss(best)), m, roots[0] @ u[:, m], roots[1] @ wt[m])


def hermite(at: Float[np.ndarray, " n"], time: Times, value: Times, slope: Times) -> Float[np.ndarray, " n"]:
    """A curve between points at which its values and slopes are known."""
    i = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    h = time[i + 1] - time[i]
    s = np.clip((at - time[i]) / h, 0.0, 1.0)
    start = (1 + 2 * s) * (1 - s) ** 2 * value[i] + s * (1 - s) ** 2 * h * slope[i]
    return start + s**2 * (3 - 2 * s) * value[i + 1] + s**2 * (s - 1) * h * slope[i + 1]


def crossing(time: Times, loss: Times, slope: Times, level: float) -> float | None:
    """The time at which the curve first falls to a level; `None` if it never does."""
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return None
    if below[0] == 0:
        return float(time[0])
    low, high = float(time[below[0] - 1]), float(time[below[0]])
    around = [numbers[below[0] - 1 : below[0] + 1] for numbers in (time, loss, slope)]
    for _ in range(ROUNDS):
        grid = np.linspace(low, high, PARTS + 1)
        reached = hermite(grid[1:], *around) <= level
        part = int(np.argmax(reached)) if reached.any() else PARTS - 1
        low, high = float(grid[part]), float(grid[part + 1])
    return (low + high) / 2
