"""What theory says of a state, at once: levels, curve, drops, value weights, words.

Tens of milliseconds for most states, a second or more for many heads of high rank.
"""

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

__all__ = ["TheoryView", "levels_only", "payload", "theory_view", "times", "usable"]

POINTS = 240
LARGE = 0.25  # initial weights from here on are not small, in the paper's units
NOT_SMALL = "theory assumes small initial weights; these are not"


@dataclass(frozen=True)
class TheoryView:
    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"] | None  # None where only the levels are known
    levels: Float[np.ndarray, " m"]
    drops: Float[np.ndarray, " m"]
    directions: Int[np.ndarray, " m"]
    sentences: list[str]
    note: str  # why there is no curve, or what it assumes
    prediction: Prediction | None

    def at(self, time: Float[np.ndarray, " R"], heads: int) -> Float[np.ndarray, "R H"] | None:
        """Predicted value weights at other times."""
        return None if self.prediction is None else self.prediction.values(time)[:, :heads]


@lru_cache(maxsize=256)
def theory_view(state: State) -> TheoryView:
    """Of the first seed's initial weights."""
    experiment = state.experiment(state.seed)
    task, model, training = experiment.task, experiment.model, experiment.training
    levels = plateau_losses(task)
    try:
        found = predict(task, model, init=training.init, init_law=training.init_law, seed=state.seed)
    except BadInput as error:
        return levels_only(levels, str(error))
    if not usable(found):
        return levels_only(levels, NOT_SMALL)
    time = times(found)
    gains, most = [expected_gains(found, t, state) for t in time], model.components(task)
    words = [sentence(model.one_by_one, t, g, most, found.drop_times) for t, g in zip(time, gains, strict=True)]
    shown = levels[: len(found.levels)] if model.one_by_one else found.levels
    note = NOT_SMALL if to_paper_weights(task, model, state.init) >= LARGE else ""
    return TheoryView(time, found.loss(time), shown, found.drop_times, found.directions, words, note, found)


def usable(found: Prediction) -> bool:
    """Whether every drop comes after the start; from large weights theory can put some before it."""
    return bool(len(found.drop_times) == 0 or (found.drop_times > 0).all())


def levels_only(levels: Float[np.ndarray, " m"], note: str, end: float = 1e4) -> TheoryView:
    time = np.geomspace(1e-5 * max(end, 1e-3), max(end, 1e-3), POINTS)
    return TheoryView(time, None, levels, np.array([]), np.array([], int), [""] * POINTS, note, None)


def times(found: Prediction) -> Float[np.ndarray, " T"]:
    """From a little before the first drop to a little after the last, closer together around every drop."""
    first = max(float(found.drop_times[0]) if len(found.drop_times) else 1.0, 1e-3)
    end = found.end if len(found.drop_times) != 1 else 8 * found.end  # after a single drop the slow directions relax
    base = np.geomspace(0.03 * first, end, POINTS // 2)
    near = 1 + np.concatenate([-np.geomspace(1e-3, 0.2, 6)[::-1], [0.0], np.geomspace(1e-3, 0.2, 6)])
    around = (found.drop_times[:, None] * near).ravel()
    return np.unique(np.concatenate([base, around[(around > 0) & (around < end)]]))


def expected_gains(found: Prediction, time: float, state: State) -> Float[np.ndarray, " D"]:
    """Ones for the directions whose drop is over: enough for words before anything is simulated."""
    gains = np.zeros(state.dim)
    for drop, direction in zip(found.drop_times, found.directions, strict=True):
        if time >= drop:
            gains[direction if direction >= 0 else slice(None)] = 1.0
    return gains


def payload(view: TheoryView) -> dict[str, Any]:
    """What the page keeps of it."""
    time, levels = view.time.tolist(), [float(view.levels.min()), float(view.levels.max())]
    return {"time": time, "sentences": view.sentences, "drops": view.drops.tolist(), "levels": levels}
