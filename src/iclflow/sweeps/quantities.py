r"""The numbers kept of a run: a thinned curve, and quantities measured on the full curve.

Drops and plateaus are detected on the curve alone (`comparison.plateaus`). A direction counts as learned once its gain
(`comparison.gains`) has reached one half.
"""

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import gains
from iclflow.comparison.plateaus import find_drops, find_plateaus
from iclflow.engines.outcome import Outcome
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.models import Weights
from iclflow.sweeps.columns import CURVES
from iclflow.system.thinning import kept_places

__all__ = ["curve_rows", "summary_row"]


def summary_row(experiment: Experiment, result: Outcome, slots: int) -> Float[np.ndarray, " K"]:
    """The summary of a run, in the order of `columns(slots)`; unused slots are NaN."""
    times, losses = result.times, result.losses[:, 0]
    drops, levels = staircase_of(times, losses)
    scalars = [losses[-1], len(losses) - 1, learned(experiment, result.snapshots[-1]), len(drops)]
    return np.array([*scalars, *padded(drops, slots), *padded(levels, slots + 1)])


def staircase_of(
    times: Float[np.ndarray, " T"], losses: Float[np.ndarray, " T"]
) -> tuple[Float[np.ndarray, " drops"], Float[np.ndarray, " plateaus"]]:
    """Times of the drops and losses of the plateaus; both empty if the curve is too short or diverged."""
    try:
        if not np.isfinite(losses).all():
            raise BadInput("loss: is not finite")
        return find_drops(times, losses).times, find_plateaus(times, losses).levels
    except BadInput:
        return np.array([]), np.array([])


def padded(values: Float[np.ndarray, " n"], length: int) -> Float[np.ndarray, " {length}"]:
    """The first `length` values, followed by NaN if there are fewer."""
    kept = values[:length]
    return np.concatenate([kept, np.full(length - len(kept), np.nan)])


def learned(experiment: Experiment, weights: Weights) -> float:
    """How many eigen-directions the weights have learned; NaN if no theory predicts their final strength."""
    task, model = experiment.task, experiment.model
    if not model.linear or experiment.data is not None or task.icl_fraction < 1:
        return np.nan
    if not all(np.isfinite(array).all() for array in weights.values()):
        return np.nan
    try:
        return float(np.sum(gains(model, weights, task, blocks="label") >= 0.5))
    except BadInput:  # a covariance without full rank
        return np.nan


def curve_rows(result: Outcome, test_names: list[str], length: int, has_tests: bool) -> Float[np.ndarray, "C L"]:
    """Step, time and losses at the kept points, which are not interpolated, followed by NaN."""
    places = kept_places(result.times, result.losses[:, 0], length)
    rows = np.full((len(CURVES) if has_tests else 3, length), np.nan)
    count = len(places)
    rows[0, :count], rows[1, :count] = places, result.times[places]
    rows[2, :count] = result.losses[places, 0]
    for number, name in enumerate(test_names, 1):
        rows[CURVES.index(name), :count] = result.losses[places, number]
    return rows
