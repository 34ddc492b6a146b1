"""What happens at every time of a run, in a sentence that is read off the run itself.

A component is *being learned* from the last record at which its gain is below `BEGUN` to the first from which on it
stays near where it rests, and *learned* from then on. So what is said never goes back and forth, and is
about this run; what theory predicted is quoted as that. A plateau is only called so where the loss is at its level.
Several layers learn a direction more than once; there plateaus and drops are those of the loss curve.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from iclflow.comparison.plateaus import find_plateaus
from iclflow.errors import BadInput
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import Directions

__all__ = ["PROBLEMS", "Layers", "Story", "forecast_sentence"]

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen")  # fmt: skip
BEGUN, NEAR, OVER = 0.05, 0.1, 0.25  # of the gain at which a component rests, which may be overshot a little
HALF = 1 - np.sqrt(0.5)  # the gain at which half of a drop is done, for the loss is quadratic in it
LEARNED = 0.3  # a component that ends below this gain has not been learned
STILL = 0.02  # how far the gain of a component at rest moves over the last twentieth of the time
LEVEL = 0.05  # of the whole fall: how far from its level a plateau may be
FAR = 1.5  # times its first value: a loss of a diverging run
PROBLEMS = {"diverged": "training has diverged", "failed": "training has failed", "unstable": "training is unstable"}

Times = Float[np.ndarray, " R"]


@dataclass(frozen=True)
class Story:
    """One run of one layer at its kept times, and how it ended."""

    time: Times
    loss: Times
    gains: Float[np.ndarray, "R D"]
    curve: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]  # time and loss in full
    directions: Directions
    one_by_one: bool
    places: int  # components that the model can hold
    status: str = "ok"
    why: str = ""
    length_given: bool = False  # whether the run ended because its steps or its time were over
    decays: bool = False  # whether weight decay may keep components from being learned
    stepwise: bool = True  # whether the rule learns one component after another, as the flow does

    # --- what the run does --------------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        return self.gains.shape[1]

    @cached_property
    def rest(self) -> Float[np.ndarray, " D"]:
        """The gain at which each component rests: where it ends, if it is still there, and 1 otherwise."""
        last = self.gains[-1]
        before = np.array([np.interp(0.95 * self.time[-1], self.time, gain) for gain in self.gains.T])
        still = (np.abs(last - before) < STILL) | (not self.length_given)
        return np.where((last > LEARNED) & still & (self.status == "ok"), last, 1.0)

    @cached_property
    def phases(self) -> tuple[Int[np.ndarray, " D"], Int[np.ndarray, " D"]]:
        """The first record at which each component is being learned, and at which it is learned; R for never."""
        count, share = len(self.time), self.gains / self.rest
        begins, ends = np.full(self.dim, count), np.full(self.dim, count)
        for i, x in enumerate(share.T):
            away, small = (x < 1 - NEAR) | (x > 1 + OVER), np.flatnonzero(x < BEGUN)
            if not away[-1]:
                ends[i] = np.max(np.flatnonzero(away), initial=-1) + 1
            small = small[small < ends[i]]
            begins[i] = 0 if len(small) == 0 else small[-1] + 1
        return begins, ends

    @cached_property
    def drop_times(self) -> Float[np.ndarray, " D"]:
        """When half of each component's drop is done; infinite for components whose drop does not come."""
        begins, ends = self.phases
        times, share = np.full(self.dim, np.inf), self.gains / self.rest
        for i in np.flatnonzero(begins < len(self.time)):
            passed = np.flatnonzero(share[begins[i] :, i] >= HALF)
            if len(passed):
                after = begins[i] + passed[0]
                alone = all(not begins[j] <= after < ends[j] + 1 for j in range(self.dim) if j != i)
                times[i] = self.crossing(int(i), int(after), alone) if after > 0 else 0.0
        return times

    def crossing(self, i: int, after: int, alone: bool) -> float:
        """When a component's drop is half done, between two records: from the loss, if nothing else falls there."""
        pair = slice(after - 1, after + 1)
        x, time = (self.gains[pair, i] / self.rest[i]).clip(0, 1), self.time[pair]
        fallen = 1 - (1 - x) ** 2
        if not alone or not fallen[1] > fallen[0]:
            return float(np.interp(HALF, x, time))
        inside = (self.curve[0] >= time[0]) & (self.curve[0] <= time[1])
        times, losses = np.append(self.curve[0][inside], time[1]), np.append(self.curve[1][inside], self.loss[after])
        part = (0.5 - fallen[0]) / (fallen[1] - fallen[0])
        target = self.loss[after - 1] + part * (self.loss[after] - self.loss[after - 1])
        return float(np.interp(-target, -np.minimum.accumulate(losses), times))

    def on_level(self, learned: Int[np.ndarray, " m"], record: int) -> bool:
        """Whether the loss is that of the fixed point at which exactly these components rest."""
        d, strength = self.directions, np.zeros(self.dim)
        strength[learned] = (self.rest * d.strength)[learned]
        level = d.base - float(np.sum(2 * d.drive * strength - d.curvature * strength**2)) / d.outputs
        return abs(float(self.loss[record]) - level) <= LEVEL * float(np.sum(d.saved))

    # --- what is said about it ----------------------------------------------------------------------------------------

    def sentences(self, forecast: Prediction | None = None) -> list[str]:
        """A sentence for every kept time."""
        broken = problem(self.status, self.why, self.time, self.loss)
        if broken is not None:
            return broken
        begins, ends = self.phases
        say = self.stairs if self.one_by_one else self.one_drop
        return [say(record, begins, ends, forecast) for record in range(len(self.time))]

    def stairs(self, record: int, begins: np.ndarray, ends: np.ndarray, forecast: Prediction | None) -> str:
        """The sentence for models that learn the components one after another."""
        learned, moving = np.flatnonzero(ends <= record), np.flatnonzero((begins <= record) & (record < ends))
        total = self.total(len(learned) + len(moving), forecast)
        drops = "" if total is None else f" of {total}"
        if len(moving) == 1:
            return f"drop {len(learned) + 1}{drops}: component {moving[0] + 1} is being learned"
        if len(moving):
            names = listed([str(i + 1) for i in moving])
            return f"components {names} are being learned at once; {counted(len(learned), self.dim)}"
        if not self.on_level(learned, record):
            return f"no plateau: {counted(len(learned), self.dim)}, and the other weights still move"
        coming = np.flatnonzero((begins > record) & (begins < len(self.time)))
        if not len(coming) and len(learned) in (total, self.places):
            return self.ending(len(learned), forecast)
        plateaus = "" if total is None else f" of {total + 1}"
        return f"plateau {len(learned) + 1}{plateaus}: {counted(len(learned), self.dim)}" + self.ahead(
            len(learned), coming, forecast
        )

    def total(self, seen: int, forecast: Prediction | None) -> int | None:
        """How many drops there are: as many as there is room for, but with decay only those that come."""
        if not self.stepwise:
            return None
        if not self.decays:
            return self.places
        known = forecast is not None and len(forecast.drop_times) + len(forecast.never) == self.places
        return max(len(forecast.drop_times), seen) if known and forecast is not None else None

    def ending(self, learned: int, forecast: Prediction | None) -> str:
        """The sentence after the last drop."""
        if self.length_given or self.status != "ok":
            never = () if forecast is None else forecast.never
            kept = [str(i + 1) for i in sorted(never)]
            why = f"; weight decay keeps {plural('component', kept)} from being learned" if kept else ""
            return f"after the last drop: {counted(learned, self.dim)}{why}"
        return f"{'the end' if learned == self.dim else 'the heads are full'}: {counted(learned, self.dim)}"

    def ahead(self, learned: int, coming: Int[np.ndarray, " n"], forecast: Prediction | None) -> str:
        """When the next drop comes, in this run and as predicted."""
        expected = {} if forecast is None else dict(zip(forecast.directions, forecast.drop_times, strict=True))
        if len(coming):
            times = self.drop_times
            nearest = int(coming[np.argmin(times[coming])])
            said = f"; next drop at t = {times[nearest]:.4g}"
            return said + (f" (predicted {expected[nearest]:.4g})" if nearest in expected else "")
        open_times = [] if forecast is None else sorted(forecast.drop_times)[learned:]
        if not open_times:
            return ""
        end = float(self.time[-1])
        if open_times[0] > end:
            return f"; the run ends before the next drop, predicted at t = {open_times[0]:.4g}"
        return f"; drop {learned + 1} was predicted at t = {open_times[0]:.4g} and has not come when the run ends"

    def one_drop(self, record: int, begins: np.ndarray, ends: np.ndarray, forecast: Prediction | None) -> str:
        """The sentence for models that learn all components in one drop."""
        learned, moving = int(np.sum(ends <= record)), int(np.sum((begins <= record) & (record < ends)))
        if learned == self.dim:
            return f"{'the end' if not self.length_given else 'after the drop'}: {counted(learned, self.dim)}"
        if learned == 0 and moving == 0:
            if not self.on_level(np.array([], int), record):
                return "no plateau: none of the components is learned, and the weights move"
            half = self.half_time()
            said = f"; the drop comes at t = {half:.4g}" if half is not None else ""
            known = forecast is not None and len(forecast.drop_times) > 0
            named = f" (predicted {forecast.drop_times[0]:.4g})" if known and said and forecast is not None else ""
            return f"the plateau: nothing learned yet{said}{named}"
        waiting = self.dim - learned - moving
        rest = f", {WORDS[waiting]} not begun" if waiting else ""
        return f"the drop: {WORDS[learned]} of {WORDS[self.dim]} components learned, {WORDS[moving]} on the way{rest}"

    def half_time(self) -> float | None:
        """When the loss has fallen half of the way to where it ends; None if it has not fallen by much."""
        times, losses = self.curve
        first, last = float(losses[0]), float(losses[-1])
        if first - last < LEVEL * float(np.sum(self.directions.saved)):
            return None
        return float(np.interp(-(first + last) / 2, -np.minimum.accumulate(losses), times))


