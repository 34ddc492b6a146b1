"""A simulated run, cut down to what the page shows at the cursor: a few hundred times, the eigenbasis, words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Separate
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.explorer.sentence import sentence
from iclflow.probing import probe
from iclflow.probing.result import Probe
from iclflow.run import Run
from iclflow.theory.landscape import directions
from iclflow.thinning import kept_places
from iclflow.units import to_paper_weights

__all__ = ["Detail", "algorithms", "detail_of", "thinned"]

CURVE, RECORDS = 400, 120
NAMES = {
    "zero": "predicts nothing", "pcr": "principal component regression", "least_squares": "least squares, shrunk",
    "ridge": "ridge regression", "gd": "gradient descent on the context", "in_weight": "in-weight prediction",
    "none": "none of the known ones",
}  # fmt: skip


@dataclass(frozen=True)
class Detail:
    time: Float[np.ndarray, " R"]
    gains: Float[np.ndarray, "R D"]
    values: Float[np.ndarray, "R H"]
    maps: dict[str, Float[np.ndarray, "R rows D"]]  # keys and queries, or the key-query matrix of the strongest head
    sentences: list[str]

    def payload(self) -> dict[str, Any]:
        """Small JSON: four digits are more than a picture shows."""
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


def thinned(run: Run) -> tuple[list[float], list[float]]:
    """A curve of a few hundred points, as many as a picture needs."""
    time, loss = run.time.values, run.loss.values
    good = np.flatnonzero(np.isfinite(loss))
    kept = good[kept_places(time[good], loss[good], CURVE)]
    return time[kept].tolist(), [float(f"{x:.6g}") for x in loss[kept]]


def few_records(run: Run) -> Run:
    count = run.weights.sizes["record"]
    kept = np.unique(np.linspace(0, count - 1, min(RECORDS, count)).round().astype(int))
    return Run(run.experiment, run.curves, run.weights.isel(record=kept), run.initial_weights, run.summary)


def detail_of(run: Run, drops: Float[np.ndarray, " m"]) -> Detail:
    """Of a run of one seed, in the paper's units."""
    run = few_records(run)
    task, model, D = run.task, run.model, run.task.dim
    basis, scale = covariances(task).basis, float(to_paper_weights(task, model, 1.0))
    weights = {str(name): scale * array.values for name, array in run.weights.items()}
    time = run.weights["time"].values
    values = weights["value"][:, :, D, D]
    if isinstance(model, Separate):
        key, query = weights["key"][..., :D] @ basis, weights["query"][..., :D] @ basis
        matrix = np.einsum("th,thrd,thre->tde", values, key, query)
        flat = lambda array: array.reshape(len(time), -1, D)
        maps = {"key": flat(key), "query": flat(query)}
        places = model.heads * model.rank
    else:
        U = np.einsum("di,thde,ej->thij", basis, weights["key_query"][:, :, :D, :D], basis)
        matrix = np.einsum("th,thde->tde", values, U)
        maps = {"key-query": U[:, int(np.argmax(np.abs(values[-1])))], "effective": matrix}
        places = D
    gains = np.einsum("tdd->td", matrix) / directions(task).strength
    words = [sentence(model.kind, float(t), g, places, drops) for t, g in zip(time, gains, strict=True)]
    return Detail(time, gains, values, maps, words)


def algorithms(run: Run) -> list[str]:
    """What the probe names at every kept time."""
    try:
        found = probe(few_records(run), shifts=False)
    except BadInput as error:
        return [str(error)] * len(few_records(run).weights["time"])
    assert isinstance(found, Probe)
    return [words(v.algorithm, v.components) for v in found.verdicts]


def words(algorithm: str, components: tuple[int, ...]) -> str:
    which = f" on components {', '.join(map(str, components))}" if algorithm == "pcr" else ""
    return NAMES.get(algorithm, algorithm) + which
