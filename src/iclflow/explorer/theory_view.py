"""What theory predicts for a state: levels, curve, drops with their intervals, value weights, sentences, notes.

This takes milliseconds for most states and seconds for many heads of high rank or several layers. So the page shows
`outline` (the levels) where `theory_view` is not there at once, and the rest when it is.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.explorer.sentence import forecast_sentence
from iclflow.explorer.state import State
from iclflow.prediction.card import theory_line
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.theory.landscape import plateau_losses

__all__ = ["TheoryView", "full_view", "levels_only", "outline", "theory_view", "usable"]

POINTS = 240
NOT_RELIABLE = "The forecast is not reliable here and is not drawn."
COMING = "The forecast is being computed."
ONE_LAYER = "The dotted levels are those of one layer."


@dataclass(frozen=True)
class TheoryView:
    """What the page shows of theory."""

    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"] | None  # None where only the levels are known
    levels: Float[np.ndarray, " levels"]
    note: str  # why there is no curve, or what it assumes
    prediction: Prediction | None = None
    clock: str = "t/τ"  # what the time axis counts
    complete: bool = True  # False while the forecast is being computed

    @property
    def drops(self) -> Float[np.ndarray, " m"]:
        """The predicted drop times."""
        return np.array([]) if self.prediction is None else self.prediction.drop_times

    @property
    def intervals(self) -> Float[np.ndarray, "m 2"]:
        """The 95 % interval of every drop time."""
        return np.empty((0, 2)) if self.prediction is None else self.prediction.drop_intervals

    def payload(self) -> dict[str, Any]:
        """What the browser keeps of theory."""
        p = self.prediction
        sentences = [""] * len(self.time) if p is None else [forecast_sentence(p, t) for t in self.time]
        levels = [float(self.levels.min()), float(self.levels.max())]
        return {"time": self.time.tolist(), "sentences": sentences, "levels": levels, "clock": self.clock}


@lru_cache(maxsize=256)
def theory_view(state: State) -> TheoryView:
    """Theory from the initial weights of the first seed."""
    experiment = state.experiment(state.seed)
    outlined, deep = replace(outline(state), complete=True), f" {ONE_LAYER}" if state.layers > 1 else ""
    try:
        training = experiment.training.replace(samples=math.inf)
        prediction = predict(experiment.task, experiment.model, training=training)
    except BadInput as error:
        return replace(outlined, note=f"There is no forecast ({error}).{deep}")
    notes = " ".join(note[:1].upper() + note[1:].rstrip(".") + "." for note in prediction.notes)
    if usable(prediction):
        return full_view(prediction, notes, state.clock)
    why = NOT_RELIABLE if len(prediction.drop_times) else "No times of drops are predicted."
    if prediction.never and len(prediction.levels) == 1:
        why = forecast_sentence(prediction, 0.0).capitalize() + "."
    return replace(outlined, note=f"{why} {notes}{deep}".strip())


def outline(state: State) -> TheoryView:
    """What is known before theory has been computed: the levels of one layer."""
    end = 1e4 if not state.has_length else float(state.length) * (state.lr if state.rule == "descent" else 1.0)
    view = levels_only(plateau_losses(state.experiment(state.seed).task), COMING, end)
    return replace(view, clock=state.clock, complete=False)


def full_view(prediction: Prediction, note: str = "", clock: str = "t/τ") -> TheoryView:
    """All that a prediction gives, from a little before the first drop to a little after the last."""
    drops = prediction.drop_times
    end = (1.25 if len(drops) != 1 else 10.0) * float(drops[-1])  # after a single drop the slow directions relax
    line = theory_line(prediction, end)
    shown = line.x >= 0.03 * float(drops[0])
    return TheoryView(line.x[shown], line.y[shown], prediction.levels, note, prediction, clock)


def usable(prediction: Prediction) -> bool:
    """Whether theory gives times of drops that it trusts, positive and in rising order."""
    drops = prediction.drop_times
    return len(drops) > 0 and prediction.reliable and bool((np.diff(drops, prepend=0.0) > 0).all())


def levels_only(levels: Float[np.ndarray, " levels"], note: str, end: float = 1e4) -> TheoryView:
    """The levels without a curve, up to the time `end`."""
    return TheoryView(np.geomspace(1e-5 * max(end, 1e-3), max(end, 1e-3), POINTS), None, levels, note)