@dataclass(frozen=True)
class Layers:
    """A run of several layers: plateaus and drops as the loss curve shows them."""

    time: Times
    curve: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]
    status: str = "ok"
    why: str = ""

    def sentences(self, forecast: Prediction | None = None) -> list[str]:
        """A sentence for every kept time."""
        broken = problem(self.status, self.why, self.time, np.interp(self.time, *self.curve))
        if broken is not None:
            return broken
        try:
            found = find_plateaus(*self.curve)
        except BadInput:
            return [""] * len(self.time)
        levels, starts, stops = found.levels, found.starts, found.starts + found.lengths
        if len(levels) == 0:
            return ["the loss falls without a plateau"] * len(self.time)
        said = []
        for t in self.time:
            at = int(np.searchsorted(starts, t, side="right"))  # plateaus that have begun
            if at == 0:
                said.append("before the first plateau")
            elif t <= stops[at - 1]:
                ahead = f"; it is left at t = {stops[at - 1]:.4g}" if at < len(levels) else ""
                said.append(f"plateau {at} of {len(levels)} in this run, at a loss of {levels[at - 1]:.3g}{ahead}")
            elif at < len(levels):
                said.append(f"drop {at} of {len(levels) - 1} in this run, to a loss of {levels[at]:.3g}")
            else:
                said.append(f"the loss leaves plateau {at}, and the run ends on the way")
        return said


