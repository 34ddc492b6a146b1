r"""The reduced form of a model: all that theory, probe and figures read off its weights.

A head with label block $V_h$ and token block $U_h$ ($= K_h'Q_h$ where key and query are separate) acts through

$$v_h = \operatorname{tr} V_h/\sqrt O, \qquad U_h .$$

What the whole model does is its effective matrix, $\hat y_o = \nu N\,\beta_o' A x_q + ..$ [`effective-matrix`],

$$A = \tfrac1O\sum_o\big(\Theta_o[y_o,\cdot,\cdot] + \Theta_o[\cdot,y_o,\cdot]\big),$$

where the second term runs through the vector blocks; without them $\sqrt O A = \sum_h v_hU_h$. The gain of direction
$d$ is its part of $A$ relative to the strength with which it is learned, 1 at the fixed point.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.features import Blocks
from iclflow.errors import BadInput
from iclflow.models.base import Model, Weights
from iclflow.models.parts import take, vectors_are_zero

__all__ = ["Reduced", "coefficients", "effective_matrix", "head_matrices", "is_reduced", "label_value"]

ROUNDING = 1e-12  # relative


class Reduced(NamedTuple):
    """Of every head; leading axes, such as records along training, stand in front."""

    value: Float[np.ndarray, "*T H"]
    key_query: Float[np.ndarray, "*T H D D"]
    key: Float[np.ndarray, "*T H R D"] | None = None
    query: Float[np.ndarray, "*T H R D"] | None = None
    value_rows: Float[np.ndarray, "*T H O D"] | None = None  # vector blocks: token part of every output's value row
    key_labels: Float[np.ndarray, "*T H R O"] | None = None  # and label part of every key
    label_blocks: Float[np.ndarray, "*T H O O"] | None = None  # V of every head

    @property
    def keys_and_queries(self) -> tuple[Float[np.ndarray, "*T H R D"], Float[np.ndarray, "*T H R D"]]:
        """Both, of a model that keeps them apart."""
        if self.key is None or self.query is None:
            raise BadInput("model: has no separate key and query")
        return self.key, self.query


def label_value(value: Float[np.ndarray, "*T H E E"], task: Task) -> Float[np.ndarray, "*T H"]:
    r"""$\operatorname{tr} V_h/\sqrt O$, the part of a head's value matrix that grows."""
    block = value[..., task.dim :, task.dim :]
    return np.trace(block, axis1=-2, axis2=-1) / np.sqrt(task.out_dim)


def coefficients(
    model: Model, weights: Weights, task: Task, blocks: Blocks | None = None
) -> Float[np.ndarray, "O A B D"]:
    r"""$\Theta$ of a linear model, over the blocks asked for; by default over all that it has."""
    chosen: Blocks = blocks or ("all" if model.vectors(task) else "label")
    arrays = {name: np.asarray(array) for name, array in take(model, weights, task, chosen).items()}
    theta, outputs, dim = np.asarray(model.theta(arrays)), task.out_dim, task.dim
    return theta.reshape(outputs, outputs, dim, dim) if chosen == "label" else theta


def effective_matrix(theta: Float[np.ndarray, "O A B D"], task: Task) -> Float[np.ndarray, "D D"]:
    r"""$A$ from $\Theta$, in the units of the weights [`effective-matrix`]."""
    dim, outputs = task.dim, task.out_dim
    if theta.shape[1] == outputs:
        return np.einsum("oobd->bd", theta) / outputs
    own = np.einsum("oobd->bd", theta[:, dim:, :dim])
    return (own + np.einsum("oaod->ad", theta[:, :dim, dim:])) / outputs


def head_matrices(model: Model, weights: Weights, task: Task) -> Float[np.ndarray, "H D D"]:
    r"""$\sqrt O$ times the part of $A$ that each head adds: $v_hU_h$, and what runs through its vector blocks."""
    if not model.linear or vectors_are_zero(model, weights, task):
        heads = model.reduced(weights, task)
        return heads.value[:, None, None] * heads.key_query
    one = model.replace(heads=1)
    axes = {name: one.head_axis(name) for name in one.shapes(task)}
    pick = lambda head: {name: np.take(weights[name], [head], axis) for name, axis in axes.items() if axis is not None}
    parts = [coefficients(one, pick(head), task) for head in range(model.head_count(task))]
    return np.sqrt(task.out_dim) * np.stack([effective_matrix(theta, task) for theta in parts])


def is_reduced(theta: Float[np.ndarray, "O A B D"], task: Task) -> bool:
    """Whether the prediction is beta' A x_q and nothing else: no vector blocks, and labels that do not mix."""
    dim, outputs = task.dim, task.out_dim
    label = theta if theta.shape[1] == outputs else theta[:, dim:, :dim]
    mixed = label - np.einsum("op,bd->opbd", np.eye(outputs), effective_matrix(theta, task))
    if theta.shape[1] != outputs:
        rest = theta.copy()
        rest[:, dim:, :dim] = mixed
        mixed = rest
    return bool(np.abs(mixed).max() <= ROUNDING * np.abs(theta).max())
