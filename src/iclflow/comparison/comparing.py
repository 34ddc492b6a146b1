"""A run beside the prediction of theory: distance between the curves, drops and plateaus, all in time t/tau.

Drops are timed by the loss: a drop is half done when the loss crosses the middle between two predicted levels. Plateaus
are detected on the observed curve alone (`plateaus`), so that unpredicted plateaus are reported too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import gains, head_shares
from iclflow.comparison.plateaus import find_plateaus
from iclflow.comparison.prediction import Prediction, predict
from iclflow.comparison.sample import sample_landscape
from iclflow.errors import BadInput
from iclflow.results.run import Run

__all__ = ["Comparison", "Drop", "Plateau", "compare_one"]


@dataclass(frozen=True)
class Drop:
    """A predicted drop and the observed one; observed values are `None` if the run did not reach the drop."""

    predicted_time: float
    observed_time: float | None
    observed_step: int | None
    predicted_head: int
    observed_head: int | None
    direction: int
    observed_direction: int | None

    @property
    def error(self) -> float | None:
        """The relative error of the predicted time; `None` if the run did not reach the drop or started below it."""
        if not self.observed_time:
            return None
        return abs(self.predicted_time - self.observed_time) / self.observed_time


@dataclass(frozen=True)
class Plateau:
    """An observed plateau and the predicted level nearest to it."""

    observed_level: float
    predicted_level: float
    start: float
    length: float
    predicted_length: float | None


@dataclass(frozen=True)
class Comparison:
    """One run and its prediction; gaps are relative to the predicted loss before the first drop."""

    seed: int
    largest_gap: float
    mean_gap: float  # averaged over time, until the run ends or shortly after the last predicted drop
    drops: tuple[Drop, ...]
    plateaus: tuple[Plateau, ...]
    prediction: Prediction
    source: str  # whose moments theory used, population or sample

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON."""
        drops = [{**asdict(drop), "error": drop.error} for drop in self.drops]
        return {
            "seed": self.seed,
            "source": self.source,
            "largest_gap": self.largest_gap,
            "mean_gap": self.mean_gap,
            "drops": drops,
            "plateaus": [asdict(plateau) for plateau in self.plateaus],
        }

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: theory from the {self.source}'s moments;"
            f" largest gap {self.largest_gap:.2e}, mean {self.mean_gap:.2e}",
            "  drop   predicted t/tau   observed   error   head, direction (predicted; observed)",
        ]
        for number, d in enumerate(self.drops, 1):
            observed = "        -       -" if d.observed_time is None else f"{d.observed_time:9.2f} {d.error:7.2%}"
            pairs = (d.predicted_head, d.direction), (d.observed_head, d.observed_direction)
            heads = "; ".join(", ".join("-" if x is None or x < 0 else str(x) for x in pair) for pair in pairs)
            lines.append(f"  {number:4d} {d.predicted_time:17.2f}  {observed}   {heads}")
        lines.append("  plateau   observed   predicted      start     length   predicted length")
        for number, p in enumerate(self.plateaus, 1):
            length = "-" if p.predicted_length is None else f"{p.predicted_length:.1f}"
            levels = f"{p.observed_level:10.5f} {p.predicted_level:11.5f}"
            lines.append(f"  {number:7d} {levels} {p.start:10.1f} {p.length:10.1f} {length:>18}")
        return "\n".join(lines)


