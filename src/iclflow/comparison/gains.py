r"""How far a model has learned each direction of theory.

The gain of direction $d$ is the component of the effective matrix along $d$, divided by the strength with which $d$ is
learned: it is 1 at the fixed point. Every head contributes a share. All quantities are in the paper's units, so they
depend neither on the normaliser nor on the number of outputs.
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.features import Blocks
from iclflow.models import Model, Weights
from iclflow.models.reduced import Reduced, coefficients, effective_matrix, head_matrices
from iclflow.theory.algorithm import gain_matrix
from iclflow.theory.landscape import Directions, directions
from iclflow.units import to_paper_weights

__all__ = ["along", "gains", "head_shares", "paper_heads", "paper_reduced", "paper_weights"]


def paper_weights(model: Model, weights: Weights, task: Task) -> Weights:
    """The weights in the paper's units."""
    return {name: np.asarray(to_paper_weights(task, model, np.asarray(array))) for name, array in weights.items()}


def paper_reduced(model: Model, weights: Weights, task: Task) -> Reduced:
    """Value weights and key-query matrices of every head in the paper's units."""
    return model.reduced(paper_weights(model, weights, task), task)


def paper_heads(model: Model, weights: Weights, task: Task) -> Float[np.ndarray, "H D D"]:
    """The effective matrix of every head in the paper's units, what runs through its vector blocks included."""
    return head_matrices(model, paper_weights(model, weights, task), task)


def gains(model: Model, weights: Weights, task: Task, blocks: Blocks | None = None) -> Float[np.ndarray, " D"]:
    """The gain of every direction; `blocks="label"` leaves out what runs through the vector blocks."""
    theta = coefficients(model, paper_weights(model, weights, task), task, blocks)
    return np.diag(gain_matrix(directions(task), effective_matrix(theta, task)))


def along(d: Directions, matrices: Float[np.ndarray, "H D D"]) -> Float[np.ndarray, "H D"]:
    r"""The coefficient of $\ell_dr_d'$ in each matrix."""
    return np.einsum("di,hij,dj->hd", np.linalg.inv(d.left), matrices, np.linalg.inv(d.right))


def head_shares(model: Model, weights: Weights, task: Task) -> Float[np.ndarray, "H D"]:
    """The share of each head in the gain of each direction."""
    d = directions(task)
    return along(d, paper_heads(model, weights, task)) / d.full_gain
