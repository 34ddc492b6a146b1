r"""Linear or softmax attention with one key-query matrix per head (paper, Eq. 3 with merged weights).

$$\text{score}_{hm} = x_m' W^{KQ}_h x_q,\qquad \Theta_o[a,b,c] = \sum_h V_h[o,a]\, W^{KQ}_h[b,c].$$
"""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.features import Blocks
from iclflow.models import deep
from iclflow.models.attention import Attention
from iclflow.models.base import Model, Shapes, Weights, Where
from iclflow.models.parts import empty
from iclflow.models.reduced import Reduced, label_value

if TYPE_CHECKING:
    from iclflow.prediction.regimes.regime import Regime

__all__ = ["Merged"]


class Merged(Attention):
    """Attention with one key-query matrix per head."""

    kind: ClassVar[str] = "merged"
    homogeneous: ClassVar[int] = 2
    axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head", "row", "col"),
        "key_query": ("head", "row", "col"),
    }

    def shapes(self, task: Task) -> Shapes:
        width = task.dim + task.out_dim
        return self.per_layer({"value": (self.heads, width, width), "key_query": (self.heads, width, width)})

    def trained(self, task: Task, blocks: Blocks) -> Where:
        dim = task.dim
        if blocks == "label":
            return {"value": np.s_[..., dim:, dim:], "key_query": np.s_[..., :dim, :dim]}
        if self.deep:
            return dict.fromkeys(self.axes, ...)
        return {"value": np.s_[:, dim:, :], "key_query": np.s_[:, :, :dim]}

    def vectors(self, task: Task, last_only: bool = False) -> Where:
        if self.deep:
            return deep.vectors(self, task)
        rows = slice(-1 if last_only else task.dim, None)
        return {"value": np.s_[:, rows, : task.dim], "key_query": np.s_[:, rows, : task.dim]}

    def spans_all_blocks(self, task: Task) -> bool:
        return self.heads >= task.out_dim * (task.dim + task.out_dim)

    def scores(self, weights: Weights, tokens: Any, query: Any) -> Any:
        return (weights["key_query"][:, :, : query.shape[0]] @ query) @ tokens.T

    def layer(self, weights: Weights, gram: Any) -> Any:
        import jax.numpy as jnp

        return jnp.einsum("hab,bhd->ad", weights["value"], jnp.einsum("bc,hcd->bhd", gram, weights["key_query"]))

    def theta(self, trained: Weights) -> Any:
        from iclflow.models.readout import combine

        return combine(trained["value"], trained["key_query"])

    def pull_back(self, trained: Weights, slope: Any) -> Weights:
        from iclflow.models.readout import split

        value, key_query = split(trained["value"], trained["key_query"], slope)
        return {"value": value, "key_query": key_query}

    def reduced(self, weights: Weights, task: Task) -> Reduced:
        token_block = weights["key_query"][..., : task.dim, : task.dim]
        return self.all_heads(Reduced(label_value(weights["value"], task), token_block))

    def balanced(self, A: Float[np.ndarray, "D D"], task: Task) -> Weights:
        dim, outputs, weights = task.dim, task.out_dim, empty(self, task)
        size = np.sqrt(outputs) * np.linalg.norm(A)
        if size > 0:
            v = np.sqrt(size)
            weights["value"][0, dim:, dim:] = v * np.eye(outputs) / np.sqrt(outputs)
            weights["key_query"][0, :dim, :dim] = A * np.sqrt(outputs) / v
        return weights

    def aligned(
        self, task: Task, init: float, basis: Float[np.ndarray, "D D"], drive: Float[np.ndarray, "D D"]
    ) -> Weights:
        dim, outputs, weights = task.dim, task.out_dim, empty(self, task)
        weights["key_query"][..., :dim, :dim] = init * (drive / np.linalg.norm(drive))
        weights["value"][..., dim:, dim:] = init * np.eye(outputs) / np.sqrt(outputs)
        return weights

    def theory(self, task: Task) -> "type[Regime] | None":
        from iclflow.prediction.regimes.drop import Drop
        from iclflow.prediction.regimes.mixture import Mixture

        if not self.linear:
            return None
        if task.icl_fraction == 0 and task.prefix_loss:
            return None  # context labels are targets, and random
        return Drop if task.icl_fraction == 1 else Mixture

    def enlarged(self, heads: int, dim: int) -> Model | None:
        return None if self.deep else self.replace(heads=heads)
