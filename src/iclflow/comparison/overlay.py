"""Loss curves compared with theory and with each other.

Distances are relative to the initial loss of the first curve, over the times that both curves cover. Where the initial
weights are known (a run, or a file given with its weights) theory predicts the whole curve, else only its levels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.comparing import compare_one, gaps
from iclflow.comparison.curves import Curve
from iclflow.comparison.plateaus import find_drops, find_plateaus
from iclflow.comparison.prediction import Prediction, predict
from iclflow.comparison.sample import data_landscape
from iclflow.data.own import OwnData
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.results.weights import infer_model, read_weights
from iclflow.theory.landscape import plateau_losses
from iclflow.theory.separate import rank_optimum

__all__ = ["Distance", "Overlay", "lay_over"]


@dataclass(frozen=True)
class Distance:
    """The distance between a curve and its reference, another curve or theory."""

    curve: str
    reference: str
    largest: float
    mean: float


@dataclass(frozen=True)
class Overlay:
    """Several loss curves with their plateaus, drops, predictions and distances, by name of the curve."""

    curves: list[Curve]
    clock: str  # time or step
    distances: list[Distance]
    levels: Float[np.ndarray, " m"] | None
    plateaus: dict[str, list[tuple[float, float | None]]]  # observed level, nearest predicted one
    drops: dict[str, list[float]]
    predictions: dict[str, Prediction]

    def __str__(self) -> str:
        lines = []
        for curve in self.curves:
            times = ", ".join(f"{t:.5g}" for t in self.drops[curve.name])
            axis = "t/tau" if self.clock == "time" else "step"
            lines.append(
                f"{curve.name}: loss {curve.loss[0]:.5g} -> {curve.loss[-1]:.5g}; drops at {axis}: {times or '-'}"
            )
            for level, near in self.plateaus[curve.name]:
                theory = "" if near is None else f"   theory {near:.6f}   off by {level / near - 1:+.2%}"
                lines.append(f"    plateau {level:.6f}{theory}")
        lines += [f"{d.curve} to {d.reference}: largest {d.largest:.3g}, mean {d.mean:.3g}" for d in self.distances]
        return "\n".join(lines)

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


def lay_over(curves: list[Curve], weights: Any = None, own: OwnData | None = None) -> Overlay:
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
    levels = known_levels(curves) if own is None else data_levels(curves[0], own)
    plateaus = {c.name: observed(axes[c.name], c.loss, levels) for c in curves}
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


def expected(curve: Curve, weights: Any, own: OwnData | None) -> Prediction | None:
    """The predicted curve, if initial weights are known and theory covers the settings."""
    if curve.run is not None:
        try:
            return compare_one(curve.run, None).prediction
        except BadInput:
            return None
    if weights is None:
        return None
    experiment = Experiment.from_flat(curve.settings)
    start = read_weights(weights).weights
    task, model = experiment.task, infer_model(start, experiment.model)
    sample = None if own is None else data_landscape(own, task, model)
    return predict(task, model, weights=start, sample=sample)


def data_levels(curve: Curve, own: OwnData) -> Float[np.ndarray, " m"]:
    """The lowest losses of rank 0 to D on a user's own data."""
    experiment = Experiment.from_flat(curve.settings)
    sample = data_landscape(own, experiment.task, experiment.model)
    return np.array([sample.loss(rank_optimum(sample, m)) for m in range(experiment.task.dim + 1)])


def known_levels(curves: list[Curve]) -> Float[np.ndarray, " m"] | None:
    """The predicted plateau losses, if the settings of some curve describe the task."""
    for curve in curves:
        if curve.settings and curve.settings.get("data") is None:
            experiment = Experiment.from_flat(curve.settings)
            if experiment.task.icl_fraction == 1:
                return plateau_losses(experiment.task)
    return None


def observed(
    axis: Float[np.ndarray, " T"], loss: Float[np.ndarray, " T"], levels: Float[np.ndarray, " m"] | None
) -> list[tuple[float, float | None]]:
    """The level of every observed plateau, and the nearest predicted level."""
    seen = find_plateaus(axis, loss).levels.tolist() if len(axis) > 2 else []
    nearest = lambda x: None if levels is None else float(levels[np.argmin(np.abs(levels - x))])
    return [(level, nearest(level)) for level in seen]
