r"""A two-layer linear network on the cubic feature (paper, Eq. 7), for one output.

$$\hat y = w_2' W_1 z,\qquad z = \operatorname{vec}(\beta x_q'),\quad \beta = \nu\sum_n y_n x_n,\quad
  z[dD + e] = \beta_d\, x_e .$$

The paper stacks columns of $\beta x_q'$; here and in weight files rows are stacked.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from iclflow.config import MLP
from iclflow.data.moments import Blocks

__all__ = ["cubic_feature", "predict", "pull_back", "shapes", "theta", "trained", "vectors"]


def shapes(model: MLP, dim: int, out_dim: int) -> dict[str, tuple[int, ...]]:
    return {"first": (model.heads, dim * dim), "second": (out_dim, model.heads)}


def trained(dim: int, blocks: Blocks) -> dict[str, tuple]:
    return {"first": np.s_[:, :], "second": np.s_[:, :]}


def vectors(dim: int) -> dict[str, tuple]:
    return {}


def theta(part: dict[str, Array]) -> Float[Array, "O A B D"]:
    dim = round(part["first"].shape[1] ** 0.5)
    return (part["second"] @ part["first"]).reshape(-1, 1, dim, dim)


def pull_back(part: dict[str, Array], slope: Float[Array, "O A B D"]) -> dict[str, Array]:
    flat = slope.reshape(part["second"].shape[0], -1)
    return {"first": part["second"].T @ flat, "second": flat @ part["first"].T}


def cubic_feature(
    tokens: Float[Array, "n E"], query: Float[Array, " D"], scale: Float[Array, ""] | float
) -> Float[Array, " D*D"]:
    dim = query.shape[0]
    beta = scale * jnp.einsum("nd,n->d", tokens[:, :dim], tokens[:, dim])
    return (beta[:, None] * query[None, :]).reshape(-1)


def predict(
    weights: dict[str, Array],
    tokens: Float[Array, "n E"],
    query: Float[Array, " D"],
    scale: Float[Array, ""] | float,
    softmax: bool = False,
    present: Bool[Array, " n"] | None = None,
) -> Float[Array, " O"]:
    """The label of the query; a hidden label is 0, so the query adds nothing to the feature."""
    return weights["second"] @ (weights["first"] @ cubic_feature(tokens, query, scale))