def compare_one(run: Run, source: str | None) -> Comparison:
    """Compare the run of a single seed with theory."""
    exact = run.experiment.population or run.task.icl_fraction < 1 or run.training.weight_decay > 0
    source = source or ("population" if exact else "sample")
    if source not in ("population", "sample"):
        raise BadInput(f"source: {source!r} must be 'population' or 'sample'")
    if run.training.optimizer != "sgd":
        raise BadInput(f"optimizer: {run.training.optimizer!r} has no theory; plain gradient descent has")
    sample = sample_landscape(run) if source == "sample" else None
    decay = run.training.weight_decay
    prediction = predict(run.task, run.model, weights=run.initial_weights, sample=sample, weight_decay=decay)
    time, loss = run.time.values, run.loss.values
    finite = np.isfinite(loss)
    time, loss = time[finite], loss[finite]
    largest, mean = gaps(time, loss, prediction)
    drops = tuple(observed_drops(run, time, loss, prediction))
    plateaus = tuple(observed_plateaus(time, loss, prediction))
    return Comparison(run.seeds[0], largest, mean, drops, plateaus, prediction, source)


def gaps(time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction) -> tuple[float, float]:
    """The largest and the time-averaged distance between observed and predicted loss."""
    difference = np.abs(loss - prediction.loss(time)) / prediction.levels[0]
    inside = time <= max(prediction.end, time[0] + 1e-12)
    duration = time[inside][-1] - time[0]
    mean = np.trapezoid(difference[inside], time[inside]) / duration if duration > 0 else difference[0]
    return float(difference.max()), float(mean)


def crossing(time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], level: float) -> float | None:
    """The time at which a curve first falls to a level, `None` if it never does."""
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0:
        return float(time[0])
    share = (loss[i - 1] - level) / (loss[i - 1] - loss[i])
    return float(time[i - 1] + share * (time[i] - time[i - 1]))


def observed_drops(
    run: Run, time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction
) -> list[Drop]:
    """Every predicted drop with the time, head and direction observed in the run."""
    middles = (prediction.levels[:-1] + prediction.levels[1:]) / 2
    drops = []
    for number, middle in enumerate(middles.tolist()):
        when = crossing(time, loss, middle)
        step = None if when is None else int(np.searchsorted(time, when))
        direction = int(prediction.directions[number])
        drops.append(
            Drop(
                predicted_time=float(prediction.drop_times[number]),
                observed_time=when,
                observed_step=step,
                predicted_head=int(prediction.heads[number]),
                observed_head=None if when is None else carrying_head(run, direction),
                direction=direction,
                observed_direction=None if when is None else grown_direction(run, when, number, prediction),
            )
        )
    return drops


def carrying_head(run: Run, direction: int) -> int | None:
    """The head with the largest share of a direction at the end; `None` if the drop has no direction of its own."""
    if direction < 0 or run.experiment.data is not None:
        return None
    return int(np.argmax(head_shares(run.model, run.final_weights, run.task)[:, direction]))


def grown_direction(run: Run, when: float, number: int, prediction: Prediction) -> int | None:
    """The eigen-direction whose gain grew most across a drop, judged by the recorded weights on both sides of it."""
    if prediction.directions[number] < 0 or run.experiment.data is not None:
        return None
    times = run.weights["time"].values
    drops = prediction.drop_times
    before = (drops[number - 1] + when) / 2 if number else when / 2
    after = (when + drops[number + 1]) / 2 if number + 1 < len(drops) else times[-1]
    first, last = (int(np.argmin(np.abs(times - t))) for t in (before, after))
    snapshots = list(run.snapshots())
    growth = gains(run.model, snapshots[last], run.task) - gains(run.model, snapshots[first], run.task)
    return int(np.argmax(growth)) if first < last else None


def observed_plateaus(
    time: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], prediction: Prediction
) -> list[Plateau]:
    """Every observed plateau with the nearest predicted level."""
    if len(time) < 3:
        return []
    waits = np.diff(prediction.drop_times, prepend=0.0)
    plateaus = []
    for level, start, length in zip(*find_plateaus(time, loss), strict=True):
        nearest = int(np.argmin(np.abs(prediction.levels - level)))
        wait = float(waits[nearest]) if nearest < len(waits) else None
        plateaus.append(Plateau(float(level), float(prediction.levels[nearest]), float(start), float(length), wait))
    return plateaus
