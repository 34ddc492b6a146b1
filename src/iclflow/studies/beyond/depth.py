"""Runs of two layers and their forecasts, shared by the claims about depth."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import iclflow as icl
from iclflow.config import Training
from iclflow.data.grams import balanced_grams, gram_and_query
from iclflow.data.sequences import Law, sample
from iclflow.data.spectrum import covariances
from iclflow.engines.gram_loss import GramLoss
from iclflow.experiment import Experiment
from iclflow.models import Weights, deep
from iclflow.models.initial import initial_weights
from iclflow.results.run import Run
from iclflow.studies.measures import shifted, train
from iclflow.studies.study import claim
from iclflow.theory.depth import Contexts, Ladder, contexts, ladder, white_drive
from iclflow.training.plan import Plan

PLANE, TWO_LAYERS, INIT = icl.Task(dim=2, context=31), icl.Separate(heads=3, layers=2), 5e-3
SHORT, LONG, FEW = 20, 16, 3  # seeds; a few show that a sabotaged claim breaks
LONGEST = 3e4  # t/tau: runs down both staircases end here at the latest
GRAMS = 256


@dataclass(frozen=True)
class ForecastRun:
    """A run, its forecast, and when the loss was half-way between the levels of the forecast."""

    run: Run
    forecast: Ladder
    seen: Float[np.ndarray, " m"]  # not a number where the run ended before

    @property
    def rungs(self) -> set[tuple[int, int, int]]:
        """Layer, head and direction of every drop of the forecast."""
        return set(self.forecast.rungs)


def crossings(run: Run, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels-1"]:
    """The first record below the middle between each two levels; not a number if there is none."""
    loss, found = run.loss.values, []
    for half in (levels[:-1] + levels[1:]) / 2:
        at = int(np.argmax(loss < half))
        found.append(float(run.time.values[at]) if loss[at] < half else np.nan)
    return np.array(found)


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


def forecast_run(seed: int, offset: int, drops: int | None, lr: float, longer: float) -> ForecastRun:
    """A run by descent on the label blocks, with the forecast for the contexts that it sees."""
    task = shifted(PLANE, offset)
    weights = initial_weights(TWO_LAYERS, task, "entry", INIT, seed, covariances(task))
    forecast = ladder(own_contexts(task, seed), *small(weights, task))
    forecast = forecast.until(drops) if drops else forecast
    end = longer * forecast.drop_times[-1]
    steps = int((end if drops else min(end, LONGEST)) / (2 * lr))
    settings = {"freeze_vectors": True, "gram_samples": GRAMS, "lr": lr, "records": 2, "progress": False}
    run = train(task, TWO_LAYERS, weights=weights, data_seed=seed, steps=steps, **settings)
    return ForecastRun(run, forecast, crossings(run, forecast.levels))


@cache
def to_the_second_drop(offset: int, sabotage: bool) -> list[ForecastRun]:
    """Runs that have learned both directions once."""
    seeds = range(offset, offset + (FEW if sabotage else SHORT))
    return [forecast_run(seed, offset, PLANE.dim, lr=0.1, longer=1.1) for seed in seeds]


@cache
def to_the_end(offset: int, sabotage: bool) -> list[ForecastRun]:
    """Runs down both staircases."""
    seeds = range(offset, offset + (FEW if sabotage else LONG))
    return [forecast_run(seed, offset, None, lr=0.5, longer=1.3) for seed in seeds]


def own_contexts(task: icl.Task, seed: int) -> Contexts:
    """The contexts that a run sees, in the eigenbasis of the tokens."""
    settings = Training(freeze_vectors=True, gram_samples=GRAMS, lr=0.1, steps=1, data_seed=seed)
    grams = Plan(Experiment(task=task, model=TWO_LAYERS, training=settings)).grams(seed, "label")[0]
    assert grams is not None
    cov, dim = covariances(task), task.dim
    covariance = cov.basis.T @ grams[:: dim**2, :dim, :dim] @ cov.basis / task.context
    return Contexts(covariance, cov.eigenvalues, np.ones(dim))


TASK = icl.Task(dim=3, context=31)
WHITE = TASK.replace(spectrum="white")


@claim(bound=1e-12, seeds="0")
def depth_one_layer(sabotage: bool = False, offset: int = 0) -> float:
    """With one layer and vector blocks at zero, the residual stream predicts what the model of one layer does.
    Measured: largest gap between the predictions on 50 sequences
    """
    task, model = shifted(TASK, offset), icl.Separate(heads=4)
    weights = initial_weights(model, task, "random" if sabotage else "entry", 0.5, offset, covariances(task))
    stacked = {name: array[None] for name, array in weights.items()}
    sequences = hidden(sample(task, 50, seed=offset), task.dim)
    today = jax.vmap(lambda s: model.predict(weights, s, task))(jnp.asarray(sequences))
    grams = jnp.asarray(gram_and_query(sequences))
    stream = jax.vmap(lambda g: deep.predict_from_gram(model, stacked, g[:, :-1], g[:, -1], task))(grams)
    return float(jnp.abs(today - stream).max())


@claim(bound=1e-12, seeds="0")
def depth_gradient_descent(sabotage: bool = False, offset: int = 0) -> float:
    """Layers whose label blocks alone are not zero are steps of preconditioned gradient descent in context.
    Measured: largest gap between the predictions of three layers and of three steps on 50 sequences
    """
    task, model = shifted(TASK, offset), icl.Separate(heads=4, layers=3)
    weights = initial_weights(model, task, "entry", 0.7, offset, covariances(task))
    dim, sequences = task.dim, sample(task, 50, seed=offset)
    found = jax.vmap(lambda s: model.predict(weights, s, task))(jnp.asarray(hidden(sequences, dim)))
    steps = np.einsum(
        "lh,lha,lhb->lab", weights["value"][..., dim, dim], *(weights[n][..., 0, :dim] for n in ("key", "query"))
    )
    gaps = []
    for sequence, prediction in zip(sequences, found, strict=True):
        x, y = sequence[:-1, :dim], sequence[:-1, dim]
        w = np.zeros(dim)
        for A in steps[:-1] if sabotage else steps:
            w = w + A.T @ x.T @ (y - x @ w) / len(x)
        gaps.append(abs(float(prediction[0]) - w @ sequence[-1, :dim]))
    return float(max(gaps))


@claim(bound=0.008, seeds="0 to 3")
def depth_relearning(sabotage: bool = False, offset: int = 0) -> float:
    """White directions that one layer holds are learned again by an empty layer with the drive M_3/(1+x)^2 - 1.
    Measured: largest relative distance, of 4 draws of contexts, of the gram engine's gradient from the closed form
    """
    dim, context = WHITE.dim, WHITE.context
    model, task = icl.Separate(heads=dim, layers=2), shifted(WHITE, offset)
    weights = {name: np.zeros(shape) for name, shape in model.shapes(task).items()}
    strength = dim / (1 + (dim + 1) / context)
    weights["value"][:, :, dim, dim] = 1.0
    weights["key"][0, :, 0, :dim] = strength * np.eye(dim)
    weights["query"][:, :, 0, :dim] = np.eye(dim)  # the keys of the second layer are zero: it is empty
    closed_form, gaps = white_drive(dim, context + 1 if sabotage else context), []
    for seed in range(offset, offset + (1 if sabotage else 4)):
        grams = balanced_grams(Law.of(task), 65536, (seed,), equal_lengths=True)
        loss = GramLoss(weights, jnp.asarray(grams), (), None, model, model.compiled_for(task))
        slope = loss.loss_and_gradient({name: jnp.asarray(array) for name, array in weights.items()})[1]
        drive = -0.5 * np.trace(np.asarray(slope["key"])[1, :, 0, :dim]) / dim  # mean over directions
        gaps.append(abs(drive * dim**2 / closed_form - 1))
    return float(max(gaps))


@claim(bound=0.05, seeds="0 to 19")
def depth_first_drops(sabotage: bool = False, offset: int = 0) -> float:
    """Two layers of three heads, D = 2, N = 31, initial entries of size .005, label blocks trained by descent: the
    forecast names layer, head and direction of both drops of the first staircase, away from ties.
    Measured: share of 20 runs that had no near tie and in which a layer, a head or a direction is another one
    """
    other = lambda rungs: {(1 - layer, head, direction) for layer, head, direction in rungs}  # the layers exchanged
    runs = to_the_second_drop(offset, sabotage)
    names = lambda w: other(w.rungs) if sabotage else w.rungs
    return sum(not names(w) <= held(w.run.final_weights, w.run.task) for w in clear(runs)) / len(runs)


@claim(bound=0.02, seeds="0 to 19")
def depth_first_times(sabotage: bool = False, offset: int = 0) -> float:
    """Two layers of three heads, D = 2, N = 31, initial entries of size .005, label blocks trained by descent: the
    times of both drops of the first staircase are those of the forecast, in 19 of 20 runs away from ties.
    Measured: relative error of a drop time that one run of 20 exceeds
    """
    errors = []
    for w in clear(to_the_second_drop(offset, sabotage)):
        predicted = alone(w) if sabotage else w.forecast.drop_times
        errors.append(np.abs(w.seen / predicted - 1).max())
    return float(np.sort(errors)[-2])


@claim(bound=8, seeds="0 to 15")
def depth_levels(sabotage: bool = False, offset: int = 0) -> float:
    """Two layers of three heads, D = 2, N = 31, initial entries of size .005, label blocks trained by descent: plateaus
    of both staircases that last half as long as all before them have the levels of the ladder, within 1 %, in runs
    without a near tie.
    Measured: number of plateaus, of about 40 in 16 runs, whose level is off by more than 1 %
    """
    off, runs = 0, to_the_end(offset, sabotage)
    for w in clear(runs):
        levels = (longer(w, 2.0) if sabotage else w.forecast).levels[1:]
        late = w.seen[:-1] + 0.8 * np.diff(w.seen)
        count = min(len(levels), len(late))
        lasts = (w.seen[1:] > 1.5 * w.seen[:-1])[:count]
        waiting = np.interp(late, w.run.time.values, w.run.loss.values)[:count]
        off += int(np.sum(np.abs(waiting / levels[:count] - 1)[lasts] > 0.01))
    return off * LONG / len(runs)


@claim(bound=7, seeds="0 to 15")
def depth_second_wait(sabotage: bool = False, offset: int = 0) -> float:
    """Two layers of three heads, D = 2, N = 31, initial entries of size .005, label blocks trained by descent: in most
    runs without a near tie, the wait for the first drop of the second staircase is within 10 % of that of the
    relearning drive from moments of the contexts.
    Measured: number of 16 runs that had no near tie and in which the wait is off by more than 10 %
    """
    off, runs = 0, to_the_end(offset, sabotage)
    for w in clear(runs):
        dim = w.run.task.dim
        predicted = (longer(w, 1.5) if sabotage else w.forecast).drop_times
        error = abs((w.seen[dim] - w.seen[dim - 1]) / (predicted[dim] - predicted[dim - 1]) - 1)
        off += int(not error <= 0.1)  # also where the drop has not come
    return off * LONG / len(runs)


@claim(bound=3, seeds="0 to 15")
def depth_end(sabotage: bool = False, offset: int = 0) -> float:
    """Two layers of three heads, D = 2, N = 31, initial entries of size .005, label blocks trained by descent: a run in
    which both layers hold both directions is two steps of gradient descent by the probe, and its loss is that with
    which the forecast ends.
    Measured: number of 16 runs with another name, or with a loss more than 1 % from the forecast's
    """
    wrong, runs = 0, to_the_end(offset, sabotage)
    for w in runs:
        if not at_its_end(w):
            continue
        weights = {name: np.array(array) for name, array in w.run.final_weights.items()}
        if sabotage:
            weights["value"][1] = 0.0  # the second layer is taken away
        found = icl.probe(weights, w.run.task, shifts=False)
        assert not isinstance(found, list)
        named = found.algorithm == "gd" and found.last.label in ("gd 2 steps by layer", "gd 2 steps best")
        wrong += int(not named or abs(w.run.loss.values[-1] / w.forecast.levels[-1] - 1) > 0.01)
    return wrong * LONG / len(runs)


def at_its_end(w: ForecastRun) -> bool:
    """Whether every layer holds every direction, and the loss hardly moves any more."""
    share = np.einsum("laa->la", layer_matrices(w.run.final_weights, w.run.task)) * covariances(w.run.task).eigenvalues
    loss, time = w.run.loss.values, w.run.time.values
    return bool(share.min() > 0.25 and loss[-1] > 0.999 * np.interp(0.95 * time[-1], time, loss))


def clear(runs: list[ForecastRun]) -> list[ForecastRun]:
    """The runs without a near tie: on the first staircase every head holds its direction nearly alone."""
    return [w for w in runs if w.forecast.held[: w.run.task.dim].min() > 0.9]


def alone(w: ForecastRun) -> np.ndarray:
    """The forecast for the first layer as if it were the only one."""
    task = w.run.task
    value, key, query = small(w.run.initial_weights, task)
    return ladder(contexts(task, 64), value[:1], key[:1], query[:1]).until(task.dim).drop_times


def longer(w: ForecastRun, factor: float) -> Ladder:
    """The forecast for contexts that are longer by a factor."""
    task = w.run.task
    source = contexts(task.replace(context=round(factor * task.context)), 64)
    return ladder(source, *small(w.run.initial_weights, task))


def hidden(sequences: np.ndarray, dim: int) -> np.ndarray:
    """The sequences with the query's label set to 0."""
    sequences = sequences.copy()
    sequences[:, -1, dim:] = 0
    return sequences
