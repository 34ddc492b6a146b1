"""The in-context algorithm: principal component regression, with one more component per plateau.

Mean squared distance between the predictions of one run (rank one, flow on the population) and those of known
algorithms, relative to the loss of predicting zero. On the plateau after m drops, the nearest algorithm is regression
on the first m principal components, shrunk because the context is finite (thick); regression without shrinkage (thin)
stays at a distance of order 1/N. At the end, the nearest algorithm is least squares with shrinkage, which ridge
regression with the right penalty nearly equals, and not one step of gradient descent or least squares on the context
itself (grey). The band below shows which algorithm the probe identifies over time.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.prediction import Prediction, predict
from iclflow.figures.style import BLACK, COLOURS, GREY, WIDTH, log_time, styled
from iclflow.paper.drawn import Drawn, Gap
from iclflow.probing.result import Probe

__all__ = ["draw"]

SOURCE = "Eq. 22"
TASK = icl.Task(dim=4, context=31)
MODEL = icl.Separate(heads=5)
SHRUNK = ("zero", "pcr-1 shrunk", "pcr-2 shrunk", "pcr-3 shrunk", "least squares shrunk")
IDEAL = ("pcr-1", "pcr-2", "pcr-3", "least squares")
OTHERS = {"gd 1 step": "--", "ridge": "-.", "least squares in context": ":"}
LOWEST = 1e-5


def draw(fast: bool = False) -> Drawn:
    init = 1e-2 if fast else 1e-3
    prediction = predict(TASK, MODEL, init=init)
    run = icl.train(TASK, MODEL, init=init, records=800, time=1.5 * prediction.end)
    probe = icl.probe(run, shifts=False)
    assert isinstance(probe, Probe)
    with styled():
        figure = Figure(figsize=(WIDTH, 3.9))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(8, 1))
        draw_distances(above, probe)
        draw_names(below, probe)
        log_time(below, 0.3 * prediction.drop_times[0], run.time.values[-1])
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
    for number, name in enumerate(SHRUNK):
        label = {0: "zero", len(SHRUNK) - 1: "least squares"}.get(number, f"PCR-{number}")
        line = np.maximum(probe.entries[name].distance, LOWEST)
        ax.plot(probe.clock, line, color=COLOURS[number], lw=1.8, label=label)
        if number:
            ideal = np.maximum(probe.entries[IDEAL[number - 1]].distance, LOWEST)
            ax.plot(probe.clock, ideal, color=COLOURS[number], lw=0.8, label=None)
    for name, dash in OTHERS.items():
        distance = np.maximum(probe.entries[name].distance, LOWEST)
        ax.plot(
            probe.clock, distance, color=GREY, lw=1.0, ls=dash, label=name.replace("gd 1 step", "one step of descent")
        )
    ax.set(yscale="log", ylim=(LOWEST, 1.5), ylabel="distance / loss of zero")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.45), fontsize=8)


def draw_names(ax: Axes, probe: Probe) -> None:
    """Draw a band in the colour of the algorithm that the probe names."""
    for first, last, verdict in probe.phases():
        if verdict.algorithm in ("zero", "pcr", "least_squares"):
            ax.axvspan(max(first, 1e-3), last, color=COLOURS[len(verdict.components)], alpha=0.85, lw=0)
    ax.set(yticks=[], xlabel=r"time $t/\tau$", ylabel="probe")
    ax.yaxis.label.set(rotation=0, ha="right", va="center", color=BLACK)
    ax.spines["left"].set_visible(False)


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
