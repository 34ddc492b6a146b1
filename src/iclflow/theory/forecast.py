r"""The whole training curve of separate attention: its levels, and when which head learns what.

The race of the heads (`theory.race`) gives the course of all weights, with an accuracy that can be chosen; the
difference between two accuracies estimates the error. Drops are timed as on an observed curve: when the loss crosses
the middle between two levels. They are therefore positive and in order, or there are none [`forecast`].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.theory.all_blocks import AllBlocks, feature_moments
from iclflow.theory.equations import Flow, Layout, Parts
from iclflow.theory.landscape import Directions, Landscape, directions, landscape
from iclflow.theory.race import Accuracy, Momentum, Race, Rest, run
from iclflow.theory.separate import SampleLandscape, rank_optimum
from iclflow.theory.single_mode import MIDPOINT

__all__ = ["Forecast", "forecast", "iterated"]

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
    value: Float[np.ndarray, "T H"]
    levels: Float[np.ndarray, " levels"]
    drop_times: Float[np.ndarray, " m"]
    heads: Int[np.ndarray, " m"]  # which head holds most of the direction afterwards
    held: Float[np.ndarray, " m"]  # the share of it that this head holds
    directions: Int[np.ndarray, " m"]  # index in `Directions`, or the number of directions learned before
    leading_order: bool = False  # vector blocks are there, but only their two channels were followed
    halfway: bool = False  # heads rest on the way in a state that holds a direction in part
    turning: bool = False  # grown heads turn slowly while others wait, which was not followed

    def loss(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The loss at any times, interpolated with its slope [`forecast`]."""
        return hermite(np.asarray(time, dtype=float), self.time, self.curve, self.slope)

    def values(self, time: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n H"]:
        """The value weight of every head at any times."""
        return np.stack([np.interp(time, self.time, column) for column in self.value.T], axis=1)


def forecast(
    source: Task | Landscape | SampleLandscape,
    starts: Sequence[Parts],
    accuracies: Sequence[Accuracy],
    decay: float = 0.0,
    step: float = 0.0,
) -> list[Forecast | None]:
    """Predict the flow, or descent, from initial weights in the paper's units, all races side by side [`forecast`]."""
    L = landscape(source) if isinstance(source, Task) else source
    names = directions(source) if isinstance(source, Task) else None
    names = names if names is not None and named(names) else None
    layout = Layout.of(starts[0], L.outputs)
    flow = Flow(L, layout, all_blocks(source, layout), decay, step)
    races = [Race(flow, layout.join(start), accuracy) for start, accuracy in zip(starts, accuracies, strict=True)]
    with np.errstate(all="ignore"):
        lost = run(races)
    return [None if any(race is one for one in lost) else summarize(race, names) for race in races]


def iterated(source: Task | Landscape | SampleLandscape, start: Parts, pace: Momentum, count: int) -> Forecast | None:
    """Predict steps by taking them, on the same equations [`momentum-lag`]."""
    L = landscape(source) if isinstance(source, Task) else source
    names = directions(source) if isinstance(source, Task) else None
    layout = Layout.of(start, L.outputs)
    flow = Flow(L, layout, all_blocks(source, layout), pace.shrink / pace.time)
    race = Race(flow, layout.join(start))
    with np.errstate(all="ignore"):
        if not race.iterate(pace, count):
            return None
    return summarize(race, names if names is not None and named(names) else None)


def all_blocks(source: Task | Landscape | SampleLandscape, layout: Layout) -> AllBlocks | None:
    """The loss of all blocks, where vector blocks need it and it is known."""
    if not isinstance(source, Task) or source.tasks is not None:
        return None
    return AllBlocks(layout, feature_moments(source)) if 0 < layout.feature_count <= MOST_FEATURES else None


def named(d: Directions) -> bool:
    """Whether all directions save different losses, so that each can be told from the others."""
    saved = np.sort(d.saved)
    return bool((np.diff(saved) > 1e-6 * saved[-1]).all())


def summarize(race: Race, d: Directions | None) -> Forecast:
    """Curves and drops of a course that has come to its end."""
    time, loss, slope, value, _ = (np.array(column) for column in zip(*race.records, strict=True))
    levels, drops, halfway = [float(race.landscape.base)], [], False
    for before, after in zip(race.rests, race.rests[1:], strict=False):
        for level, direction, key, query in steps(race, d, before, after):
            middle = (levels[-1] + level) / 2
            when = crossing(time[before.record :], loss[before.record :], slope[before.record :], middle)
            if level >= levels[-1]:  # what was held in part has moved on
                continue
            held = np.einsum("d,hde,e->h", key, race.layout.matrices(after.rows), query)
            head = int(np.argmax(held))
            if when is None or when <= 0:  # it was learned before training began
                levels[-1] = level
                continue
            levels.append(level)
            drops.append((when, head, float(np.clip(held[head] / held.sum(), 0, 1)), direction))
        halfway |= bool(abs(loss[after.record] - levels[-1]) > HALFWAY * levels[0])
    times, heads, shares, directions = zip(*drops, strict=True) if drops else ((), (), (), ())
    return Forecast(
        time, loss, slope, value, np.array(levels), np.array(times, dtype=float), np.array(heads, dtype=int),
        np.array(shares, dtype=float), np.array(directions, dtype=int),
        leading_order=race.layout.channels > 0 and race.flow.blocks is None, halfway=halfway, turning=race.turning,
    )  # fmt: skip


Step = tuple[float, int, Float[np.ndarray, " D"], Float[np.ndarray, " D"]]


def steps(race: Race, d: Directions | None, before: Rest, after: Rest) -> list[Step]:
    """Level, direction, and its dual key and query vector of every drop between two moments of rest."""
    first, last = (race.layout.matrix(rest.rows) for rest in (before, after))
    if d is None:
        return [counted(race, m, last) for m in range(race.learned(first), race.learned(last))]
    left, right = np.linalg.inv(d.left), np.linalg.inv(d.right)
    gains = lambda A: np.einsum("di,...ij,dj->...d", left, A, right) / d.full_gain
    held, holds = gains(first) > race.held_from, gains(last) > race.held_from
    strength = d.strength if race.flow.decay == 0 else gains(last) * d.strength  # decay leaves less than the whole
    saved = (2 * d.drive - d.curvature * strength) * strength / d.outputs
    level = lambda held: float(d.base - saved[held].sum())
    new = np.flatnonzero(holds & ~held)
    if (held & ~holds).any():  # a head has turned from one direction to another
        lead = int(new[np.argmax(d.saved[new])]) if len(new) else int(np.argmax(gains(last)))
        return [(level(holds), lead, left[lead], right[lead])]
    grown = gains(np.array([record[4] for record in race.records[before.record : after.record + 1]]))
    done = []
    for j in sorted(new, key=lambda j: int(np.argmax(grown[:, j] > MIDPOINT))):
        held[j] = True
        done.append((level(held), int(j), left[j], right[j]))
    return done


def counted(race: Race, m: int, A: Matrix) -> Step:
    """The same where directions have no names: the best matrix of rank m + 1, and the new singular pair."""
    roots, L = race.whitening, race.landscape
    u, s, wt = np.linalg.svd(roots[0] @ A @ roots[1])
    if race.flow.decay == 0:
        best = rank_optimum(L, m + 1)
    else:  # the leading part of what is held
        kept = (u[:, : m + 1] * s[: m + 1]) @ wt[: m + 1]
        best = np.linalg.solve(roots[0], kept) @ np.linalg.inv(roots[1]) / np.sqrt(L.outputs)
    return float(L.loss(best)), m, roots[0] @ u[:, m], roots[1] @ wt[m]


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
