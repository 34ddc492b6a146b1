r"""Moments of a sample, walked through once in chunks of bounded memory.

$$\psi = \nu\,(S_{ab}\,x_c)_{a\le b,\,c},\qquad C = \tfrac1P\sum\psi\psi',\qquad b_o = \tfrac1P\sum y_o\psi .$$

With the prefix loss every token behind the first is the query of its own prefix, and the average runs over these too.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.data.moments import Blocks, Moments, feature_count
from iclflow.data.sequences import Sequences, chunk_count, over_chunks
from iclflow.memory import require

__all__ = ["attention_scale", "sampled_moments"]

Scale = str  # context, tokens or none
BLOCK = 1024  # sequences whose features are held at once: they stay in cache


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
    require(8 * side * (4 * side + 2 * BLOCK), f"moments of {side} features (dim {dim}, {blocks} blocks)")
    sequences.prepare()
    sums = lambda index: chunk_sums(sequences.chunk(index), dim, normalize, prefix_loss, blocks)
    left, cross, power, seen = np.zeros((side, side)), np.zeros((outputs, side)), 0.0, 0
    for done, part in enumerate(over_chunks(sums, sequences), 1):
        left += part.left
        cross += part.cross
        power += part.power
        seen += part.seen
        progress(done / chunk_count(sequences))
    return Moments(left / seen, None, cross / seen, np.asarray(power / seen), dim=dim, blocks=blocks)


class Sums(NamedTuple):
    """Sums over the sequences (and prefixes) of one chunk."""

    left: Float[np.ndarray, "J J"]
    cross: Float[np.ndarray, "O J"]
    power: float
    seen: int


def chunk_sums(
    chunk: Float[np.ndarray, "P N+1 E"], dim: int, normalize: Scale, prefix_loss: bool, blocks: Blocks
) -> Sums:
    total = None
    for rows in np.array_split(chunk, max(1, len(chunk) // BLOCK)):
        for psi, target in prefixes(rows, dim, normalize, prefix_loss, blocks):
            part = (psi.T @ psi, target.T @ psi, float(np.sum(target**2)), len(target))
            total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
    return Sums(*total)


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
