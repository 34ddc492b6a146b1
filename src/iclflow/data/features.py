r"""The features of a sequence that a linear model reads: $\psi = \nu\,(S_{ab}\,x_c)_{a\le b,\,c}$ with $S = XX'$.

Nothing here imports JAX.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Float

__all__ = ["Blocks", "Normalize", "attention_scale", "feature_count", "prefix_features"]

Blocks = Literal["all", "label"]  # blocks of the weights; `data.moments` says which features belong to them
Normalize = str  # context, tokens or none


def attention_scale(normalize: Normalize, context: int) -> float:
    r"""$\nu$: the factor in front of the sum over tokens when there are `context` of them besides the query."""
    return {"context": 1 / context, "tokens": 1 / (context + 1), "none": 1.0}[normalize]


def feature_count(dim: int, out_dim: int, blocks: Blocks) -> int:
    """The number of features, which is the side of a dense $C$."""
    width = dim + out_dim
    return dim * width * (width + 1) // 2 if blocks == "all" else dim * dim * out_dim


def prefix_features(
    chunk: Float[np.ndarray, "P tokens E"], dim: int, normalize: Normalize, prefix_loss: bool, blocks: Blocks
) -> Iterator[tuple[Float[np.ndarray, "P J"], Float[np.ndarray, "P O"]]]:
    """Features and targets of the full context, or with the prefix loss of every context length in turn."""
    longest = chunk.shape[1] - 1
    for n in range(1, longest + 1) if prefix_loss else (longest,):
        scale = attention_scale(normalize, n)
        yield scale * features(chunk[:, :n], chunk[:, n, :dim], blocks), chunk[:, n, dim:]


def features(
    context: Float[np.ndarray, "P N E"], query: Float[np.ndarray, "P D"], blocks: Blocks
) -> Float[np.ndarray, "P J"]:
    r"""$S_{ab} x_c$: the query enters $S$ without its label, because the label is hidden."""
    count, dim = query.shape
    if blocks == "label":
        second = np.matmul(context[:, :, dim:].transpose(0, 2, 1), context[:, :, :dim]).reshape(count, -1)
    else:
        full = np.matmul(context.transpose(0, 2, 1), context)
        full[:, :dim, :dim] += query[:, :, None] * query[:, None, :]
        rows, cols = np.triu_indices(full.shape[1])
        second = full[:, rows, cols]
    return (second[:, :, None] * query[:, None, :]).reshape(count, -1)
