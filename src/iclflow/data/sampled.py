r"""Moments of a sample, summed in one pass over chunks of bounded memory.

$$\psi = \nu\,(S_{ab}\,x_c)_{a\le b,\,c},\qquad C = \tfrac1P\sum\psi\psi',\qquad b_o = \tfrac1P\sum y_o\psi .$$

With the prefix loss every token after the first is the query of its own prefix, and the average runs over prefixes too.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.data.features import Blocks, Normalize, feature_count, prefix_features
from iclflow.data.moments import Moments
from iclflow.data.sequences import Sequences, chunk_count, over_chunks
from iclflow.system.lru_cache import LRUCache
from iclflow.system.memory import require

__all__ = ["chunk_sums", "sampled_moments", "sum_moments"]

BLOCK = 1024  # sequences whose features are held at once: they stay in cache
RECENT = LRUCache(32, 2**26)  # the next model, or a forecast, often asks for the same sample


def unreported(fraction: float) -> None:
    """Tell nobody how much is done."""


def sampled_moments(
    sequences: Sequences,
    normalize: Normalize,
    prefix_loss: bool,
    blocks: Blocks,
    progress: Callable[[float], None] = unreported,
) -> Moments:
    """Averages over all sequences (and prefixes), summed once for each sample."""
    key = (sequences.identity, normalize, prefix_loss, blocks)
    return RECENT.get(key, lambda: sum_moments(sequences, normalize, prefix_loss, blocks, progress))


def sum_moments(
    sequences: Sequences,
    normalize: Normalize,
    prefix_loss: bool,
    blocks: Blocks,
    progress: Callable[[float], None] = unreported,
) -> Moments:
    """Averages, summed chunk by chunk in a fixed order; reports the fraction done."""
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
    chunk: Float[np.ndarray, "P tokens E"], dim: int, normalize: Normalize, prefix_loss: bool, blocks: Blocks
) -> Sums:
    """The sums of one chunk, block by block in order."""
    parts = (
        Sums(psi.T @ psi, target.T @ psi, float(np.sum(target**2)), len(target))
        for rows in np.array_split(chunk, max(1, len(chunk) // BLOCK))
        for psi, target in prefix_features(rows, dim, normalize, prefix_loss, blocks)
    )
    add = lambda a, b: Sums(a.left + b.left, a.cross + b.cross, a.power + b.power, a.seen + b.seen)
    return reduce(add, parts)
