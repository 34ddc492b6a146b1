r"""What merged and separate attention share: from scores of the tokens to the label at the query.

$$\hat y = \nu \sum_h V_h \sum_m a_{hm}\, x_m,\qquad a_h = \text{scores, or their softmax over the tokens.}$$

Only the last $O$ rows of a head's value matrix, $V_h$, reach the label; the residual stream adds the query's own
label entry, which is 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["read_out"]


def read_out(
    scores: Float[Array, "H n"],
    tokens: Float[Array, "n E"],
    value_rows: Float[Array, "H O E"],
    scale: Float[Array, ""] | float,
    softmax: bool,
    present: Bool[Array, " n"] | None = None,
) -> Float[Array, " O"]:
    """The label at the query; `present` marks the tokens that a shorter prefix keeps."""
    if softmax:
        scores = jax.nn.softmax(scores, axis=1, where=None if present is None else present[None])
    return scale * jnp.einsum("hoe,ne,hn->o", value_rows, tokens, scores)
