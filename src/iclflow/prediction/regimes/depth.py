"""Several layers of separate key and query: two staircases (`theory.depth`)."""

import numpy as np

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.models import Model
from iclflow.prediction.margins import DOUBTFUL, depth_widths, interval
from iclflow.prediction.problem import Problem
from iclflow.prediction.regimes.regime import Regime
from iclflow.prediction.result import Prediction
from iclflow.theory import depth

__all__ = ["Depth"]


class Depth(Regime):
    """Layers learn one direction after another, and then once more; heads count through the layers."""

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
        per_layer, looped = settings["heads"], settings["looped"]
        rows = lambda array: array.reshape(-1, per_layer, *array.shape[1:])
        loops = settings["layers"] if looped else 1
        start = rows(heads.value), rows(key), rows(query)
        ladder = lambda draws: depth.ladder(depth.contexts(task, draws, loops=loops), *start)
        try:
            with np.errstate(divide="ignore", invalid="ignore"):  # of a head without size, refused below
                stairs, coarse = ladder(depth.DRAWS), ladder(depth.DRAWS // 4)
        except BadInput:
            raise
        except (AttributeError, ValueError, ArithmeticError, np.linalg.LinAlgError):  # a solver that gives up
            raise BadInput(LOST) from None
        half = depth_widths(stairs, coarse, task.dim)
        many = settings["layers"] > 2 and not looped and task.dim > 1
        notes = {
            LABEL_BLOCKS: True,
            NEAR_TIE: stairs.close,
            WIDE: not stairs.close and (half > DOUBTFUL).any(),
            MANY_LAYERS: many,
            LOOPED: looped,
        }
        return Prediction(
            stairs.levels,
            stairs.drop_times,
            np.array([rung.layer * per_layer + rung.head for rung in stairs.rungs], dtype=int),
            np.array([rung.direction for rung in stairs.rungs], dtype=int),
            stairs.loss,
            values=lambda times: np.full((len(times), len(heads.value)), np.nan),
            reliable=not stairs.close and not many and bool((half <= DOUBTFUL).all()),
            notes=tuple(note for note, holds in notes.items() if holds),
            drop_intervals=interval(stairs.drop_times, half),
            method="reduced",
        )

    @classmethod
    def minimum(cls, task: Task, model: Model) -> float:
        settings = model.model_dump()
        return depth.lowest_loss(task, settings["layers"], settings["looped"])


LOST = "weights: the theory of depth cannot be followed to the end from these; train the model to see its drops"
LABEL_BLOCKS = (
    "the theory of depth is for the label blocks (freeze_vectors); with all blocks trained the token stream learns"
    " too, and the later drops come at other times and end lower"
)
NEAR_TIE = "two heads nearly tie for a direction; the drops behind it can be off by ten per cent or more"
WIDE = "the wait for a drop depends on small differences between contexts, so that its interval is wide"
MANY_LAYERS = "with three or more layers the later drops can come at other times, outside their intervals"
LOOPED = "looped layers: drives and levels are exact, the course of a drop between them is approximate"
