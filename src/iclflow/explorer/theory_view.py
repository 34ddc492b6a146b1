"""What theory predicts for a state: levels, curve, drops with their intervals, value weights, sentences, notes.

This takes tens of milliseconds for most states and seconds for many heads of high rank or several layers. So the page
asks for `outline` (the levels) where `theory_view` is not there at once, and for the rest when it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from iclflow.errors import BadInput
from iclflow.explorer.sentence import forecast_sentence
from iclflow.explorer.state import State
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import plateau_losses

__all__ = ["TheoryView", "full_view", "is_formula", "levels_only", "outline", "payload", "theory_view", "usable"]

POINTS = 240
NOT_RELIABLE = "The forecast is not reliable here and is not drawn."
COMING = "The forecast is being computed."
ONE_LAYER = "The dotted levels are those of one layer."
Levels = Float[np.ndarray, " levels"]
Words = Callable[[float], str]  # a sentence for a time


@dataclass(frozen=True)
class TheoryView:
    """What the page shows of theory."""

    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"] | None  # None where only the levels are known
    levels: Levels
    drops: Float[np.ndarray, " m"]
    directions: Int[np.ndarray, " m"]
    sentences: list[str]
    note: str  # why there is no curve, or what it assumes
    prediction: Prediction | None
    clock: str = "t/τ"  # what the time axis counts
    complete: bool = True  # False while the forecast is being computed

    @property
    def intervals(self) -> Float[np.ndarray, "m 2"]:
        """The 95 % interval of every drop time."""
        return np.empty((0, 2)) if self.prediction is None else self.prediction.drop_intervals

    def at(self, time: Float[np.ndarray, " R"], heads: int) -> Float[np.ndarray, "R H"] | None:
        """The predicted value weights of the first heads at any times."""
        return None if self.prediction is None else self.prediction.values(time)[:, :heads]


@lru_cache(maxsize=256)
def theory_view(state: State) -> TheoryView:
    """Theory from the initial weights of the first seed."""
    experiment = state.experiment(state.seed)
    task, model, training = experiment.task, experiment.model, experiment.training
    levels, end = plateau_losses(task), expected_end(state)
    deep = f" {ONE_LAYER}" if state.layers > 1 else ""
    try:
        prediction = predict(task, model, training=training.replace(samples=math.inf))
    except BadInput as error:
        return levels_only(levels, f"There is no forecast ({error}).{deep}", end, state.clock)
    notes = sentences_of(prediction)
    if not usable(prediction):
        why = NOT_RELIABLE if len(prediction.drop_times) else "No times of drops are predicted."
        never = prediction.never and len(prediction.levels) == 1
        why = forecast_sentence(prediction, 0.0).capitalize() + "." if never else why
        return levels_only(levels, f"{why} {notes}{deep}".strip(), end, state.clock)
    return full_view(prediction, prediction.levels, lambda t: forecast_sentence(prediction, t), notes, state.clock)


def is_formula(state: State) -> bool:
    """Whether theory takes milliseconds: that of a single drop."""
    experiment = state.experiment(state.seed)
    regime = experiment.model.theory(experiment.task)
    return regime is not None and regime.quick


def outline(state: State) -> TheoryView:
    """What is known before theory has been computed: the levels of one layer."""
    levels = plateau_losses(state.experiment(state.seed).task)
    view = levels_only(levels, COMING, expected_end(state), state.clock)
    return TheoryView(**{**vars(view), "complete": False})


def expected_end(state: State) -> float:
    """A time at which an axis without a predicted drop may end."""
    if not state.has_length:
        return 1e4
    return float(state.length) * (state.lr if state.rule == "descent" else 1.0)


def sentences_of(prediction: Prediction) -> str:
    """The notes of a prediction, each as a sentence."""
    return " ".join(note[:1].upper() + note[1:].rstrip(".") + "." for note in prediction.notes)


def full_view(
    p: Prediction, levels: Levels, words: Words = lambda time: "", note: str = "", clock: str = "t/τ"
) -> TheoryView:
    """All that a prediction gives, with `words` for every time."""
    time = times(p)
    return TheoryView(time, p.loss(time), levels, p.drop_times, p.directions, [words(t) for t in time], note, p, clock)


def usable(prediction: Prediction) -> bool:
    """Whether theory gives times of drops that it trusts, positive and in rising order."""
    drops = prediction.drop_times
    return len(drops) > 0 and prediction.reliable and bool((np.diff(drops, prepend=0.0) > 0).all())


def levels_only(levels: Levels, note: str, end: float = 1e4, clock: str = "t/τ") -> TheoryView:
    """The levels without a curve, up to the time `end`."""
    time = np.geomspace(1e-5 * max(end, 1e-3), max(end, 1e-3), POINTS)
    return TheoryView(time, None, levels, np.array([]), np.array([], int), [""] * POINTS, note, None, clock)


def times(prediction: Prediction) -> Float[np.ndarray, " T"]:
    """Times from a little before the first drop to a little after the last, closer together around every drop."""
    drops = prediction.drop_times
    first, end = float(drops[0]), 1.25 * float(drops[-1])
    end = end if len(drops) != 1 else 8 * end  # after a single drop the slow directions relax
    base = np.geomspace(0.03 * first, end, POINTS // 2)
    near = 1 + np.concatenate([-np.geomspace(1e-3, 0.2, 6)[::-1], [0.0], np.geomspace(1e-3, 0.2, 6)])
    around = (drops[:, None] * near).ravel()
    return np.unique(np.concatenate([base, around[(around > 0) & (around < end)]]))


def payload(view: TheoryView) -> dict[str, Any]:
    """What the browser keeps of theory."""
    time, levels = view.time.tolist(), [float(view.levels.min()), float(view.levels.max())]
    return {
        "time": time, "sentences": view.sentences, "drops": view.drops.tolist(), "levels": levels, "clock": view.clock,
    }  # fmt: skip
