"""What happens at every time, in a sentence: drops and plateaus from a run's comparison with theory, else from its
curve; the number of learned components from its probe.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.comparison.comparing import Comparison
from iclflow.comparison.plateaus import find_drops, find_plateaus
from iclflow.errors import BadInput
from iclflow.prediction.result import Prediction
from iclflow.results.run import Run

__all__ = ["PROBLEMS", "forecast_sentence", "run_sentences"]

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen")  # fmt: skip
FAR = 1.5  # times its first value: a loss of a diverging run
PROBLEMS = {"diverged": "training has diverged", "failed": "training has failed", "unstable": "training is unstable"}


class Course(NamedTuple):
    """The plateaus and drops of one run, in the order in which they come."""

    plateaus: Sequence[tuple[float, float]]  # first and last time
    drops: Sequence[tuple[float, int | None, float | None]]  # time, component from 1, predicted time
    open: Sequence[float]  # predicted times of drops that have not come
    total: int  # drops, predicted or seen
    ended: bool  # whether the run went on until its loss had settled


def run_sentences(
    time: Float[np.ndarray, " R"],
    run: Run,
    forecast: Prediction | None,
    comparison: Comparison | None,
    learned: Sequence[int] | None,
) -> list[str]:
    """A sentence for every time; `learned` is the number of learned components at each of them, if it is known."""
    loss = np.interp(time, run.time.values, run.loss.values)
    if run.status in PROBLEMS:
        return problem(run, time, loss)
    course = course_of(run, comparison)
    never = () if forecast is None else forecast.never
    counts = [""] * len(time) if learned is None else [f": {counted(m, run.task.dim)}" for m in learned]
    return [sentence(course, t, count, kept_back(never)) for t, count in zip(time.tolist(), counts, strict=True)]


def course_of(run: Run, comparison: Comparison | None) -> Course:
    """What the comparison says of drops and plateaus; without one, what the curve shows."""
    ended = run.training.steps is None and run.training.time is None
    if comparison is None:
        try:
            found = find_plateaus(run.time.values, run.loss.values)
            times = find_drops(run.time.values, run.loss.values).times.tolist()
        except BadInput:
            return Course([], [], [], 0, ended)
        stops = found.starts + found.lengths
        plateaus = list(zip(found.starts.tolist(), stops.tolist(), strict=True))
        return Course(plateaus, [(t, None, None) for t in times], [], len(times), ended)
    seen = [d for d in comparison.drops if d.observed_time is not None]
    drops = [(float(d.observed_time or 0), d.numbers()["observed_direction"], d.predicted_time) for d in seen]
    plateaus = [(p.start, p.start + p.length) for p in comparison.plateaus]
    waiting = [d.predicted_time for d in comparison.drops if d.observed_time is None]
    return Course(plateaus, sorted(drops), waiting, len(comparison.drops), ended)


def sentence(course: Course, time: float, count: str, never: str) -> str:
    """The sentence for one time."""
    passed = sum(drop[0] <= time for drop in course.drops)
    if any(start <= time <= stop for start, stop in course.plateaus):
        if passed == course.total:
            return f"{'the end' if course.ended else 'after the last drop'}{count}{never}"
        return f"plateau {passed + 1} of {course.total + 1}{count}{ahead(course, passed, time)}{never}"
    before = max((stop for _, stop in course.plateaus if stop < time), default=-np.inf)
    after = min((start for start, _ in course.plateaus if start > time), default=np.inf)
    falling = [(number, drop) for number, drop in enumerate(course.drops, 1) if before <= drop[0] <= after]
    if passed == course.total and after == np.inf:
        return f"after the last drop{count}{never}"
    if not falling:
        return f"the loss falls without a plateau{count}{never}"
    number, (_, component, _) = falling[0]
    if len(falling) > 1:
        return f"drops {listed([str(n) for n, _ in falling])} of {course.total}, without a plateau between them{count}"
    learns = "" if component is None or component < 1 else f": component {component} is being learned"
    return f"drop {number} of {course.total}{learns}" if course.total > 1 else f"the drop{count}"


def ahead(course: Course, passed: int, time: float) -> str:
    """When the next drop comes, in this run and as predicted."""
    if passed < len(course.drops):
        when, _, predicted = course.drops[passed]
        return f"; next drop at t = {when:.4g}" + ("" if predicted is None else f" (predicted {predicted:.4g})")
    if not course.open:
        return ""
    return f"; drop {passed + 1} was predicted at t = {course.open[0]:.4g}, and the run ends before it"


def problem(run: Run, time: Float[np.ndarray, " R"], loss: Float[np.ndarray, " R"]) -> list[str]:
    """Sentences of a run that went wrong."""
    why = str(run.summary["runs"][0].get("why", ""))
    said = PROBLEMS[run.status] + (f": {why}" if why else "")
    good = np.isfinite(loss) & (np.abs(loss) <= FAR * abs(loss[0]))
    first = len(time) - 1 if good.all() else int(np.argmin(good))
    if run.status == "unstable":
        first = 0
    before = f"this run diverges after t = {time[max(first - 1, 0)]:.3g}" + (f": {why}" if why else "")
    return [before if record < first else said for record in range(len(time))]


def forecast_sentence(forecast: Prediction, time: float) -> str:
    """What theory alone says about a time, before anything is simulated."""
    drops, never = forecast.drop_times, kept_back(forecast.never)
    behind, count = int(np.sum(drops <= time)), len(drops)
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


def kept_back(never: Sequence[int]) -> str:
    """Which components weight decay keeps from being learned, if any."""
    names = [str(i + 1) for i in sorted(never)]
    return f"; weight decay keeps component{'s' * (len(names) > 1)} {listed(names)} from being learned" if names else ""


def listed(names: Sequence[str]) -> str:
    """Names with commas and an "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
