"""A simulated run, cut down to what the page shows at the cursor: a few hundred times, the eigenbasis, sentences."""

from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from iclflow.comparison.comparing import Comparison, compare_with
from iclflow.comparison.gains import along, paper_reduced
from iclflow.data.spectrum import covariances
from iclflow.errors import IclflowError
from iclflow.explorer.sentence import PROBLEMS, run_sentences
from iclflow.prediction.result import Prediction
from iclflow.probing import probe
from iclflow.probing.result import Probe
from iclflow.results.run import Run
from iclflow.system.thinning import even_places, kept_places
from iclflow.theory.landscape import directions

__all__ = ["Detail", "SeedCurve", "curve_of", "cut_down", "detail_of", "probed"]

CURVE, RECORDS, FEWEST = 400, 120, 30
NUMBERS = 200_000  # in all maps together: the browser has to hold them
NAMES = {
    "zero": "predicts nothing", "pcr": "principal component regression", "least_squares": "least squares, shrunk",
    "ridge": "ridge regression", "gd": "gradient descent on the context", "in_weight": "in-weight prediction",
    "none": "none of the known ones", "dmmse": "the posterior mean over its tasks",
}  # fmt: skip


class SeedCurve(TypedDict):
    """The loss of one seed."""

    seed: int
    time: list[float]
    loss: list[float]
    status: str


@dataclass(frozen=True)
class Detail:
    """One seed at a few hundred times, in the paper's units; the probe adds the last two fields."""

    run: Run
    time: Float[np.ndarray, " R"]
    gains: Float[np.ndarray, "R C"]  # of every component; with several layers, of every component in every layer
    names: list[str]  # of the columns of `gains`
    values: Float[np.ndarray, "R H"]
    maps: dict[str, Float[np.ndarray, "R rows D"]]  # keys and queries, or the key-query matrix of the strongest head
    learned: list[int] | None = None  # how many components are learned
    algorithms: list[str] | None = None

    def payload(self, forecast: Prediction | None) -> dict[str, Any]:
        """The same as JSON, rounded to four decimals, which is more than a picture shows."""
        short = lambda array: np.round(np.nan_to_num(array, posinf=0.0, neginf=0.0), 4).tolist()
        return {
            "time": self.time.tolist(),
            "gains": short(self.gains),
            "names": self.names,
            "values": short(self.values),
            "maps": {name: short(array) for name, array in self.maps.items()},
            "sentences": run_sentences(self.time, self.run, forecast, self.compared(forecast), self.learned),
            "algorithms": self.algorithms or [],
        }

    def compared(self, forecast: Prediction | None) -> Comparison | None:
        """The run beside the forecast; `None` if there is none, or nothing to compare."""
        if forecast is None or self.run.status in PROBLEMS:
            return None
        try:
            return compare_with(self.run, forecast, "population")
        except IclflowError:
            return None


def cut_down(run: Run) -> Run:
    """A run of one seed with only as many losses and weights as the pictures need."""
    time, loss = run.time.values, run.loss.values
    good = np.flatnonzero(np.isfinite(loss))
    steps = good[kept_places(time[good], loss[good], CURVE)]
    count, size = run.weights.sizes["record"], sum(array[0].size for array in run.weights.values())
    records = even_places(count, max(FEWEST, min(RECORDS, NUMBERS // size)))
    curves, weights = run.arrays("curves").take("step", steps), run.arrays("weights").take("record", records)
    return Run(run.experiment, curves, weights, run.initial_weights, run.summary)


def curve_of(run: Run) -> SeedCurve:
    """The loss of a run of one seed that is cut down."""
    time, loss = run.time.values.tolist(), run.loss.values.tolist()
    return {"seed": run.seeds[0], "time": time, "loss": loss, "status": run.status}


def detail_of(run: Run) -> Detail:
    """The detail of a run that is cut down."""
    task, model, D = run.task, run.model, run.task.dim
    time, basis = run.weights["time"].values, covariances(task).basis
    heads = paper_reduced(model, {str(name): array.values for name, array in run.weights.items()}, task)
    values, d = heads.value, directions(task)
    own = values[..., None, None] * heads.key_query
    if heads.key is not None and heads.query is not None:
        flat = lambda array: (array @ basis).reshape(len(time), -1, D)
        maps = {"key": flat(heads.key), "query": flat(heads.query)}
    else:
        rotated = lambda matrix: basis.T @ matrix @ basis
        strongest = int(np.argmax(np.abs(values[-1])))
        maps = {"key-query": rotated(heads.key_query[:, strongest]), "effective": rotated(own.sum(axis=1))}
    layers = run.weights.sizes.get("layer", 1)
    by_layer = own.reshape(len(time), layers, -1, D, D).sum(axis=2)
    gains = (along(d, by_layer.reshape(-1, D, D)) / d.full_gain).reshape(len(time), -1)
    names = [f"{i + 1}" if layers == 1 else f"{i + 1}, layer {n + 1}" for n in range(layers) for i in range(D)]
    return Detail(run, time, gains, names, values, maps)


def probed(detail: Detail) -> Detail:
    """The detail with what the probe names at every kept time."""
    run, count = detail.run, len(detail.time)
    if run.status in PROBLEMS:
        return replace(detail, algorithms=[f"none, because {PROBLEMS[run.status]}"] * count)
    try:
        result = probe(run, shifts=False)
    except IclflowError:
        return replace(detail, algorithms=["cannot be told from these weights"] * count)
    assert isinstance(result, Probe)  # and not a list, because the run has one seed
    algorithms = [called(v.algorithm, v.components) for v in result.verdicts]
    return replace(detail, learned=result.gains.learned.tolist(), algorithms=algorithms)


def called(algorithm: str, components: tuple[int, ...]) -> str:
    """The name of an algorithm for readers."""
    which = f" on components {', '.join(map(str, components))}" if algorithm == "pcr" else ""
    return NAMES.get(algorithm, algorithm) + which
