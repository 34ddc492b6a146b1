"""A run beside the prediction of theory: distance between the curves, drops and plateaus, all in time t/tau.

Drops are timed by the loss: a drop is half done when the loss crosses the middle between two predicted levels. Plateaus
are detected on the observed curve alone (`plateaus`), so that unpredicted plateaus are reported too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import gains, head_shares
from iclflow.comparison.plateaus import before_blow_up, find_plateaus, smoothed
from iclflow.config.training import GIVEN
from iclflow.errors import BadInput, NoTheory
from iclflow.models import Weights
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.prediction.sample import run_landscape, sample_draws, sequences_of
from iclflow.results.card import Card, WithCard
from iclflow.results.run import Run
from iclflow.system.thinning import subdivided
from iclflow.theory.separate import SampleLandscape

__all__ = ["Comparison", "Drop", "Floor", "Plateau", "compare_one", "compare_with"]

ENDS = 3  # averaged points at the end of a noisy curve that are left out
FEWEST = 100  # steps after the last drop that show a floor
BEGUN = 1.02  # times the first loss: a run never was on a plateau above it
FINE = 5e-4  # of the zero loss: how far theory may move between two points of an average over time


@dataclass(frozen=True)
class Drop:
    """A predicted drop and the observed one; observed values are `None` if the run did not reach the drop.

    Heads and directions are indices, from 0; printed and in JSON they count from 1. -1 stands for all at once.
    """

    predicted_time: float
    observed_time: float | None
    observed_step: int | None
    predicted_head: int
    observed_head: int | None
    direction: int
    observed_direction: int | None
    low: float = float("nan")  # the forecast's own 95 % interval
    high: float = float("nan")

    def numbers(self) -> dict[str, int | None]:
        """Heads and directions counted from 1; -1 and `None` stay."""
        names = ("predicted_head", "direction", "observed_head", "observed_direction")
        values = ((name, getattr(self, name)) for name in names)
        return {name: x if x is None or x < 0 else x + 1 for name, x in values}

    @property
    def error(self) -> float | None:
        """The relative error of the predicted time; `None` if the run did not reach the drop or began below it."""
        if self.observed_time is None or self.observed_time <= 0:
            return None
        return abs(self.predicted_time - self.observed_time) / self.observed_time

    @property
    def inside(self) -> bool | None:
        """Whether the observed time lies in the interval; `None` if there is no such time or no interval."""
        if self.error is None or self.observed_time is None or not self.low <= self.high:
            return None
        return self.low <= self.observed_time <= self.high


@dataclass(frozen=True)
class Plateau:
    """An observed plateau and the predicted level nearest to it."""

    observed_level: float
    predicted_level: float
    start: float
    length: float
    predicted_length: float | None


@dataclass(frozen=True)
class Floor:
    """How far minibatches keep the loss above its lowest level, from well after the last drop on."""

    expected: float
    observed: float
    error: float  # of the observed mean


@dataclass(frozen=True, repr=False)
class Comparison(WithCard):
    """One run and its prediction; gaps are relative to the predicted loss before the first drop."""

    seed: int
    largest_gap: float
    mean_gap: float  # averaged over time, until the run ends or shortly after the last predicted drop
    drops: tuple[Drop, ...]
    plateaus: tuple[Plateau, ...]
    prediction: Prediction
    source: str  # whose moments theory used, population or sample
    time: Float[np.ndarray, " T"]  # the run itself
    loss: Float[np.ndarray, " T"]
    window: int = 1  # how many steps were averaged, because minibatches make the loss noisy
    floor: Floor | None = None  # of minibatches, if the run goes on well beyond its last drop
    blown_up: bool = False  # whether the loss blew up; the curve ends before

    @property
    def averaged(self) -> str:
        """What was done to the noise of minibatches, and to a loss that blew up."""
        smooth = "" if self.window == 1 else f" (of a falling fit to means over {self.window} steps)"
        return smooth + (f", until the loss blows up after t/tau = {self.time[-1]:.4g}" if self.blown_up else "")

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON."""
        extra = lambda drop: {**drop.numbers(), "error": drop.error, "inside": drop.inside}
        drops = [{**asdict(drop), **extra(drop)} for drop in self.drops]
        return {
            "seed": self.seed,
            "source": self.source,
            "largest_gap": None if np.isnan(self.largest_gap) else self.largest_gap,  # no theory of the times
            "mean_gap": None if np.isnan(self.mean_gap) else self.mean_gap,
            "window": self.window,
            "blown_up": self.blown_up,
            "floor": None if self.floor is None else asdict(self.floor),
            "reliable": self.prediction.reliable,
            "notes": list(self.prediction.notes),
            "drops": drops,
            "plateaus": [asdict(plateau) for plateau in self.plateaus],
        }

    def card(self) -> Card:
        """Run and theory, drops, plateaus and the floor of minibatches."""
        from iclflow.comparison.card import comparison_card

        return comparison_card(self)


