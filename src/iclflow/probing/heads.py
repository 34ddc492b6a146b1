r"""Head by head: size, balance, which eigenvector each is aligned with, and which head carries which component.

The alignment of head $h$ with component $d$ is $e_d'M_he_d/\|M_h\|_F$, $M_h = v_hU_h$ or $v_hK_h'Q_h$: $\pm1$ if the
head does nothing else. It carries the component if its share $e_d'M_he_d$ of the gain is the largest [`alignment`].
Balance are the quantities that gradient flow conserves: $v^2 - \|K\|^2$ and $KK' - QQ'$, or for merged attention
$\langle U_i, U_j\rangle - v_iv_j$; small for a small start, whatever happened since.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from iclflow.config import Model, Separate, Task
from iclflow.models import Weights, kind
from iclflow.probing.outputs import key_query
from iclflow.theory.landscape import Directions
from iclflow.theory.merged import conserved as conserved_merged
from iclflow.theory.separate import conserved
from iclflow.units import to_paper_weights

__all__ = ["Heads", "heads", "label_values", "paper_weights", "vector_blocks"]

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


def paper_weights(task: Task, model: Model, weights: Weights) -> Weights:
    return {name: np.asarray(to_paper_weights(task, model, array)) for name, array in weights.items()}


def label_values(weights: Weights, task: Task) -> Float[np.ndarray, " H"]:
    """tr V_h / sqrt(O), the part of a head's label block that grows."""
    if "second" in weights:
        return weights["second"].sum(axis=0) / np.sqrt(task.out_dim)
    return np.trace(weights["value"][:, task.dim :, task.dim :], axis1=1, axis2=2) / np.sqrt(task.out_dim)


def heads(task: Task, model: Model, d: Directions, weights: Weights) -> Heads:
    """The heads of one snapshot."""
    scaled, dim = paper_weights(task, model, weights), task.dim
    v = label_values(scaled, task)
    if isinstance(model, Separate):
        K, Q = scaled["key"][:, :, :dim], scaled["query"][:, :, :dim]
        blocks = key_query(model, scaled, dim)[:, :dim]
        balance, matrix = conserved(v, K, Q)
        key, query = np.linalg.norm(K, axis=(1, 2)), np.linalg.norm(Q, axis=(1, 2))
        worst, largest = max(np.abs(balance).max(), np.abs(matrix).max()), max(np.max(v**2), np.max(key**2))
    else:
        blocks = (
            scaled["first"].reshape(-1, dim, dim) if model.kind == "mlp" else key_query(model, scaled, dim)[:, :dim]
        )
        key, query = np.linalg.norm(blocks, axis=(1, 2)), None
        balance, largest = v**2 - key**2, max(np.max(v**2), np.max(key**2))
        worst = np.abs(conserved_merged(v, blocks) if len(v) <= MOST_PAIRS else balance).max()
    own = v[:, None, None] * blocks
    dual_left, dual_right = np.linalg.inv(d.left), np.linalg.inv(d.right)
    along = np.einsum("di,hij,dj->hd", dual_left, own, dual_right)
    size = np.linalg.norm(own, axis=(1, 2))[:, None]
    share = along / d.strength
    held = share.sum(axis=0) > 0.5
    carrier = tuple(int(share[:, i].argmax()) if held[i] else None for i in range(dim))
    alignment = along / np.where(size > 0, size, 1.0)
    return Heads(v, key, query, balance, float(worst / max(largest, 1e-300)), alignment, share, carrier)


def vector_blocks(task: Task, model: Model, weights: Weights) -> dict[str, float]:
    """Norms of the blocks that theory keeps at zero, relative to the rest of the same array that is trained."""
    found = {}
    for name, where in kind(model).vectors(task.dim).items():
        block = np.linalg.norm(weights[name][where])
        trained = np.linalg.norm(weights[name][kind(model).trained(task.dim, "label")[name]])
        found[name] = float(block / trained) if trained > 0 else float(block > 0)
    return found
