r"""The in-context algorithm: principal component regression, with one more component per plateau.

(a) The loss of one run (rank one, flow on the population). The bands say which algorithm the probe finds in its weights
over time: on the plateau after $m$ drops it is regression on the first $m$ principal components (PCR-$m$), shrunk
because the context is finite, and at the end least squares. (b) The mean squared distance between the predictions of
the run and those of these algorithms (in the colours of the bands), relative to the loss of predicting zero; distances
below $10^{-5}$ are drawn there. Grey: three algorithms that the run does not end at, of which ridge regression with the
right penalty comes near. The table beside the figure also has regression without shrinkage, which stays at a distance
of order $1/N$.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.figures.style import BLACK, COLOURS, GREY, THEORY, WIDTH, apart, letters, log_time, plateau_lines, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.prediction.predict import predict
from iclflow.prediction.result import Prediction
from iclflow.probing.result import Probe

__all__ = ["draw"]

SOURCE = "Eq. 22"
TASK = icl.Task(dim=4, context=31)
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


def draw(fast: bool = False) -> Drawn:
    init = 1e-2 if fast else 1e-3
    prediction = predict(TASK, MODEL, init=init)
    run = icl.train(TASK, MODEL, init=init, records=800, time=1.5 * prediction.end)
    probe = icl.probe(run, shifts=False)
    assert isinstance(probe, Probe)
    with styled():
        figure = Figure(figsize=(WIDTH, 4.4))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 6))
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
        Gap("plateaus on which the probe names a different algorithm", float(misnamed(probe, prediction))),
        Gap(
            "largest distance to M_m in the middle of its plateau, relative to the loss of predicting zero",
            plateau_distance(probe, prediction),
        ),
    )
    return Drawn(figure, {"": table}, gaps, {"run": run.experiment})


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
