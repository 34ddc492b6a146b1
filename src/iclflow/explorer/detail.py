"""A simulated run, cut down to what the page shows at the cursor: a few hundred times, the eigenbasis, sentences."""

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import paper_reduced
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.explorer.sentence import sentence
from iclflow.probing import probe
from iclflow.probing.result import Probe
from iclflow.results.run import Run
from iclflow.system.thinning import even_places, kept_places
from iclflow.theory.landscape import directions

__all__ = ["Curve", "Detail", "algorithms", "curve_of", "cut_down", "detail_of"]

CURVE, RECORDS, FEWEST = 400, 120, 30
NUMBERS = 200_000  # in all maps together: the browser has to hold them
NAMES = {
    "zero": "predicts nothing", "pcr": "principal component regression", "least_squares": "least squares, shrunk",
    "ridge": "ridge regression", "gd": "gradient descent on the context", "in_weight": "in-weight prediction",
    "none": "none of the known ones",
}  # fmt: skip


class Curve(TypedDict):
    """The loss of one seed."""

    seed: int
    time: list[float]
    loss: list[float]
    status: str


@dataclass(frozen=True)
class Detail:
    """One seed at a few hundred times, in the paper's units."""

    time: Float[np.ndarray, " R"]
    gains: Float[np.ndarray, "R D"]
    values: Float[np.ndarray, "R H"]
    maps: dict[str, Float[np.ndarray, "R rows D"]]  # keys and queries, or the key-query matrix of the strongest head
    sentences: list[str]

    def payload(self) -> dict[str, Any]:
        """The same as JSON, rounded to four decimals, which is more than a picture shows."""
        short = lambda array: np.round(array, 4).tolist()
        return {
            "time": self.time.tolist(),
            "gains": short(self.gains),
            "learned": (self.gains > 0.5).sum(axis=1).tolist(),
            "values": short(self.values),
            "maps": {name: short(array) for name, array in self.maps.items()},
            "sentences": self.sentences,
            "algorithms": [],
        }


def cut_down(run: Run) -> Run:
    """A run of one seed with only as many losses and weights as the pictures need."""
    time, loss = run.time.values, run.loss.values
    good = np.flatnonzero(np.isfinite(loss))
    steps = good[kept_places(time[good], loss[good], CURVE)]
    count, size = run.weights.sizes["record"], sum(array[0].size for array in run.weights.values())
    most = max(FEWEST, min(RECORDS, NUMBERS // size))
    records = even_places(count, most)
    return Run(
        run.experiment, run.curves.isel(step=steps), run.weights.isel(record=records), run.initial_weights, run.summary
    )


def curve_of(run: Run) -> Curve:
    """The loss of a run of one seed that is cut down."""
    time, loss = run.time.values.tolist(), run.loss.values.tolist()
    return {"seed": run.seeds[0], "time": time, "loss": loss, "status": run.status}


def detail_of(run: Run, drops: Float[np.ndarray, " m"]) -> Detail:
    """The detail of a run that is cut down; `drops` are the predicted drop times."""
    task, model, D = run.task, run.model, run.task.dim
    time, basis = run.weights["time"].values, covariances(task).basis
    heads = paper_reduced(model, {str(name): array.values for name, array in run.weights.items()}, task)
    values, U = heads.value, basis.T @ heads.key_query @ basis
    matrix = np.einsum("th,thde->tde", values, U)
    if heads.key is not None and heads.query is not None:
        flat = lambda array: (array @ basis).reshape(len(time), -1, D)
        maps = {"key": flat(heads.key), "query": flat(heads.query)}
    else:
        maps = {"key-query": U[:, int(np.argmax(np.abs(values[-1])))], "effective": matrix}
    gains = np.einsum("tdd->td", matrix) / directions(task).strength
    most = model.components(task)
    sentences = [sentence(model.one_by_one, float(t), g, most, drops) for t, g in zip(time, gains, strict=True)]
    return Detail(time, gains, values, maps, sentences)


def algorithms(run: Run) -> list[str]:
    """The algorithm that the probe names at every kept time."""
    try:
        result = probe(run, shifts=False)
    except BadInput as error:
        return [str(error)] * len(run.weights["time"])
    assert isinstance(result, Probe)  # and not a list, because the run has one seed
    return [words(v.algorithm, v.components) for v in result.verdicts]


def words(algorithm: str, components: tuple[int, ...]) -> str:
    """The name of an algorithm for readers."""
    which = f" on components {', '.join(map(str, components))}" if algorithm == "pcr" else ""
    return NAMES.get(algorithm, algorithm) + which
