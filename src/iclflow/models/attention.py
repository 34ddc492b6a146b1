"""What merged and separate attention have in common: heads, a scale or a softmax, and which blocks of value train."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from iclflow.config import Task
from iclflow.config.task import Count
from iclflow.data.features import attention_scale
from iclflow.errors import BadInput
from iclflow.models.base import Model, Weights

__all__ = ["Attention"]


class Attention(Model):
    """One layer of attention; subclasses say how a head scores its tokens."""

    laws: ClassVar[tuple[str, ...]] = ("entry", "public", "norm", "aligned", "random")
    homogeneous: ClassVar[int]  # the degree without softmax
    heads: Count = Field(8, description="number of heads H")
    softmax: bool = Field(False, description="softmax over the tokens instead of a scale")

    @abstractmethod
    def scores(self, weights: Weights, tokens: Any, query: Any) -> Any:
        """The scores (H, n) of all tokens for one query."""

    @property
    def linear(self) -> bool:
        return not self.softmax

    @property
    def degree(self) -> int | None:
        return None if self.softmax else self.homogeneous

    def normalize(self, task: Task) -> str:
        return task.normalize or ("none" if self.softmax else "context")

    def complaints(self, task: Task) -> Iterator[str]:
        if self.softmax and task.normalize == "context":
            yield "normalize: 'context' must be 'none' or 'tokens' with softmax, which has scale 1"

    def linear_twin(self) -> Model:
        return self.replace(softmax=False) if self.softmax else self

    def compiled_for(self, task: Task) -> Task:
        return compiled_for(task)

    def predict(self, weights: Weights, sequence: Any, task: Task) -> Any:
        from iclflow.models.readout import read_out

        dim, scale = task.dim, attention_scale(self.normalize(task), sequence.shape[0] - 1)
        scores = self.scores(weights, sequence, sequence[-1, :dim])
        return read_out(scores, sequence, weights["value"][:, dim:], scale, self.softmax)

    def predict_prefixes(self, weights: Weights, sequence: Any, task: Task) -> Any:
        from iclflow.models.readout import over_prefixes, read_out

        def answer(tokens: Any, query: Any, scale: Any, present: Any) -> Any:
            scores = self.scores(weights, tokens, query)
            return read_out(scores, tokens, weights["value"][:, task.dim :], scale, self.softmax, present)

        return over_prefixes(answer, sequence, task.dim, self.normalize(task))

    def describe(self) -> str:
        return f"{self.kind}{', softmax' if self.softmax else ''}"

    def title(self) -> str:
        heads = f"{self.heads} heads" if self.heads > 1 else "one head"
        return self.describe().replace(self.kind, f"{self.kind}, {heads}", 1)

    @classmethod
    def dim_of(cls, weights: Weights, out_dim: int) -> int:
        shape = np.shape(weights["value"])
        if len(shape) != 3 or shape[1] != shape[2] or shape[2] <= out_dim:
            raise BadInput(f"weights: 'value' has shape {shape}, must be (H, E, E) with E > out_dim = {out_dim}")
        return shape[2] - out_dim


def compiled_for(task: Task) -> Task:
    """Sizes and scale are all that the built-in models read of a task."""
    return Task(
        dim=task.dim, out_dim=task.out_dim, context=task.context, normalize=task.normalize, prefix_loss=task.prefix_loss
    )
