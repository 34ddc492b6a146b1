r"""Head by head: size, balance, which eigenvector each is aligned with, and which head carries which component.

The alignment of head $h$ with component $d$ is $e_d'M_he_d/\|M_h\|_F$, $M_h = v_hU_h$ or $v_hK_h'Q_h$: $\pm1$ if the
head does nothing else. It carries the component if its share $e_d'M_he_d$ of the gain is the largest [`alignment`].
Balance are the quantities that gradient flow conserves: $v^2 - \|K\|^2$ and $KK' - QQ'$, or for merged attention
$\langle U_i, U_j\rangle - v_iv_j$; small for a small start, whatever happened since.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from iclflow.comparison.gains import along, paper_reduced
from iclflow.config import Task
from iclflow.models import Model, Weights
from iclflow.theory.landscape import Directions
from iclflow.theory.merged import conserved as conserved_merged
from iclflow.theory.separate import conserved

__all__ = ["Heads", "heads", "vector_blocks"]

MOST_PAIRS = 2000  # heads up to which all pairs are looked at


@dataclass(frozen=True)
class Heads:
    """One entry a head, in the paper's units."""

    value: Float[np.ndarray, " H"]  # tr V_h / sqrt(O)
    key: Float[np.ndarray, " H"]  # norm of the key, or of the merged matrix
    query: Float[np.ndarray, " H"] | None
    balance: Float[np.ndarray, " H"]  # v^2 - |K|^2, or v^2 - |U|^2
    imbalance: float  # largest conserved quantity relative to the largest squared norm
    alignment: Float[np.ndarray, "H D"]
    share: Float[np.ndarray, "H D"]  # of each component's gain
    carrier: tuple[int | None, ...]  # by component: the head (from 0) that carries it, None if nobody does


def heads(task: Task, model: Model, d: Directions, weights: Weights) -> Heads:
    """The heads of one snapshot."""
    found = paper_reduced(model, weights, task)
    v, U = found.value, found.key_query
    if found.key is not None and found.query is not None:
        balance, matrix = conserved(v, found.key, found.query)
        key, query = np.linalg.norm(found.key, axis=(1, 2)), np.linalg.norm(found.query, axis=(1, 2))
        worst = max(np.abs(balance).max(), np.abs(matrix).max())
    else:
        key, query = np.linalg.norm(U, axis=(1, 2)), None
        balance = v**2 - key**2
        worst = np.abs(conserved_merged(v, U) if len(v) <= MOST_PAIRS else balance).max()
    largest = max(np.max(v**2), np.max(key**2))
    own = v[:, None, None] * U
    coordinates, size = along(d, own), np.linalg.norm(own, axis=(1, 2))[:, None]
    share = coordinates / d.strength
    held = share.sum(axis=0) > 0.5
    carrier = tuple(int(share[:, i].argmax()) if held[i] else None for i in range(task.dim))
    alignment = coordinates / np.where(size > 0, size, 1.0)
    return Heads(v, key, query, balance, float(worst / max(largest, 1e-300)), alignment, share, carrier)


def vector_blocks(task: Task, model: Model, weights: Weights) -> dict[str, float]:
    """Norms of the blocks that theory keeps at zero, relative to the rest of the same array that is trained."""
    found = {}
    for name, where in model.vectors(task).items():
        block = np.linalg.norm(weights[name][where])
        trained = np.linalg.norm(weights[name][model.trained(task, "label")[name]])
        found[name] = float(block / trained) if trained > 0 else float(block > 0)
    return found
