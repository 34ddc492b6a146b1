r"""Linear or softmax attention with one key-query matrix a head (paper, Eq. 3 with merged weights).

$$\text{score}_{hm} = x_m' W^{KQ}_h x_q,\qquad \Theta_o[a,b,c] = \sum_h V_h[o,a]\, W^{KQ}_h[b,c].$$
"""

import numpy as np
from jaxtyping import Array, Bool, Float

from iclflow.config import Merged
from iclflow.data.moments import Blocks
from iclflow.models.attention import combine, read_out, split

__all__ = ["predict", "pull_back", "shapes", "theta", "trained", "vectors"]


def shapes(model: Merged, dim: int, out_dim: int) -> dict[str, tuple[int, ...]]:
    width = dim + out_dim
    return {"value": (model.heads, width, width), "key_query": (model.heads, width, width)}


def trained(dim: int, blocks: Blocks) -> dict[str, tuple]:
    if blocks == "label":
        return {"value": np.s_[:, dim:, dim:], "key_query": np.s_[:, :dim, :dim]}
    return {"value": np.s_[:, dim:, :], "key_query": np.s_[:, :, :dim]}


def vectors(dim: int) -> dict[str, tuple]:
    return {"value": np.s_[:, dim:, :dim], "key_query": np.s_[:, dim:, :dim]}


def theta(part: dict[str, Array]) -> Float[Array, "O A B D"]:
    return combine(part["value"], part["key_query"])


def pull_back(part: dict[str, Array], slope: Float[Array, "O A B D"]) -> dict[str, Array]:
    value, key_query = split(part["value"], part["key_query"], slope)
    return {"value": value, "key_query": key_query}


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
    scores = (weights["key_query"][:, :, :dim] @ query) @ tokens.T
    return read_out(scores, tokens, weights["value"][:, dim:], scale, softmax, present)