def compare_one(run: Run, source: str | None) -> Comparison:
    """Compare the run of a single seed with theory."""
    exact = run.experiment.population or run.task.icl_fraction < 1
    source = source or ("population" if exact else "sample")
    if source not in ("population", "sample"):
        raise BadInput(f"source: {source!r} must be 'population' or 'sample'")
    refuse_unknown_population(run, source)
    sample = run_landscape(run) if source == "sample" else None
    prediction = forecast_of(run, sample)
    if len(prediction.levels) > 1 and not len(prediction.drop_times):
        raise NoTheory(" ".join(prediction.notes) or "no theory says when the drops come")
    return compare_with(run, prediction, source)


def compare_with(run: Run, prediction: Prediction, source: str) -> Comparison:
    """Compare the run of a single seed with a prediction that is at hand."""
    curves = run.arrays("curves")
    sound = before_blow_up(curves["loss"], float(prediction.levels[0]))
    time, loss, window = curves["time"][:sound], curves["loss"][:sound], 1
    plateaus = tuple(observed_plateaus(time, loss, prediction))  # of the raw curve, whose noise says what is a drop
    floor = observed_floor(time, loss, prediction)
    if run.training.batch is not None and len(time) > 2:
        time, loss, window = smoothed(time, loss)
        if window > 1 and len(time) > 4 * ENDS:  # at its end a falling fit follows single points
            time, loss = time[:-ENDS], loss[:-ENDS]
    largest, mean = gaps(time, loss, prediction)
    drops = tuple(observed_drops(run, time, loss, prediction))
    blown_up = sound < len(curves["loss"])
    return Comparison(
        run.seeds[0], largest, mean, drops, plateaus, prediction, source, time, loss, window, floor, blown_up
    )


def refuse_unknown_population(run: Run, source: str) -> None:
    """Nobody knows the law behind a user's own sequences."""
    if source == "population" and run.experiment.data is not None:
        raise BadInput("source: must be 'sample' for a run on your own data, whose population is not known")


def forecast_of(run: Run, sample: SampleLandscape | None) -> Prediction:
    """The prediction for a run of one seed, with the learning rate that it had, on these moments of its data."""
    task, model, training = run.task, run.model, run.training
    if not training.optimizer.startswith(GIVEN):  # one of the user's own brings its own
        training = training.replace(lr=training.lr or run.summary["runs"][0].get("lr"))
    cut = training.batch is not None and not run.experiment.population and model.theory(task) is not None
    draws = sample_draws(sequences_of(run), model.normalize(task) == "tokens") if cut else None
    training = training.replace(samples=np.inf)  # theory has its moments
    return predict(task, model, weights=run.initial_weights, training=training, sample=sample, draws=draws)


def observed_floor(
    time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction
) -> Floor | None:
    """The mean loss above the lowest level from well after the last drop on, beside the one that theory expects."""
    if not len(prediction.floors) or not len(prediction.drop_times):
        return None
    after = time > 1.25 * prediction.drop_times[-1]
    if after.sum() < FEWEST:
        return None
    lowest = float(prediction.levels[-1] - prediction.floors[-1])
    expected = float(np.mean(prediction.loss(time[after]))) - lowest
    return Floor(expected, float(loss[after].mean()) - lowest, float(loss[after].std() / np.sqrt(after.sum())))


def gaps(time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction) -> tuple[float, float]:
    """The largest and the time-averaged distance between observed and predicted loss.

    Where theory moves between two points of the curve, as where one has dropped and the other has not, it is followed
    there, and the curve is a straight line.
    """
    zero, expected = float(prediction.levels[0]), prediction.loss(time)
    largest = float(np.abs(loss - expected).max()) / zero
    inside = time <= max(prediction.end, time[0] + 1e-12)
    time, loss = time[inside], loss[inside]
    if len(time) < 2:
        return largest, float(abs(loss[0] - expected[0])) / zero
    parts = (np.abs(np.diff(expected[inside])) / (FINE * zero)).astype(int) + 1
    step, share = subdivided(parts)
    times = np.append(time[0], time[step] + share * np.diff(time)[step])
    difference = np.abs(np.interp(times, time, loss) - prediction.loss(times))
    mean = float(np.trapezoid(difference, times) / (time[-1] - time[0])) / zero
    return max(largest, mean), mean


