"""What the network computes: principal component regression on the plateaus, least squares at the end."""

from functools import cache

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes

import iclflow as icl
from iclflow.comparison.plateaus import find_plateaus
from iclflow.data.spectrum import covariances, root
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, apart, letters, log_time, plateau_lines
from iclflow.prediction.result import Prediction
from iclflow.probing.result import Probe
from iclflow.results.run import Run
from iclflow.studies.measures import panels, shifted, train
from iclflow.studies.study import Measured, Result, claim, figure
from iclflow.theory import algorithm

TASK = icl.Task(dim=4, context=31)
CONTEXTS = (256, 1024, 4096)
SEQUENCES, CHUNKS = 20_000, 15

Matrix = Float[np.ndarray, "D D"]


def rank_one_run(offset: int) -> Run:
    return train(shifted(TASK, offset), icl.Separate(heads=5), init=1e-3, seed=offset, seeds=3, records=1000)


def plateau_matrices(seed: int, offset: int) -> tuple[Matrix, ...]:
    r"""The effective matrix $\sum_h v_h k_h q_h'$ in the middle of every plateau of the observed loss."""
    run = rank_one_run(offset).select(seed)
    plateaus = find_plateaus(run.time.values, run.loss.values)
    when = run.weights["time"].values
    matrices = []
    for middle in plateaus.starts + plateaus.lengths / 2:
        record = int(np.argmin(np.abs(when - middle)))
        matrices.append(np.einsum("h,hij->ij", run.reduced.value[record], run.reduced.key_query[record]))
    return tuple(matrices)


def mistaken_plateaus(task: icl.Task, matrices: tuple[Matrix, ...]) -> int:
    """Plateaus of a run where the network is not the regression on as many components as there were drops."""
    wrong = abs(len(matrices) - (task.dim + 1))
    for m, A in enumerate(matrices):
        identified = algorithm.identify(task, A)
        first = np.arange(task.dim) < m
        same = identified.clean and (identified.learned == first).all()
        nearest = algorithm.nearest(task, A)[0] == (f"plateau {m}" if m else "zero")
        wrong += not (same and nearest)
    return wrong


@claim(bound=2, source="Eq. 22", seeds="0-2")
def pcr_on_plateaus(sabotage: bool = False, offset: int = 0) -> float:
    """On the plateau after m drops, the network (5 heads of rank one, 1e-3 an entry, eigenvalues .4 .3 .2 .1) performs
    regression on the first m principal components, but for near ties in the order of learning.
    Measured: plateaus, out of 15 in three runs, where the learned directions or the nearest algorithm differ
    """
    task = shifted(TASK, offset + sabotage)  # sabotage: the components of another token covariance
    return float(sum(mistaken_plateaus(task, plateau_matrices(seed, offset)) for seed in rank_one_run(offset).seeds))


def sampled_distances(matrices: tuple[Matrix, ...], offset: int) -> Float[np.ndarray, " m"]:
    """Mean squared distance to the ideal regression on 1, 2, .. components, over freshly drawn sequences."""
    cov, rng = covariances(shifted(TASK, offset)), np.random.default_rng(offset)
    half, total = root(cov.token), np.zeros(len(matrices))
    for _ in range(CHUNKS):
        tokens = rng.standard_normal((SEQUENCES, TASK.context, TASK.dim)) @ half
        query = rng.standard_normal((SEQUENCES, TASK.dim)) @ half
        w = rng.standard_normal((SEQUENCES, TASK.dim))
        beta = np.einsum("pnd,pn->pd", tokens, np.einsum("pnd,pd->pn", tokens, w)) / TASK.context
        for m, A in enumerate(matrices):
            first = cov.basis[:, : m + 1]
            gap = np.sum((beta @ A) * query, axis=1) - np.sum((w @ first) * (query @ first), axis=1)
            total[m] += np.mean(gap**2) / CHUNKS
    return total


@cache
def plateau_distances(offset: int) -> Float[np.ndarray, " D"]:
    """The sampled distances of the plateaus after each drop of one run."""
    return sampled_distances(plateau_matrices(offset, offset)[1:], offset)


@claim(bound=0.03, seeds="0")
def pcr_distance(sabotage: bool = False, offset: int = 0) -> float:
    """A finite context (N = 31) shrinks every component; the distance to ideal regression is a sum over the learned
    components (5 heads of rank one, 1e-3 an entry).
    Measured: largest relative error over the four plateaus, 300000 sequences
    """
    task = TASK.replace(context=TASK.context + 2) if sabotage else TASK
    predicted = np.array([algorithm.pcr_distance(task, m + 1) for m in range(TASK.dim)])
    return float(np.abs(plateau_distances(offset) / predicted - 1).max())


@claim(bound=0.02, source="Eq. 11", seeds="0", quick=True)
def least_squares_at_the_end(sabotage: bool = False, offset: int = 0) -> float:
    """The trained network (merged, 8 heads, 0.01 an entry) approaches least squares as 1/N; without noise, least
    squares gives the query's exact label.
    Measured: |a + 1| in final mean squared distance ~ N^a, N = 256 .. 4096
    """
    end = 20.0 if sabotage else 2000.0  # sabotage: training is stopped too early
    tasks = [shifted(icl.Task(context=n), offset) for n in CONTEXTS]
    runs = [train(task, icl.Merged(heads=8), init=0.01, time=end, seed=offset) for task in tasks]
    distances = [float(run.loss[-1]) for run in runs]
    return float(abs(np.polyfit(np.log(CONTEXTS), np.log(distances), 1)[0] + 1))


