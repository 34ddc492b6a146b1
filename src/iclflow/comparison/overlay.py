"""Loss curves compared with theory and with each other.

Distances are relative to the initial loss of the first curve, over the times that both curves cover. Where the initial
weights are known (a run, or a file given with its weights) theory predicts the whole curve, else only its levels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.comparing import compare_one, gaps
from iclflow.comparison.curves import Curve, described
from iclflow.comparison.plateaus import find_drops, find_plateaus
from iclflow.config import Training
from iclflow.data.own import OwnData
from iclflow.errors import BadInput, NoTheory
from iclflow.experiment import Setup
from iclflow.models import Weights
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.prediction.sample import landscape_of, sample_landscape
from iclflow.results.card import Card, WithCard
from iclflow.results.weights import infer_model
from iclflow.theory.landscape import plateau_losses
from iclflow.theory.separate import SampleLandscape, rank_optimum

__all__ = ["Distance", "Overlay", "lay_over"]

FAR = 0.05  # relative distance of a plateau from every level, from which the task may be another one


@dataclass(frozen=True)
class Distance:
    """The distance between a curve and its reference, another curve or theory."""

    curve: str
    reference: str
    largest: float
    mean: float


@dataclass(frozen=True, repr=False)
class Overlay(WithCard):
    """Several loss curves with their plateaus, drops, predictions and distances, by name of the curve."""

    curves: list[Curve]
    clock: str  # time or step
    distances: list[Distance]
    levels: Float[np.ndarray, " m"] | None
    plateaus: dict[str, list[tuple[float, float | None]]]  # observed level, nearest predicted one
    drops: dict[str, list[float]]
    predictions: dict[str, Prediction]

    @property
    def strangers(self) -> dict[str, float]:
        """The curves from elsewhere whose plateaus are not those of the task that was given, and how far they are."""
        off = {
            c.name: max((abs(level / near - 1) for level, near in self.plateaus[c.name] if near), default=0.0)
            for c in self.curves
            if c.run is None
        }
        return {name: far for name, far in off.items() if far > FAR}

    def foreign(self, name: str) -> str:
        """What is said about the levels of such a curve."""
        return f"levels of the task you gave are {self.strangers[name]:.0%} off"

    def card(self) -> Card:
        """Every curve with its prediction, distances and plateaus."""
        from iclflow.comparison.card import overlay_card

        return overlay_card(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the curves, ready for JSON."""
        return {
            "clock": self.clock,
            "curves": [
                {"name": c.name, "first": float(c.loss[0]), "last": float(c.loss[-1]), "drops": self.drops[c.name],
                 "plateaus": [{"level": level, "theory": near} for level, near in self.plateaus[c.name]]}
                for c in self.curves
            ],
            "levels": None if self.levels is None else self.levels.tolist(),
            "distances": [vars(d) for d in self.distances],
        }  # fmt: skip


def lay_over(curves: list[Curve], weights: Weights | None = None, own: OwnData | None = None) -> Overlay:
    """Compare every curve with theory and with the first curve.

    Args:
        curves: what to compare.
        weights: the initial weights of the curves that are not runs.
        own: the sequences that these were trained on.
    """
    clock = "time" if any(c.run is not None or c.time is not None for c in curves) else "step"
    if clock == "time" and any(c.time is None for c in curves) and all(c.step is not None for c in curves):
        clock = "step"
    axes = {c.name: c.axis(clock) for c in curves}
    distances, predictions = [], {}
    for curve in curves:
        prediction = expected(curve, weights, own) if clock == "time" else None
        if prediction is not None:
            predictions[curve.name] = prediction
            distances.append(Distance(curve.name, "theory", *gaps(axes[curve.name], curve.loss, prediction)))
    distances += [between(curves[0], other, axes) for other in curves[1:]]
    known = {c.name: levels_of(c, own) for c in curves}
    levels = next((one for one in known.values() if one is not None), None)
    plateaus = {
        c.name: observed(axes[c.name], c.loss, levels if own_levels is None else own_levels)
        for c, own_levels in zip(curves, known.values(), strict=True)
    }
    drops = {c.name: find_drops(axes[c.name], c.loss).times.tolist() for c in curves}
    return Overlay(curves, clock, distances, levels, plateaus, drops, predictions)


def between(first: Curve, other: Curve, axes: dict[str, np.ndarray]) -> Distance:
    """The distance of a curve to the first one."""
    a, b = axes[first.name], axes[other.name]
    grid = np.union1d(a, b)
    grid = grid[(grid >= max(a[0], b[0])) & (grid <= min(a[-1], b[-1]))]
    if len(grid) < 2:
        raise BadInput(f"curve: {other.name!r} and {first.name!r} have no stretch in common")
    apart = np.abs(np.interp(grid, a, first.loss) - np.interp(grid, b, other.loss)) / abs(first.loss[0])
    mean = np.trapezoid(apart, grid) / (grid[-1] - grid[0])
    return Distance(other.name, first.name, float(apart.max()), float(mean))


def expected(curve: Curve, weights: Weights | None, own: OwnData | None) -> Prediction | None:
    """The predicted curve, if initial weights are known and theory covers the settings."""
    if curve.run is not None:
        try:
            return compare_one(curve.run, None).prediction
        except BadInput:
            return None
    if weights is None and "init" not in curve.given:
        return None
    setup = described(curve.settings)
    model = setup.model if weights is None else infer_model(weights, setup.model)
    how = {name: value for name, value in curve.given.items() if name in Training.model_fields}
    try:
        found = predict(setup.task, model, weights=weights, data=own, **how)
    except NoTheory:
        return None
    return found if len(found.drop_times) or len(found.levels) < 2 else None  # without times there is no curve


def own_landscape(own: OwnData, experiment: Setup) -> SampleLandscape:
    """The loss of a user's sequences, as theory sees it."""
    return landscape_of(own.training, experiment.task, experiment.model, experiment.training)


def levels_of(curve: Curve, own: OwnData | None) -> Float[np.ndarray, " m"] | None:
    """The plateau losses of linear attention on the task, or on the sample, of a curve, if its settings tell them."""
    if not curve.settings or (curve.run is None and own is None and curve.settings.get("data") is not None):
        return None
    experiment = described(curve.settings) if curve.run is None else curve.run.experiment
    task = experiment.task
    if task.icl_fraction < 1 or experiment.training.weight_decay > 0:
        return None
    if curve.run is not None and not experiment.population:
        sample = sample_landscape(curve.run)
    elif curve.run is None and own is not None:
        sample = own_landscape(own, experiment)
    else:
        return plateau_losses(task)
    return np.array([sample.loss(rank_optimum(sample, m)) for m in range(task.dim + 1)])


def observed(
    axis: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], levels: Float[np.ndarray, " m"] | None
) -> list[tuple[float, float | None]]:
    """The level of every observed plateau, and the nearest predicted level."""
    seen = find_plateaus(axis, loss).levels.tolist() if len(axis) > 2 else []
    nearest = lambda x: None if levels is None else float(levels[np.argmin(np.abs(levels - x))])
    return [(level, nearest(level)) for level in seen]
