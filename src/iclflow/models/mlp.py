r"""A two-layer linear network on the cubic feature (paper, Eq. 7), for one output.

$$\hat y = w_2' W_1 z,\qquad z = \operatorname{vec}(\beta x_q'),\quad \beta = \nu\sum_n y_n x_n,\quad
  z[dD + e] = \beta_d\, x_e .$$

The paper stacks columns of $\beta x_q'$; here and in weight files rows are stacked.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from iclflow.config import Task
from iclflow.config.task import Count
from iclflow.data.features import attention_scale
from iclflow.errors import BadInput
from iclflow.models.attention import compiled_for
from iclflow.models.base import Model, Shapes, Weights
from iclflow.models.parts import empty
from iclflow.models.reduced import Reduced

if TYPE_CHECKING:
    from iclflow.prediction.regimes.regime import Regime

__all__ = ["MLP"]


class MLP(Model):
    """The two-layer linear network on the cubic feature that merged attention is equal to."""

    kind: ClassVar[str] = "mlp"
    axes: ClassVar[dict[str, tuple[str, ...]]] = {"first": ("head", "feature"), "second": ("output", "head")}
    laws: ClassVar[tuple[str, ...]] = ("entry", "public", "norm", "aligned", "random")
    heads: Count = Field(8, description="hidden width H")

    def shapes(self, task: Task) -> Shapes:
        return {"first": (self.heads, task.dim * task.dim), "second": (task.out_dim, self.heads)}

    def complaints(self, task: Task) -> Iterator[str]:
        if task.out_dim > 1:
            yield f"out_dim: {task.out_dim} must be 1 for the mlp, whose cubic feature holds one label"

    @property
    def degree(self) -> int:
        return 2

    def compiled_for(self, task: Task) -> Task:
        return compiled_for(task)

    def predict(self, weights: Weights, sequence: Any, task: Task) -> Any:
        scale = attention_scale(self.normalize(task), sequence.shape[0] - 1)
        return self.network(weights, sequence, sequence[-1, : task.dim], scale)

    def predict_prefixes(self, weights: Weights, sequence: Any, task: Task) -> Any:
        from iclflow.models.readout import over_prefixes

        answer = lambda tokens, query, scale, present: self.network(weights, tokens, query, scale)
        return over_prefixes(answer, sequence, task.dim, self.normalize(task))

    def network(self, weights: Weights, tokens: Any, query: Any, scale: Any) -> Any:
        """The label of the query; a hidden label is 0, so the query adds nothing to the feature."""
        from iclflow.models.readout import cubic_feature

        return weights["second"] @ (weights["first"] @ cubic_feature(tokens, query, scale))

    def theta(self, trained: Weights) -> Any:
        dim = round(trained["first"].shape[1] ** 0.5)
        return (trained["second"] @ trained["first"]).reshape(-1, 1, dim, dim)

    def pull_back(self, trained: Weights, slope: Any) -> Weights:
        flat = slope.reshape(trained["second"].shape[0], -1)
        return {"first": trained["second"].T @ flat, "second": flat @ trained["first"].T}

    def reduced(self, weights: Weights, task: Task) -> Reduced:
        first = weights["first"]
        return Reduced(weights["second"][..., 0, :], first.reshape(*first.shape[:-1], task.dim, task.dim))

    def balanced(self, A: Float[np.ndarray, "D D"], task: Task) -> Weights:
        weights, size = empty(self, task), np.linalg.norm(A)
        if size > 0:
            v = np.sqrt(size)
            weights["first"][0], weights["second"][:, 0] = (A / v).reshape(-1), v
        return weights

    def aligned(
        self, task: Task, init: float, basis: Float[np.ndarray, "D D"], drive: Float[np.ndarray, "D D"]
    ) -> Weights:
        weights = empty(self, task)
        weights["first"][:] = init * (drive / np.linalg.norm(drive)).reshape(-1)
        weights["second"][:] = init
        return weights

    def theory(self, task: Task) -> "type[Regime] | None":
        from iclflow.prediction.regimes.drop import Drop

        return Drop if task.icl_fraction == 1 else None

    def describe(self) -> str:
        return self.kind

    def title(self) -> str:
        return f"{self.kind}, {self.heads} heads" if self.heads > 1 else f"{self.kind}, one head"

    @classmethod
    def fields_of(cls, weights: Weights) -> dict[str, int]:
        return {"heads": len(weights["first"])}

    @classmethod
    def dim_of(cls, weights: Weights, out_dim: int) -> int:
        shape = np.shape(weights["first"])
        side = round(shape[1] ** 0.5) if len(shape) == 2 else 0
        if not side or side * side != shape[1]:
            raise BadInput(f"weights: 'first' has shape {shape}, must be (H, D*D)")
        return side