def problem(status: str, why: str, time: Times, loss: Times) -> list[str] | None:
    """Sentences of a run that went wrong; None for others."""
    if status not in PROBLEMS:
        return None
    because = f": {why}" if why else ""
    if status == "unstable":
        return [f"{PROBLEMS[status]}{because}"] * len(time)
    good = np.isfinite(loss) & (np.abs(loss) <= FAR * abs(loss[0]))
    first = int(np.argmin(good)) if not good.all() else len(time) - 1
    before = f"this run diverges after t = {time[max(first - 1, 0)]:.3g}{because}"
    return [before if record < first else f"{PROBLEMS[status]}{because}" for record in range(len(time))]


def forecast_sentence(forecast: Prediction, time: float) -> str:
    """What theory alone says about a time, before anything is simulated."""
    drops = forecast.drop_times
    behind, count = int(np.sum(drops <= time)), len(drops)
    kept = [str(i + 1) for i in sorted(forecast.never)]
    never = f"; weight decay keeps {plural('component', kept)} from being learned" if kept else ""
    if count == 0:
        return f"theory: no drop comes{never}"
    if behind == count:
        return f"theory: {'the drop is' if count == 1 else f'all {count} drops are'} predicted by now{never}"
    if behind == 0:
        first = "the drop" if count == 1 else f"the first of {count} drops"
        return f"theory: {first} is predicted at t = {drops[0]:.4g}{never}"
    return f"theory: drop {behind} of {count} is predicted by now, the next at t = {drops[behind]:.4g}{never}"


def counted(learned: int, dim: int) -> str:
    """How many components are learned."""
    return f"{WORDS[learned]} of {WORDS[dim]} components learned"


def listed(names: list[str]) -> str:
    """Names with commas and an "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plural(word: str, names: list[str]) -> str:
    """A word in the number of its names, and the names."""
    return f"{word}{'s' if len(names) > 1 else ''} {listed(names)}"
