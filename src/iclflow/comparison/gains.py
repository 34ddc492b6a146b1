r"""How far a model has learned each direction: its reduced form beside the directions of theory.

The gain of direction $d$ is its part of the effective matrix relative to the strength with which it is learned, 1 at
the fixed point; heads share in it. All in the paper's units, so that no normaliser and no number of outputs matters.
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.models import Model, Weights
from iclflow.models.reduced import Reduced, coefficients, effective_matrix
from iclflow.theory.algorithm import gain_matrix
from iclflow.theory.landscape import Directions, directions
from iclflow.units import to_paper_weights

__all__ = ["along", "gains", "head_shares", "paper_matrix", "paper_reduced"]


def paper_weights(model: Model, weights: Weights, task: Task) -> Weights:
    return {name: np.asarray(to_paper_weights(task, model, np.asarray(array))) for name, array in weights.items()}


def paper_reduced(model: Model, weights: Weights, task: Task) -> Reduced:
    """Value weights and key-query matrices of every head in the paper's units."""
    return model.reduced(paper_weights(model, weights, task), task)


def paper_matrix(model: Model, weights: Weights, task: Task) -> Float[np.ndarray, "D D"]:
    """The effective matrix of one output in the paper's units."""
    return effective_matrix(coefficients(model, paper_weights(model, weights, task), task), task)


def gains(model: Model, weights: Weights, task: Task, d: Directions | None = None) -> Float[np.ndarray, " D"]:
    """Of every direction."""
    return np.diag(gain_matrix(d or directions(task), paper_matrix(model, weights, task)))


def along(d: Directions, matrices: Float[np.ndarray, "H D D"]) -> Float[np.ndarray, "H D"]:
    r"""The coefficient of $\ell_dr_d'$ in each matrix."""
    return np.einsum("di,hij,dj->hd", np.linalg.inv(d.left), matrices, np.linalg.inv(d.right))


def head_shares(model: Model, weights: Weights, task: Task, d: Directions | None = None) -> Float[np.ndarray, "H D"]:
    """The share of each head in the gain of each direction."""
    d, heads = d or directions(task), paper_reduced(model, weights, task)
    return along(d, heads.value[:, None, None] * heads.key_query) / d.strength
