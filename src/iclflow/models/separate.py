r"""Linear or softmax attention with separate key and query of rank R in every head (paper, Eq. 12).

$$\text{score}_{hm} = (K_h x_m)'(Q_h x_q),\qquad
  \Theta_o[a,b,c] = \sum_h V_h[o,a] \sum_r K_h[r,b]\, Q_h[r,c].$$
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from iclflow.config import Task
from iclflow.config.task import Count
from iclflow.data.features import Blocks
from iclflow.models import deep
from iclflow.models.attention import Attention
from iclflow.models.base import Model, Shapes, Weights, Where
from iclflow.models.parts import empty
from iclflow.models.reduced import Reduced, label_value

if TYPE_CHECKING:
    from iclflow.prediction.regimes.regime import Regime

__all__ = ["Separate"]


class Separate(Attention):
    """Attention with separate key and query of rank R in every head."""

    kind: ClassVar[str] = "separate"
    homogeneous: ClassVar[int] = 3
    one_by_one: ClassVar[bool] = True
    axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "row", "col"),
        "key": ("head", "rank", "col"),
        "query": ("head", "rank", "col"),
    }
    heads: Count = Field(5, description="number of heads H")
    rank: Count = Field(1, description="rank R of key and query")
    softmax: bool = Field(False, description="softmax over the tokens instead of a scale")

    def shapes(self, task: Task) -> Shapes:
        width = task.dim + task.out_dim
        rows = (self.heads, self.rank, width)
        return self.per_layer({"value": (self.heads, width, width), "key": rows, "query": rows})

    def complaints(self, task: Task) -> Iterator[str]:
        yield from super().complaints(task)
        if self.rank > task.dim:
            yield f"rank: {self.rank} must be at most dim = {task.dim}"

    def components(self, task: Task) -> int:
        return min(task.dim, self.heads * self.rank)

    def trained(self, task: Task, blocks: Blocks) -> Where:
        dim = task.dim
        if blocks == "label":
            return {"value": np.s_[..., dim:, dim:], "key": np.s_[..., :dim], "query": np.s_[..., :dim]}
        if self.deep:
            return dict.fromkeys(self.axes, ...)
        return {"value": np.s_[:, dim:, :], "key": np.s_[:, :, :], "query": np.s_[:, :, :dim]}

    def vectors(self, task: Task, last_only: bool = False) -> Where:
        if self.deep:
            return deep.vectors(self, task)
        labels = slice(-1 if last_only else task.dim, None)
        return {"value": np.s_[:, labels, : task.dim], "key": np.s_[:, :, labels]}

    def scores(self, weights: Weights, tokens: Any, query: Any) -> Any:
        import jax.numpy as jnp

        asked = jnp.einsum("hrd,d->hr", weights["query"][:, :, : query.shape[0]], query)
        return jnp.einsum("hrb,hr->hb", weights["key"], asked) @ tokens.T

    def layer(self, weights: Weights, gram: Any) -> Any:
        import jax.numpy as jnp

        held = jnp.einsum("bc,hrc->bhr", gram, weights["key"])
        return jnp.einsum("ahr,hrd->ad", jnp.einsum("hab,bhr->ahr", weights["value"], held), weights["query"])

    def theta(self, trained: Weights) -> Any:
        from iclflow.models.readout import combine

        value, key, query = trained["value"], trained["key"], trained["query"]
        dim = query.shape[2]
        if value.shape[1:] == (1, 1):  # one label: sum_h v_h K_h' Q_h without a matrix per head
            return ((value * key).reshape(-1, dim).T @ query.reshape(-1, dim))[None, None]
        return combine(value, key.transpose(0, 2, 1) @ query)

    def pull_back(self, trained: Weights, slope: Any) -> Weights:
        from iclflow.models.readout import split

        value, key, query = trained["value"], trained["key"], trained["query"]
        if value.shape[1:] == (1, 1):
            key_slope = query @ slope[0, 0].T
            value_slope = (key * key_slope).sum((1, 2))[:, None, None]
            return {"value": value_slope, "key": value * key_slope, "query": (value * key) @ slope[0, 0]}
        value_slope, key_query = split(value, key.transpose(0, 2, 1) @ query, slope)
        return {"value": value_slope, "key": query @ key_query.transpose(0, 2, 1), "query": key @ key_query}

    def reduced(self, weights: Weights, task: Task) -> Reduced:
        dim, value = task.dim, weights["value"]
        key, query = weights["key"][..., :dim], weights["query"][..., :dim]
        blocks = value[..., dim:, :dim], weights["key"][..., dim:], value[..., dim:, dim:]
        return self.all_heads(Reduced(label_value(value, task), np.swapaxes(key, -1, -2) @ query, key, query, *blocks))

    def balanced(self, A: Float[np.ndarray, "D D"], task: Task) -> Weights:
        dim, outputs, weights = task.dim, task.out_dim, empty(self, task)
        u, s, vt = np.linalg.svd(A)
        strengths = np.sqrt(outputs) * s
        for head in range(min(self.heads, -(-dim // self.rank))):
            held = slice(head * self.rank, min((head + 1) * self.rank, dim))
            v = np.cbrt(strengths[held].sum())
            if v > 0:
                size, count = np.sqrt(strengths[held] / v)[:, None], held.stop - held.start
                weights["key"][head, :count, :dim] = size * u.T[held]
                weights["query"][head, :count, :dim] = size * vt[held]
                weights["value"][head, dim:, dim:] = v * np.eye(outputs) / np.sqrt(outputs)
        return weights

    def aligned(
        self, task: Task, init: float, basis: Float[np.ndarray, "D D"], drive: Float[np.ndarray, "D D"]
    ) -> Weights:
        dim, outputs, weights = task.dim, task.out_dim, empty(self, task)
        for d in range(self.components(task)):
            head, row = divmod(d, self.rank)
            weights["key"][..., head, row, :dim] = weights["query"][..., head, row, :dim] = init * basis[:, d]
        for head in range(-(-self.components(task) // self.rank)):
            used = min(self.rank, self.components(task) - head * self.rank)
            weights["value"][..., head, dim:, dim:] = init * np.sqrt(used / outputs) * np.eye(outputs)
        return weights

    def public_divisor(self, size: int) -> float:
        return float(np.sqrt(size))

    def theory(self, task: Task) -> "type[Regime] | None":
        from iclflow.prediction.regimes.depth import Depth
        from iclflow.prediction.regimes.staircase import Staircase

        if self.deep:
            covered = self.rank == 1 and task.out_dim == 1 and task.label_noise == 0
            return Depth if covered else None
        return Staircase if self.linear and task.icl_fraction == 1 else None

    def enlarged(self, heads: int, dim: int) -> Model | None:
        return None if self.deep else self.replace(heads=heads, rank=1 if self.rank == 1 else dim)

    def title(self) -> str:
        return f"{super().title()}, rank {self.rank}"

    @classmethod
    def fields_of(cls, weights: Weights) -> dict[str, int]:
        return {**super().fields_of(weights), "rank": np.shape(weights["key"])[-2]}
