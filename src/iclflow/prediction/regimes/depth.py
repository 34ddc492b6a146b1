"""Several layers of separate key and query: two staircases (`theory.depth`)."""

from typing import ClassVar

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.prediction.margins import depth_margin, head_shares, interval
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.regime import Regime, strata
from iclflow.prediction.result import Prediction
from iclflow.system.cores import one_blas_thread
from iclflow.theory import depth

__all__ = ["Depth"]

FINE, FEW, DRAWS = 512, 256, (1, 2, 3)  # contexts of the forecast, of draws that stand for a run's, and their seeds


class Depth(Regime):
    """Layers learn one direction after another, and then once more; heads count through the layers."""

    measured: ClassVar[frozenset[frozenset[str]]] = strata("")

    @classmethod
    def flow(cls, problem: Problem) -> Prediction:
        task, heads = problem.task, problem.heads
        if not problem.on_population:
            raise BadInput("source: must be 'population' for the theory of depth, which has none of a sample")
        if task.tasks is not None:
            raise BadInput(
                f"tasks: {task.tasks} must not be given for the theory of depth, where every task is a new one"
            )
        key, query = (array[:, 0] @ covariances(task).basis for array in heads.keys_and_queries)
        settings = problem.model.model_dump()
        layers, loops = (1, settings["layers"]) if settings["looped"] else (settings["layers"], 1)
        start = [array.reshape(layers, -1, *array.shape[1:]) for array in (heads.value, key, query)]
        with one_blas_thread():
            fine = depth.ladder(depth.contexts(task, FINE, layers=layers, loops=loops), *start)
            drawn = [depth.ladder(depth.contexts(task, FEW, loops=loops, seed=seed), *start) for seed in DRAWS]
        margin = depth_margin(problem, fine, drawn)
        return Prediction(
            levels=fine.levels,
            drop_times=fine.drop_times,
            heads=fine.heads,
            directions=fine.directions,
            loss=fine.loss,
            values=fine.values,
            reliable=margin.reliable,
            notes=margin.notes,
            drop_intervals=interval(fine.drop_times, margin.half),
            head_shares=head_shares(fine, drawn[0]),
            method="reduced",
        )

    @classmethod
    def minimum(cls, task: Task, model: Model) -> float:
        settings = model.model_dump()
        return depth.lowest_loss(task, settings["layers"], settings["looped"])
