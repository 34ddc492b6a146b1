"""What merged and separate attention have in common: heads, a scale or a softmax, and which blocks of value train.

With more than one layer everything that differs is in `models.deep`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from iclflow.config import Task
from iclflow.config.task import Count
from iclflow.data.features import attention_scale
from iclflow.errors import BadInput
from iclflow.models import deep
from iclflow.models.base import Model, Shapes, Weights
from iclflow.models.reduced import Reduced

__all__ = ["Attention"]


class Attention(Model):
    """Layers of attention, by default one; subclasses say how a head scores its tokens."""

    laws: ClassVar[tuple[str, ...]] = ("entry", "public", "norm", "aligned", "random")
    homogeneous: ClassVar[int]  # the degree without softmax
    heads: Count = Field(8, description="number of heads H")
    softmax: bool = Field(False, description="softmax over the tokens instead of a scale")
    layers: Count = Field(1, description="number of layers L")
    looped: bool = Field(False, description="one set of weights in all layers")

    @abstractmethod
    def scores(self, weights: Weights, tokens: Any, query: Any) -> Any:
        """The scores (H, n) of all tokens for one query."""

    @abstractmethod
    def layer(self, weights: Weights, gram: Any) -> Any:
        r"""What one layer takes off a token, $\sum_h V_h S M_h$ (E, E), from its weights and a Gram matrix $S$."""

    @property
    def deep(self) -> bool:
        """Whether there is more than one layer."""
        return self.layers > 1

    def per_layer(self, shapes: Shapes) -> Shapes:
        """The shapes with a layer axis in front where there are several layers; looped layers share one row of it."""
        rows = 1 if self.looped else self.layers
        return {name: (rows, *shape) for name, shape in shapes.items()} if self.deep else shapes

    def all_heads(self, reduced: Reduced) -> Reduced:
        """The heads of all layers one after the other."""
        return deep.all_heads(reduced) if self.deep else reduced

    def axis_names(self) -> dict[str, tuple[str, ...]]:
        return {name: ("layer", *names) for name, names in self.axes.items()} if self.deep else self.axes

    @property
    def linear(self) -> bool:
        return not (self.softmax or self.deep)

    @property
    def has_gram(self) -> bool:
        return self.deep

    def gram(self, weights: Weights, gram: Any, query: Any, task: Task) -> Any:
        return deep.predict_from_gram(self, weights, gram, query, task)

    @property
    def degree(self) -> int | None:
        return None if self.softmax else self.homogeneous

    def normalize(self, task: Task) -> str:
        return task.normalize or ("none" if self.softmax else "context")

    def complaints(self, task: Task) -> Iterator[str]:
        if self.softmax and task.normalize == "context":
            yield "normalize: 'context' must be 'none' or 'tokens' with softmax, which has scale 1"
        if self.deep:
            yield from deep.complaints(self.softmax, task)
        elif self.looped:
            yield "looped: True must be False with one layer; give layers"

    def linear_twin(self) -> Model | None:
        if self.deep:
            return None
        return self.replace(softmax=False) if self.softmax else self

    def compiled_for(self, task: Task) -> Task:
        return compiled_for(task)

    def predict(self, weights: Weights, sequence: Any, task: Task) -> Any:
        if self.deep:
            return deep.predict_from_tokens(self, weights, sequence, task)
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
        depth = f", {self.layers} {'looped ' if self.looped else ''}layers" if self.deep else ""
        return f"{self.kind}{depth}{', softmax' if self.softmax else ''}"

    def title(self) -> str:
        heads = f"{self.heads} heads" if self.heads > 1 else "one head"
        return self.describe().replace(self.kind, f"{self.kind}, {heads}", 1)

    @classmethod
    def dim_of(cls, weights: Weights, out_dim: int) -> int:
        shape = np.shape(weights["value"])
        if len(shape) not in (3, 4) or shape[-2] != shape[-1] or shape[-1] <= out_dim:
            raise BadInput(f"weights: 'value' has shape {shape}, must be (H, E, E) with E > out_dim = {out_dim}")
        return shape[-1] - out_dim

    @classmethod
    def fields_of(cls, weights: Weights) -> dict[str, int]:
        """Heads and layers; a layer axis of length 1 serves all layers, whose number it does not tell."""
        *layers, heads, _, _ = np.shape(weights["value"])
        if not layers:
            return {"heads": heads, "layers": 1}
        return {"heads": heads, "looped": layers == [1], **({} if layers == [1] else {"layers": layers[0]})}


def compiled_for(task: Task) -> Task:
    """Sizes and scale are all that the built-in models read of a task."""
    return Task(
        dim=task.dim, out_dim=task.out_dim, context=task.context, normalize=task.normalize, prefix_loss=task.prefix_loss
    )
