"""A simulated run, cut down to what the page shows at the cursor: a few hundred times, the eigenbasis, sentences."""

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float, Int

from iclflow.comparison.gains import along, paper_reduced
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.explorer.sentence import PROBLEMS, Layers, Story
from iclflow.prediction.result import Prediction
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
    "none": "none of the known ones", "dmmse": "the posterior mean over its tasks",
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
    gains: Float[np.ndarray, "R C"]  # of every component; with several layers, of every component in every layer
    names: list[str]  # of the columns of `gains`
    learned: Int[np.ndarray, " R"] | None  # how many components are learned; None with several layers
    values: Float[np.ndarray, "R H"]
    maps: dict[str, Float[np.ndarray, "R rows D"]]  # keys and queries, or the key-query matrix of the strongest head
    story: Story | Layers

    def payload(self, forecast: Prediction | None, algorithms: list[str] | None = None) -> dict[str, Any]:
        """The same as JSON, rounded to four decimals, which is more than a picture shows."""
        short = lambda array: np.round(np.nan_to_num(array, posinf=0.0, neginf=0.0), 4).tolist()
        return {
            "time": self.time.tolist(),
            "gains": short(self.gains),
            "names": self.names,
            "learned": None if self.learned is None else self.learned.tolist(),
            "values": short(self.values),
            "maps": {name: short(array) for name, array in self.maps.items()},
            "sentences": self.story.sentences(forecast),
            "algorithms": algorithms or [],
        }


def cut_down(run: Run) -> Run:
    """A run of one seed with only as many losses and weights as the pictures need."""
    time, loss = run.time.values, run.loss.values
    good = np.flatnonzero(np.isfinite(loss))
    steps = good[kept_places(time[good], loss[good], CURVE)]
    count, size = run.weights.sizes["record"], sum(array[0].size for array in run.weights.values())
    most = max(FEWEST, min(RECORDS, NUMBERS // size))
    records = even_places(count, most)
    curves, weights = run.arrays("curves").take("step", steps), run.arrays("weights").take("record", records)
    return Run(run.experiment, curves, weights, run.initial_weights, run.summary)


def curve_of(run: Run) -> Curve:
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
    rotated = lambda matrix: basis.T @ matrix @ basis
    if heads.key is not None and heads.query is not None:
        flat = lambda array: (array @ basis).reshape(len(time), -1, D)
        maps = {"key": flat(heads.key), "query": flat(heads.query)}
    else:
        strongest = int(np.argmax(np.abs(values[-1])))
        maps = {"key-query": rotated(heads.key_query[:, strongest]), "effective": rotated(own.sum(axis=1))}
    layers = run.weights.sizes.get("layer", 1)
    by_layer = own.reshape(len(time), layers, -1, D, D).sum(axis=2)
    gains = (along(d, by_layer.reshape(-1, D, D)) / d.full_gain).reshape(len(time), -1)
    names = [f"{i + 1}" if layers == 1 else f"{i + 1}, layer {n + 1}" for n in range(layers) for i in range(D)]
    story = story_of(run, gains)
    learned = (story.phases[1][None] <= np.arange(len(time))[:, None]).sum(axis=1) if isinstance(story, Story) else None
    return Detail(time, gains, names, learned, values, maps, story)


def story_of(run: Run, gains: Float[np.ndarray, "R C"]) -> Story | Layers:
    """What the sentences are made of."""
    time, model, training = run.weights["time"].values, run.model, run.experiment.training
    curve = run.time.values, run.loss.values
    why = str(run.summary["runs"][0].get("why", ""))
    if run.weights.sizes.get("layer", 1) > 1:
        return Layers(time, curve, run.status, why)
    return Story(
        time, np.interp(time, *curve), gains, curve, directions(run.task), model.one_by_one, model.components(run.task),
        run.status, why,
        length_given=training.steps is not None or training.time is not None, decays=training.weight_decay > 0,
        stepwise=training.optimizer in ("sgd", "momentum"),
    )  # fmt: skip


def algorithms(run: Run) -> list[str]:
    """The algorithm that the probe names at every kept time."""
    count = len(run.weights["time"])
    if run.status in PROBLEMS:
        return [f"none, because {PROBLEMS[run.status]}"] * count
    try:
        result = probe(run, shifts=False)
    except BadInput:
        return ["cannot be told from these weights"] * count
    assert isinstance(result, Probe)  # and not a list, because the run has one seed
    return [words(v.algorithm, v.components) for v in result.verdicts]


def words(algorithm: str, components: tuple[int, ...]) -> str:
    """The name of an algorithm for readers."""
    which = f" on components {', '.join(map(str, components))}" if algorithm == "pcr" else ""
    return NAMES.get(algorithm, algorithm) + which
