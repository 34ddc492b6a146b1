r"""Size, balance and alignment of every head, and which head carries which component.

The alignment of head $h$ with component $d$ is $e_d'M_he_d/\|M_h\|_F$ with $M_h$ the head's part of the effective
matrix, $v_hU_h$ or $v_hK_h'Q_h$ and what runs through its vector blocks: $\pm1$ if the head does nothing else. It
carries the component if its share $e_d'M_he_d$ of the gain is the largest [`alignment`]. The balance consists of the
quantities that gradient flow conserves: $v^2 - \|K\|^2$ and $KK' - QQ'$, or for merged attention
$\langle U_i, U_j\rangle - v_iv_j$. They stay small if the initial weights were small.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import along, paper_heads, paper_reduced
from iclflow.config import Task
from iclflow.models import Model, Weights
from iclflow.theory.landscape import Directions
from iclflow.theory.merged import conserved as conserved_merged
from iclflow.theory.separate import conserved

__all__ = ["Heads", "heads", "vector_blocks"]

MOST_PAIRS = 2000  # number of heads up to which all pairs are checked


@dataclass(frozen=True)
class Heads:
    """One entry per head, in the paper's units."""

    value: Float[np.ndarray, " H"]  # tr V_h / sqrt(O)
    key: Float[np.ndarray, " H"]  # norm of the key, or of the merged matrix
    query: Float[np.ndarray, " H"] | None
    balance: Float[np.ndarray, " H"]  # v^2 - |K|^2, or v^2 - |U|^2
    imbalance: float  # largest conserved quantity relative to the largest squared norm
    alignment: Float[np.ndarray, "H D"]
    share: Float[np.ndarray, "H D"]  # of each component's gain
    carrier: tuple[int | None, ...]  # by component: the index of the head (from 0) that carries it, or None

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON; there the carriers count from 1, as they are printed."""
        fields = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in vars(self).items()}
        return {**fields, "carrier": [None if head is None else head + 1 for head in self.carrier]}


def heads(task: Task, model: Model, d: Directions, weights: Weights) -> Heads:
    """The heads of one snapshot."""
    v, U, K, Q = paper_reduced(model, weights, task)[:4]
    if K is not None and Q is not None:
        balance, matrix = conserved(v, K, Q)
        key, query = np.linalg.norm(K, axis=(1, 2)), np.linalg.norm(Q, axis=(1, 2))
        worst = max(np.abs(balance).max(), np.abs(matrix).max())
    else:
        key, query = np.linalg.norm(U, axis=(1, 2)), None
        balance = v**2 - key**2
        worst = np.abs(conserved_merged(v, U) if len(v) <= MOST_PAIRS else balance).max()
    largest = max(np.max(v**2), np.max(key**2))
    own = paper_heads(model, weights, task)
    coordinates, size = along(d, own), np.linalg.norm(own, axis=(1, 2))[:, None]
    share = coordinates / d.full_gain
    learned = share.sum(axis=0) > 0.5
    carrier = tuple(int(share[:, i].argmax()) if learned[i] else None for i in range(task.dim))
    alignment = coordinates / np.where(size > 0, size, 1.0)
    return Heads(v, key, query, balance, float(worst / max(largest, 1e-300)), alignment, share, carrier)


def vector_blocks(task: Task, model: Model, weights: Weights) -> dict[str, float]:
    """The norms of the blocks that theory keeps at zero, relative to the label blocks of the same array."""
    norms = {}
    for name, where in model.vectors(task).items():
        block = np.linalg.norm(weights[name][where])
        trained = np.linalg.norm(weights[name][model.trained(task, "label")[name]])
        norms[name] = float(block / trained) if trained > 0 else float(block > 0)
    return norms
