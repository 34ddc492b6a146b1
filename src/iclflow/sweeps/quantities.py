r"""The numbers kept of a run: a thinned curve, and what can be read off the whole one.

Drops and plateaus are found on the curve alone (`staircase_detection`). A direction counts as learned when the model's
gain along it has passed half of its final strength: $\ell_d' B M \Lambda r_d / m_d \ge \alpha_d / 2$ with the effective
matrix $M = \sum_h v_h U_h$ in the paper's units and the directions of `theory.landscape`.
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Experiment
from iclflow.errors import BadInput
from iclflow.models import Weights
from iclflow.run import SeedResult
from iclflow.staircase_detection import find_drops, find_plateaus
from iclflow.sweeps.quantity_names import CURVES
from iclflow.theory.landscape import directions, landscape
from iclflow.thinning import kept_places
from iclflow.units import to_paper_weights

__all__ = ["curve_rows", "summary_row"]


def summary_row(experiment: Experiment, result: SeedResult, slots: int) -> Float[np.ndarray, " K"]:
    times, losses = result.times, result.losses[:, 0]
    drops, levels = staircase_of(times, losses)
    scalars = [losses[-1], len(losses) - 1, learned(experiment, result.snapshots[-1]), len(drops)]
    return np.array([*scalars, *padded(drops, slots), *padded(levels, slots + 1)])


def staircase_of(times: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of the drops and losses of the plateaus; none where the curve is too short or blew up."""
    try:
        if not np.isfinite(losses).all():
            raise BadInput("loss: is not finite")
        return find_drops(times, losses).times, find_plateaus(times, losses).levels
    except BadInput:
        return np.array([]), np.array([])


def padded(values: np.ndarray, length: int) -> np.ndarray:
    kept = values[:length]
    return np.concatenate([kept, np.full(length - len(kept), np.nan)])


def learned(experiment: Experiment, weights: Weights) -> float:
    """How many eigen-directions the weights have learned; unknown (NaN) where no theory says how strong they get."""
    task, model = experiment.task, experiment.model
    if model.softmax or experiment.data is not None or task.icl_fraction < 1:
        return np.nan
    dim, outputs = task.dim, task.out_dim
    scaled = {name: np.asarray(to_paper_weights(task, model, np.asarray(w))) for name, w in weights.items()}
    if not all(np.isfinite(array).all() for array in scaled.values()):
        return np.nan
    if model.kind == "mlp":
        matrix = np.einsum("h,hde->de", scaled["second"][0], scaled["first"].reshape(-1, dim, dim))
    else:
        value = np.trace(scaled["value"][:, dim:, dim:], axis1=1, axis2=2) / outputs
        heads = (
            scaled["key_query"][:, :dim, :dim]
            if model.kind == "merged"
            else np.einsum("hrd,hre->hde", scaled["key"][:, :, :dim], scaled["query"][:, :, :dim])
        )
        matrix = np.einsum("h,hde->de", value, heads)
    try:
        known, scene = directions(task), landscape(task)
    except BadInput:  # a covariance without full rank
        return np.nan
    gain = np.einsum("id,ij,jk,kl,ld->d", known.left, scene.context, matrix, scene.query, known.right)
    return float(np.sum(np.sqrt(outputs) * gain / known.curvature >= known.strength / 2))


def curve_rows(result: SeedResult, test_names: list[str], length: int, has_tests: bool) -> Float[np.ndarray, "C L"]:
    """Step, time and losses at the kept places, filled up with NaN: exact values of the curve, none in between."""
    places = kept_places(result.times, result.losses[:, 0], length)
    rows = np.full((len(CURVES) if has_tests else 3, length), np.nan)
    count = len(places)
    rows[0, :count], rows[1, :count] = places, result.times[places]
    rows[2, :count] = result.losses[places, 0]
    for number, name in enumerate(test_names, 1):
        rows[CURVES.index(name), :count] = result.losses[places, number]
    return rows
