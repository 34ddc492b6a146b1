r"""Linear or softmax attention with separate key and query of rank R in every head (paper, Eq. 12).

$$\text{score}_{hm} = (K_h x_m)'(Q_h x_q),\qquad
  \Theta_o[a,b,c] = \sum_h V_h[o,a] \sum_r K_h[r,b]\, Q_h[r,c].$$
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from iclflow.config import Separate
from iclflow.data.moments import Blocks
from iclflow.models.attention import combine, read_out, split

__all__ = ["predict", "pull_back", "shapes", "theta", "trained", "vectors"]


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


def theta(part: dict[str, Array]) -> Float[Array, "O A B D"]:
    value, key, query = part["value"], part["key"], part["query"]
    dim = query.shape[2]
    if value.shape[1:] == (1, 1):  # one label: sum_h v_h K_h' Q_h without a matrix a head
        return ((value * key).reshape(-1, dim).T @ query.reshape(-1, dim))[None, None]
    return combine(value, key.transpose(0, 2, 1) @ query)


def pull_back(part: dict[str, Array], slope: Float[Array, "O A B D"]) -> dict[str, Array]:
    value, key, query = part["value"], part["key"], part["query"]
    if value.shape[1:] == (1, 1):
        key_slope = query @ slope[0, 0].T
        value_slope = (key * key_slope).sum((1, 2))[:, None, None]
        return {"value": value_slope, "key": value * key_slope, "query": (value * key) @ slope[0, 0]}
    value_slope, key_query = split(value, key.transpose(0, 2, 1) @ query, slope)
    return {"value": value_slope, "key": query @ key_query.transpose(0, 2, 1), "query": key @ key_query}


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
    scores = jnp.einsum("hrb,hr->hb", weights["key"], asked) @ tokens.T
    return read_out(scores, tokens, weights["value"][:, dim:], scale, softmax, present)
