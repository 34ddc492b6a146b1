r"""Attention as networks on the cubic feature $z = \operatorname{vec}(\beta x_q')$ (paper, Eq. 6, 7 and 13).

With the vector blocks zero, merged attention is a two-layer linear network,

$$\hat y = \sum_h v_h\, \operatorname{vec}(U_h)'\, z = w_2' W_1 z,$$

and separate attention a sum of three-layer convolutional linear networks: in each, a kernel $k$ of length and stride
$D$ slides over the column-stacked $z = x_q \otimes \beta$, then $q$ and $v$ read it out,

$$\hat y = \sum_{h,r} v_h\, q_{hr}' (I_D \otimes k_{hr}')\, z .$$

Same outputs, and the same training by any optimiser, as long as the vector blocks stay zero: on the population, or
frozen. On a sample with all blocks trained they drift, and the runs differ. One output.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iclflow.data.moments import AnyArray
from iclflow.errors import BadInput
from iclflow.models import Weights

__all__ = ["convolve", "from_convolutional", "from_two_layer", "to_convolutional", "to_two_layer"]


def require_plain(weights: Weights, vectors: dict[str, np.ndarray]) -> None:
    if weights["value"].shape[1] <= 1 or any(np.any(block) for block in vectors.values()):
        raise BadInput("weights: the vector blocks must be zero for the network to compute the same")


def sizes(weights: Weights, out_dim: int) -> int:
    if out_dim != 1:
        raise BadInput(f"out_dim: {out_dim} must be 1; the cubic feature holds one label")
    return weights["value"].shape[1] - out_dim


def to_two_layer(weights: Weights, out_dim: int = 1) -> Weights:
    """Merged attention as `first` (H, D*D) and `second` (1, H)."""
    dim = sizes(weights, out_dim)
    value, key_query = weights["value"], weights["key_query"]
    require_plain(weights, {"value": value[:, dim:, :dim], "key_query": key_query[:, dim:, :dim]})
    return {
        "first": key_query[:, :dim, :dim].reshape(len(value), dim * dim),
        "second": value[:, dim, dim][None],
    }


def from_two_layer(network: Weights) -> Weights:
    """The merged attention that a two-layer network is equal to; entries that never matter are zero."""
    hidden, features = network["first"].shape
    dim = round(features**0.5)
    value, key_query = np.zeros((2, hidden, dim + 1, dim + 1))
    value[:, dim, dim] = network["second"][0]
    key_query[:, :dim, :dim] = network["first"].reshape(hidden, dim, dim)
    return {"value": value, "key_query": key_query}


def to_convolutional(weights: Weights, out_dim: int = 1) -> Weights:
    """Separate attention as `kernel` (H, R, D), `read` (H, R, D) and `scale` (H,)."""
    dim = sizes(weights, out_dim)
    value, key = weights["value"], weights["key"]
    require_plain(weights, {"value": value[:, dim:, :dim], "key": key[:, :, dim:]})
    return {"kernel": key[:, :, :dim], "read": weights["query"][:, :, :dim], "scale": value[:, dim, dim]}


def from_convolutional(networks: Weights) -> Weights:
    """The separate attention that a sum of convolutional networks is equal to."""
    heads, _, dim = networks["kernel"].shape
    value = np.zeros((heads, dim + 1, dim + 1))
    value[:, dim, dim] = networks["scale"]
    pad = lambda array: np.pad(array, [(0, 0), (0, 0), (0, 1)])
    return {"value": value, "key": pad(networks["kernel"]), "query": pad(networks["read"])}


def convolve(networks: Weights, z: Float[AnyArray, " features"]) -> Float[Array, ""]:
    """The sum of networks on one column-stacked feature, by an actual convolution."""
    heads, rank, dim = networks["kernel"].shape
    kernels = networks["kernel"].reshape(heads * rank, 1, dim)
    hidden = jax.lax.conv_general_dilated(jnp.asarray(z)[None, None], kernels, window_strides=(dim,), padding="VALID")[
        0
    ]
    read = jnp.einsum("cd,cd->c", hidden, networks["read"].reshape(heads * rank, dim))
    return jnp.sum(networks["scale"][:, None] * read.reshape(heads, rank))
