"""What theory predicts for a state, at once: levels, curve, drops, value weights, sentences.

This takes tens of milliseconds for most states, and a second or more for many heads of high rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from iclflow.comparison.prediction import Prediction, predict
from iclflow.errors import BadInput
from iclflow.explorer.sentence import sentence
from iclflow.explorer.state import State
from iclflow.theory.landscape import plateau_losses
from iclflow.units import to_paper_weights

__all__ = ["TheoryView", "full_view", "levels_only", "payload", "theory_view", "usable"]

POINTS = 240
Levels = Float[np.ndarray, " levels"]
Words = Callable[[float], str]  # a sentence for a time
LARGE = 0.25  # the initial scale, in the paper's units, from which weights are not small
NOT_SMALL = "theory assumes small initial weights; these are not"


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

    def at(self, time: Float[np.ndarray, " R"], heads: int) -> Float[np.ndarray, "R H"] | None:
        """The predicted value weights of the first heads at any times."""
        return None if self.prediction is None else self.prediction.values(time)[:, :heads]


@lru_cache(maxsize=256)
def theory_view(state: State) -> TheoryView:
    """Theory from the initial weights of the first seed."""
    experiment = state.experiment(state.seed)
    task, model, training = experiment.task, experiment.model, experiment.training
    levels = plateau_losses(task)
    try:
        prediction = predict(task, model, init=training.init, init_law=training.init_law, seed=state.seed)
    except BadInput as error:
        return levels_only(levels, str(error))
    if not usable(prediction):
        return levels_only(levels, NOT_SMALL)
    most, drops = model.components(task), prediction.drop_times
    words = lambda t: sentence(model.one_by_one, t, expected_gains(prediction, t, state), most, drops)
    shown = levels[: len(prediction.levels)] if model.one_by_one else prediction.levels
    note = NOT_SMALL if to_paper_weights(task, model, state.init) >= LARGE else ""
    return full_view(prediction, shown, words, note)


def full_view(p: Prediction, levels: Levels, words: Words = lambda time: "", note: str = "") -> TheoryView:
    """All that a prediction gives, with `words` for every time."""
    time = times(p)
    return TheoryView(time, p.loss(time), levels, p.drop_times, p.directions, [words(t) for t in time], note, p)


def usable(prediction: Prediction) -> bool:
    """Whether every drop comes after the start; from large weights theory can put some before it."""
    return bool((prediction.drop_times > 0).all())


def levels_only(levels: Levels, note: str, end: float = 1e4) -> TheoryView:
    """The levels without a curve, up to the time `end`."""
    time = np.geomspace(1e-5 * max(end, 1e-3), max(end, 1e-3), POINTS)
    return TheoryView(time, None, levels, np.array([]), np.array([], int), [""] * POINTS, note, None)


def times(prediction: Prediction) -> Float[np.ndarray, " T"]:
    """Times from a little before the first drop to a little after the last, closer together around every drop."""
    drops = prediction.drop_times
    first = max(float(drops[0]) if len(drops) else 1.0, 1e-3)
    end = prediction.end if len(drops) != 1 else 8 * prediction.end  # after a single drop the slow directions relax
    base = np.geomspace(0.03 * first, end, POINTS // 2)
    near = 1 + np.concatenate([-np.geomspace(1e-3, 0.2, 6)[::-1], [0.0], np.geomspace(1e-3, 0.2, 6)])
    around = (drops[:, None] * near).ravel()
    return np.unique(np.concatenate([base, around[(around > 0) & (around < end)]]))


def expected_gains(prediction: Prediction, time: float, state: State) -> Float[np.ndarray, " D"]:
    """Ones for the directions whose drop is over: enough for a sentence before anything is simulated."""
    gains = np.zeros(state.dim)
    for drop, direction in zip(prediction.drop_times, prediction.directions, strict=True):
        if time >= drop:
            gains[direction if direction >= 0 else slice(None)] = 1.0
    return gains


def payload(view: TheoryView) -> dict[str, Any]:
    """What the browser keeps of theory."""
    time, levels = view.time.tolist(), [float(view.levels.min()), float(view.levels.max())]
    return {"time": time, "sentences": view.sentences, "drops": view.drops.tolist(), "levels": levels}
