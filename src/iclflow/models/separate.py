r"""Linear or softmax attention with separate key and query of rank R in every head (paper, Eq. 12).

$$\text{score}_{hm} = (K_h x_m)'(Q_h x_q),\qquad
  \Theta_o[a,b,c] = \sum_h V_h[o,a] \sum_r K_h[r,b]\, Q_h[r,c].$$
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from iclflow.config import Separate
from iclflow.data.moments import Blocks
from iclflow.models.attention import read_out

__all__ = ["factors", "predict", "pull_back", "shapes", "trained", "vectors"]


def shapes(model: Separate, dim: int, out_dim: int) -> dict[str, tuple[int, ...]]:
    width = dim + out_dim
    return {
        "value": (model.heads, width, width),
        "key": (model.heads, model.rank, width),
        "query": (model.heads, model.rank, width),
    }


def trained(dim: int, blocks: Blocks) -> dict[str, tuple]:
    if blocks == "label":
        return {"value": np.s_[:, dim:, dim:], "key": np.s_[:, :, :dim], "query": np.s_[:, :, :dim]}
    return {"value": np.s_[:, dim:, :], "key": np.s_[:, :, :], "query": np.s_[:, :, :dim]}


def vectors(dim: int) -> dict[str, tuple]:
    return {"value": np.s_[:, dim:, :dim], "key": np.s_[:, :, dim:]}


def factors(part: dict[str, Array]) -> tuple[Float[Array, "H O A"], Float[Array, "H B D"]]:
    key, query = part["key"], part["query"]
    if key.shape[1] == 1:  # an outer product: XLA fuses the broadcast, not the dot of length one
        return part["value"], key[:, 0, :, None] * query[:, 0, None, :]
    return part["value"], key.transpose(0, 2, 1) @ query


def pull_back(
    part: dict[str, Array], value: Float[Array, "H O A"], key_query: Float[Array, "H B D"]
) -> dict[str, Array]:
    return {
        "value": value,
        "key": part["query"] @ key_query.transpose(0, 2, 1),
        "query": part["key"] @ key_query,
    }


def predict(
    weights: dict[str, Array],
    tokens: Float[Array, "n E"],
    query: Float[Array, " D"],
    scale: Float[Array, ""] | float,
    softmax: bool = False,
    present: Bool[Array, " n"] | None = None,
) -> Float[Array, " O"]:
    """The label of the query from all `tokens`, the query (label hidden) among them."""
    dim = query.shape[0]
    asked = jnp.einsum("hrd,d->hr", weights["query"][:, :, :dim], query)
    scores = jnp.einsum("hrb,nb,hr->hn", weights["key"], tokens, asked)
    return read_out(scores, tokens, weights["value"][:, dim:], scale, softmax, present)
