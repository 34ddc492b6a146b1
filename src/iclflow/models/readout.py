r"""What merged and separate attention share: the coefficients of their output, and the label at the query.

$$\Theta_o[a,b,c] = \sum_h V_h[o,a]\, M_h[b,c]$$

$$\hat y = \nu \sum_h V_h \sum_m a_{hm}\, x_m,\qquad a_h = \text{scores, or their softmax over the tokens.}$$

Only the last $O$ rows of a head's value matrix, $V_h$, reach the label; the residual stream adds the query's own
label entry, which is 0.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from iclflow.data.features import Normalize, attention_scale
from iclflow.data.moments import AnyArray

__all__ = ["combine", "cubic_feature", "over_prefixes", "read_out", "split"]


def read_out(
    scores: Float[AnyArray, "H n"],
    tokens: Float[AnyArray, "n E"],
    value_rows: Float[AnyArray, "H O E"],
    scale: Float[Array, ""] | float,
    softmax: bool,
    present: Bool[AnyArray, " n"] | None = None,
) -> Float[Array, " O"]:
    """The label at the query; `present` marks the tokens that a shorter prefix keeps."""
    if softmax:
        scores = scores if present is None else jnp.where(present, scores, -jnp.inf)
        scores = jnp.exp(scores - jax.lax.stop_gradient(scores.max(axis=1, keepdims=True)))
        return scale * jnp.einsum("hoe,he->o", value_rows, (scores @ tokens) / scores.sum(axis=1, keepdims=True))
    return scale * jnp.einsum("hoe,he->o", value_rows, scores @ tokens)


def combine(value: Float[AnyArray, "H O A"], key_query: Float[AnyArray, "H B D"]) -> Float[AnyArray, "O A B D"]:
    r"""$\Theta$ from its two factors."""
    heads, outputs, rows = value.shape
    cols, dim = key_query.shape[1:]
    theta = value.reshape(heads, outputs * rows).T @ key_query.reshape(heads, cols * dim)
    return theta.reshape(outputs, rows, cols, dim)


def split(
    value: Float[AnyArray, "H O A"], key_query: Float[AnyArray, "H B D"], slope: Float[AnyArray, "O A B D"]
) -> tuple[Float[AnyArray, "H O A"], Float[AnyArray, "H B D"]]:
    r"""The slopes of both factors from $\dot\Theta = \partial L/\partial\Theta$.

    $$\partial L/\partial V_h[o,a] = \sum_{bc} \dot\Theta_o[a,b,c] M_h[b,c],\qquad
      \partial L/\partial M_h[b,c] = \sum_{oa} \dot\Theta_o[a,b,c] V_h[o,a].$$
    """
    heads, outputs, rows = value.shape
    flat = slope.reshape(outputs * rows, -1)
    value_slope = (key_query.reshape(heads, -1) @ flat.T).reshape(value.shape)
    key_query_slope = (value.reshape(heads, outputs * rows) @ flat).reshape(key_query.shape)
    return value_slope, key_query_slope


def cubic_feature(
    tokens: Float[AnyArray, "n E"], query: Float[AnyArray, " D"], scale: Float[Array, ""] | float
) -> Float[AnyArray, " D*D"]:
    r"""$z = \operatorname{vec}(\beta x_q')$, rows stacked."""
    dim = query.shape[0]
    beta = scale * jnp.einsum("nd,n->d", tokens[:, :dim], tokens[:, dim])
    return (beta[:, None] * query[None, :]).reshape(-1)


def over_prefixes(
    answer: Callable[[AnyArray, AnyArray, Array, Array], Array],
    sequence: Float[AnyArray, "n E"],
    dim: int,
    normalize: Normalize,
) -> Float[AnyArray, "n-1 O"]:
    """`answer(tokens, query, scale, present)` for every token behind the first as query: what follows it is cut."""
    longest = sequence.shape[0] - 1
    scales = jnp.array([attention_scale(normalize, n) for n in range(1, longest + 1)], sequence.dtype)

    def at(n: Array, scale: Array) -> Array:
        present = jnp.arange(longest + 1) <= n
        tokens = jnp.where(present[:, None], sequence, 0).at[n, dim:].set(0)
        return answer(tokens, sequence[n, :dim], scale, present)

    return jax.vmap(at)(jnp.arange(1, longest + 1), scales)