def crossing(time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], level: float) -> float | None:
    """The time at which a curve first falls to a level, `None` if it never does.

    Between two points it is the cubic through the four around, time as a function of the loss; where these do not fall
    one after the other, or it leaves the two, a straight line.
    """
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0:
        return float(time[0])
    times, losses = time[max(i - 2, 0) : i + 2], loss[max(i - 2, 0) : i + 2]
    if len(losses) == 4 and (np.diff(losses) < 0).all():
        apart = losses[:, None] - losses
        weights = np.where(np.eye(4) == 1, 1.0, (level - losses) / (apart + np.eye(4))).prod(1)
        when = float(times @ weights)
        if time[i - 1] <= when <= time[i]:
            return when
    share = (loss[i - 1] - level) / (loss[i - 1] - loss[i])
    return float(time[i - 1] + share * (time[i] - time[i - 1]))


def observed_drops(
    run: Run, time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction
) -> list[Drop]:
    """Every predicted drop with the time, head and direction observed in the run."""
    middles = (prediction.levels[:-1] + prediction.levels[1:]) / 2
    drops = []
    for number, middle in enumerate(middles.tolist()[: len(prediction.drop_times)]):
        when = crossing(time, loss, middle)
        step = None if when is None else int(np.searchsorted(run.arrays("curves")["time"], when))
        direction = int(prediction.directions[number])
        drops.append(
            Drop(
                predicted_time=float(prediction.drop_times[number]),
                observed_time=when,
                observed_step=step,
                predicted_head=int(prediction.heads[number]),
                observed_head=None if when is None else carrying_head(run, direction, when, number, prediction),
                direction=direction,
                observed_direction=None if when is None else grown_direction(run, when, number, prediction),
                low=float(prediction.drop_intervals[number, 0]),
                high=float(prediction.drop_intervals[number, 1]),
            )
        )
    return drops


def carrying_head(run: Run, direction: int, when: float, number: int, prediction: Prediction) -> int | None:
    """The head with the largest share of a direction at the end; `None` if the drop has no direction of its own.

    Where a direction is learned more than once, it is the head whose share grew most across the drop.
    """
    if direction < 0 or run.experiment.data is not None:
        return None
    if np.sum(prediction.directions == direction) == 1:
        return int(np.argmax(head_shares(run.model, run.final_weights, run.task)[:, direction]))
    sides = around(run, when, number, prediction)
    if sides is None:
        return None
    growth = head_shares(run.model, sides[1], run.task) - head_shares(run.model, sides[0], run.task)
    return int(np.argmax(np.abs(growth).sum(axis=1)))


def grown_direction(run: Run, when: float, number: int, prediction: Prediction) -> int | None:
    """The eigen-direction whose gain grew most across a drop, judged by the recorded weights on both sides of it."""
    if prediction.directions[number] < 0 or run.experiment.data is not None:
        return None
    sides = around(run, when, number, prediction)
    if sides is None:
        return None
    first, last = sides
    if not run.model.linear:  # shares of heads are all that there is
        growth = head_shares(run.model, last, run.task) - head_shares(run.model, first, run.task)
        return int(np.argmax(growth[np.argmax(np.abs(growth).sum(axis=1))]))
    growth = gains(run.model, last, run.task) - gains(run.model, first, run.task)
    return int(np.argmax(growth)) if growth.any() else None


def around(run: Run, when: float, number: int, prediction: Prediction) -> tuple[Weights, Weights] | None:
    """The recorded weights on the plateaus before and after a drop; `None` if there are none on one of them."""
    times = run.arrays("weights")["time"]
    drops = prediction.drop_times
    begin = float(drops[number - 1]) if number else -np.inf
    end = float(drops[number + 1]) if number + 1 < len(drops) else np.inf
    before = (begin + when) / 2 if number else when / 2
    after = (when + end) / 2 if number + 1 < len(drops) else times[-1]
    first, last = (int(np.argmin(np.abs(times - t))) for t in (before, after))
    if not begin < times[first] < when < times[last] < end:
        return None
    snapshots = list(run.snapshots())
    return snapshots[first], snapshots[last]


def observed_plateaus(
    time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction
) -> list[Plateau]:
    """Every observed plateau with the nearest predicted level."""
    if len(time) < 3:
        return []
    waits = np.diff(prediction.drop_times, prepend=0.0)
    plateaus, below = [], np.sum(prediction.levels[:-1] > BEGUN * loss[0])  # levels that the run has begun below
    for level, start, length in zip(*find_plateaus(time, loss), strict=True):
        nearest = int(below + np.argmin(np.abs(prediction.levels[below:] - level)))
        wait = float(waits[nearest]) if nearest < len(waits) else None
        plateaus.append(Plateau(float(level), float(prediction.levels[nearest]), float(start), float(length), wait))
    return plateaus
