r"""Moments of a sample, walked through once in chunks of bounded memory.

$$\psi = \nu\,(S_{ab}\,x_c)_{a\le b,\,c},\qquad C = \tfrac1P\sum\psi\psi',\qquad b_o = \tfrac1P\sum y_o\psi .$$

With the prefix loss every token behind the first is the query of its own prefix, and the average runs over these too.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float

from iclflow.data.moments import Blocks, Moments, feature_count
from iclflow.data.sequences import Sequences, chunk_count, chunks
from iclflow.memory import require

__all__ = ["attention_scale", "sampled_moments"]

Scale = str  # context, tokens or none


def attention_scale(normalize: Scale, context: int) -> float:
    r"""$\nu$: the factor in front of the sum over tokens when there are `context` of them besides the query."""
    return {"context": 1 / context, "tokens": 1 / (context + 1), "none": 1.0}[normalize]


def sampled_moments(
    sequences: Sequences,
    normalize: Scale,
    prefix_loss: bool,
    blocks: Blocks,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Moments:
    """Averages over all sequences (and prefixes), summed chunk by chunk in a fixed order."""
    dim, outputs = sequences.dim, sequences.out_dim
    side = feature_count(dim, outputs, blocks)
    require(8 * side * (2 * side + 2 * 8192), f"moments of {side} features (dim {dim}, {blocks} blocks)")
    left, cross, power, seen = np.zeros((side, side)), np.zeros((outputs, side)), 0.0, 0
    for done, chunk in enumerate(chunks(sequences)):
        for features, target in prefixes(chunk, dim, normalize, prefix_loss, blocks):
            left += features.T @ features
            cross += target.T @ features
            power += float(np.sum(target**2))
            seen += len(target)
        progress((done + 1) / chunk_count(sequences))
    return Moments(left / seen, None, cross / seen, np.asarray(power / seen), dim=dim, blocks=blocks)


def prefixes(
    chunk: Float[np.ndarray, "P N+1 E"], dim: int, normalize: Scale, prefix_loss: bool, blocks: Blocks
) -> Iterator[tuple[Float[np.ndarray, "P J"], Float[np.ndarray, "P O"]]]:
    """Features and targets of the whole context, or of every context length in turn."""
    longest = chunk.shape[1] - 1
    for n in range(1, longest + 1) if prefix_loss else (longest,):
        scale = attention_scale(normalize, n)
        yield scale * features(chunk[:, :n], chunk[:, n, :dim], blocks), chunk[:, n, dim:]


def features(
    context: Float[np.ndarray, "P N E"], query: Float[np.ndarray, "P D"], blocks: Blocks
) -> Float[np.ndarray, "P J"]:
    r"""$S_{ab} x_c$: the query enters $S$ through its tokens only, for its label is hidden."""
    count, dim = query.shape
    if blocks == "label":
        second = np.matmul(context[:, :, dim:].transpose(0, 2, 1), context[:, :, :dim]).reshape(count, -1)
    else:
        full = np.matmul(context.transpose(0, 2, 1), context)
        full[:, :dim, :dim] += query[:, :, None] * query[:, None, :]
        rows, cols = np.triu_indices(full.shape[1])
        second = full[:, rows, cols]
    return (second[:, :, None] * query[:, None, :]).reshape(count, -1)