MODEL = icl.Separate(heads=5)
SHRUNK = ("zero", "pcr-1 shrunk", "pcr-2 shrunk", "pcr-3 shrunk", "least squares shrunk")
IDEAL = ("pcr-1", "pcr-2", "pcr-3", "least squares")
OTHERS = {
    "gd 1 step": "one step of\ndescent",
    "ridge": "ridge",
    "least squares in context": "least squares\non the context",
}
SHORT = ("zero", "PCR-1", "PCR-2", "PCR-3", "least squares")
BANDS = (GREY, *COLOURS)  # by the number of components
LOWEST = 1e-5


@figure(source="Eq. 22")
def in_context_algorithm(fast: bool = False) -> Result:
    r"""The in-context algorithm: principal component regression, with one more component per plateau.

    (a) The loss of one run (rank one, flow on the population). The bands say which algorithm the probe finds in its
    weights over time: on the plateau after $m$ drops it is regression on the first $m$ principal components (PCR-$m$),
    shrunk because the context is finite, and at the end least squares. (b) The mean squared distance between the
    predictions of the run and those of these algorithms (in the colours of the bands), relative to the loss of
    predicting zero; distances below $10^{-5}$ are drawn there. Grey: three algorithms that the run does not end at, of
    which ridge regression with the right penalty comes near. The table beside the figure also has regression without
    shrinkage, which stays at a distance of order $1/N$.
    """
    init = 1e-2 if fast else 1e-3
    prediction = icl.predict(TASK, MODEL, init=init)
    run = train(TASK, MODEL, init=init, records=800, time=1.5 * prediction.end)
    probe = icl.probe(run, shifts=False)
    assert isinstance(probe, Probe)
    figure, (above, below) = panels(4.4, 2, 1, sharex=True, height_ratios=(5, 6))
    first, last = 0.4 * float(prediction.drop_times[0]), float(run.time.values[-1])
    log_time(below, first, last)
    draw_names(above, probe, first)
    time = run.time.values
    above.plot(time, run.loss.values, color=BLACK, lw=2.0, label="simulation")
    above.plot(time, prediction.loss(time), label="theory", **{**THEORY, "color": "white"})
    above.set(ylabel="loss", ylim=(0, 1.2), yticks=(0, 0.5, 1))
    above.legend(loc="lower left", facecolor=GREY, framealpha=0.4)
    plateau_lines(above, prediction.levels)
    draw_distances(below, probe)
    letters(above, below)
    names = [*SHRUNK, *IDEAL, *OTHERS]
    table = pd.DataFrame({"time": probe.clock, **{name: probe.entries[name].distance for name in names}})
    table["named"] = [short(v.algorithm, v.components) for v in probe.verdicts]
    gaps = (
        Measured("plateaus on which the probe names a different algorithm", float(misnamed(probe, prediction))),
        Measured(
            "largest distance to M_m in the middle of its plateau, relative to the loss of predicting zero",
            plateau_distance(probe, prediction),
        ),
    )
    return Result(figure, {"": table}, gaps, {"run": run.experiment})


def draw_distances(ax: Axes, probe: Probe) -> None:
    """Draw the distance to every candidate, the names of those that are not bands at the right edge."""
    for name in OTHERS:
        ax.plot(probe.clock, np.maximum(probe.entries[name].distance, LOWEST), color=GREY, lw=0.9)
    for number, name in enumerate(SHRUNK):
        line = np.maximum(probe.entries[name].distance, LOWEST)
        ax.plot(probe.clock, line, color=BANDS[number], lw=2.0)
    ax.set(yscale="log", ylim=(0.7 * LOWEST, 1.5), ylabel="distance / loss of zero", xlabel=r"time $t/\tau$")
    ends = np.log10([max(float(probe.entries[name].distance[-1]), LOWEST) for name in OTHERS])
    for label, place in zip(OTHERS.values(), apart(ends, 0.9), strict=True):
        at = ("axes fraction", "data")
        ax.annotate(label, (1.01, 10**place), xycoords=at, va="center", color=GREY, fontsize=8, annotation_clip=False)


def draw_names(ax: Axes, probe: Probe, start: float) -> None:
    """Draw a band with name and colour of the algorithm that the probe names."""
    for first, last, verdict in probe.phases():
        if verdict.algorithm in ("zero", "pcr", "least_squares") and last > start:
            number, middle = len(verdict.components), float(np.sqrt(max(first, start) * last))
            ax.axvspan(max(first, start), last, color=BANDS[number], alpha=0.5, lw=0)
            ax.annotate(SHORT[number], (middle, 0.93), xycoords=("data", "axes fraction"), ha="center", fontsize=8)


def short(algorithm: str, components: tuple[int, ...]) -> str:
    """The name of an algorithm with its number of components."""
    return f"{algorithm}-{len(components)}" if algorithm == "pcr" else algorithm


def middles(prediction: Prediction, end: float) -> list[float]:
    """The middle of every predicted plateau."""
    edges = np.array([0.0, *prediction.drop_times, end])
    return list((edges[:-1] + edges[1:]) / 2)


def misnamed(probe: Probe, prediction: Prediction) -> int:
    """How many plateaus the probe names differently from theory."""
    names = ["zero", *(f"pcr-{m}" for m in range(1, TASK.dim)), "least_squares"]
    verdicts = [probe.at(t) for t in middles(prediction, probe.clock[-1])]
    return sum(short(v.algorithm, v.components) != name for v, name in zip(verdicts, names, strict=True))


def plateau_distance(probe: Probe, prediction: Prediction) -> float:
    """The largest distance to shrunk regression in the middle of a plateau."""
    records = [int(np.argmin(np.abs(probe.clock - t))) for t in middles(prediction, probe.clock[-1])]
    return float(max(probe.entries[name].distance[i] for name, i in zip(SHRUNK, records, strict=True)))
