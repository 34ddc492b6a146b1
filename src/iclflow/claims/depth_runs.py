"""Runs of two layers and their forecasts, shared by the claims about depth."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.claims.registry import shifted
from iclflow.config import Training
from iclflow.data.spectrum import covariances
from iclflow.experiment import Experiment
from iclflow.models import Weights
from iclflow.models.initial import initial_weights
from iclflow.results.run import Run
from iclflow.theory.depth import Contexts, Ladder, ladder
from iclflow.training.plan import Plan

__all__ = ["LONG", "Walked", "held", "layer_matrices", "small", "to_the_end", "to_the_second_drop"]

TASK, MODEL, INIT = icl.Task(dim=2, context=31), icl.Separate(heads=3, layers=2), 5e-3
SHORT, LONG, FEW = 20, 16, 3  # seeds; a few show that a sabotaged claim breaks
LONGEST = 3e4  # t/tau: runs end here at the latest
GRAMS = 256


@dataclass(frozen=True)
class Walked:
    """A run, its forecast, and when the loss was half-way between the levels of the forecast."""

    run: Run
    forecast: Ladder
    seen: Float[np.ndarray, " m"]  # not a number where the run ended before

    @property
    def rungs(self) -> set[tuple[int, int, int]]:
        """Layer, head and direction of every drop of the forecast."""
        return set(self.forecast.rungs)

    @staticmethod
    def of(run: Run, forecast: Ladder) -> "Walked":
        loss, time, seen = run.loss.values, run.time.values, []
        for above, below in zip(forecast.levels[:-1], forecast.levels[1:], strict=True):
            at = int(np.argmax(loss < (above + below) / 2))
            seen.append(time[at] if loss[at] < (above + below) / 2 else np.nan)
        return Walked(run, forecast, np.array(seen))


def small(weights: Weights, task: icl.Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, key and query of the label blocks, in the eigenbasis of the tokens."""
    dim, basis = task.dim, covariances(task).basis
    key, query = (weights[name][..., 0, :dim] @ basis for name in ("key", "query"))
    return weights["value"][..., dim, dim], key, query


def layer_matrices(weights: Weights, task: icl.Task) -> Float[np.ndarray, "L D D"]:
    """The matrix of every layer, the sum of its heads, in the eigenbasis of the tokens."""
    return np.einsum("lh,lha,lhb->lab", *small(weights, task))


def held(weights: Weights, task: icl.Task) -> set[tuple[int, int, int]]:
    """Layer, head and direction of every head that has learned most of a direction."""
    value, key, query = small(weights, task)
    share = value[..., None] * key * query * covariances(task).eigenvalues
    return {(int(layer), int(head), int(d)) for layer, head, d in zip(*np.nonzero(share > 0.5), strict=True)}


def trained(task: icl.Task, weights: Weights, seed: int, lr: float, end: float) -> Run:
    """Descent on the label blocks until some time t/tau."""
    settings = {"freeze_vectors": True, "gram_samples": GRAMS, "lr": lr, "records": 2, "progress": False}
    return icl.train(task, MODEL, weights=weights, data_seed=seed, steps=int(end / (2 * lr)), **settings)


@cache
def to_the_second_drop(offset: int, sabotage: bool) -> tuple[Walked, ...]:
    """Runs that have learned both directions once, with the forecast for the contexts that they see."""
    task, runs = shifted(TASK, offset), []
    for seed in range(offset, offset + (FEW if sabotage else SHORT)):
        weights = initial_weights(MODEL, task, "entry", INIT, seed, covariances(task))
        forecast = ladder(own_contexts(task, seed), *small(weights, task)).until(task.dim)
        run = trained(task, weights, seed, 0.1, 1.1 * forecast.drop_times[-1])
        runs.append(Walked.of(run, forecast))
    return tuple(runs)


def own_contexts(task: icl.Task, seed: int) -> Contexts:
    """The contexts that a run sees, in the eigenbasis of the tokens."""
    settings = Training(freeze_vectors=True, gram_samples=GRAMS, lr=0.1, steps=1, data_seed=seed)
    grams = Plan(Experiment(task=task, model=MODEL, training=settings)).grams(seed, "label")[0]
    assert grams is not None
    cov, dim = covariances(task), task.dim
    covariance = cov.basis.T @ grams[:: dim**2, :dim, :dim] @ cov.basis / task.context
    return Contexts(covariance, cov.eigenvalues, np.ones(dim))


@cache
def to_the_end(offset: int, sabotage: bool) -> tuple[Walked, ...]:
    """Runs down both staircases, with the forecast for the contexts that they see."""
    task, runs = shifted(TASK, offset), []
    for seed in range(offset, offset + (FEW if sabotage else LONG)):
        weights = initial_weights(MODEL, task, "entry", INIT, seed, covariances(task))
        forecast = ladder(own_contexts(task, seed), *small(weights, task))
        runs.append(Walked.of(trained(task, weights, seed, 0.5, min(1.3 * forecast.drop_times[-1], LONGEST)), forecast))
    return tuple(runs)
