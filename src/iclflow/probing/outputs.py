r"""The predictions of a subject, and its effective matrix.

$$\hat y_o = \nu\sum_{abc}\Theta_o[a,b,c]\,S_{ab}\,x_c,\qquad
  A = \tfrac1O\sum_o\big(\Theta_o[y_o, \cdot, \cdot] + \Theta_o[\cdot, y_o, \cdot]\big)$$

for a linear model: $A$ is the matrix that multiplies $\beta_ox_q'$ in the prediction of label $o$ [`effective-matrix`].
For other models and for functions, $A$ is the best linear fit of the predictions on $\beta x_q'$.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.models.reduced import coefficients, effective_matrix, is_reduced
from iclflow.probing.contexts import Contexts, Predictions
from iclflow.probing.setting import unit
from iclflow.probing.subject import Predictor, Subject
from iclflow.system.arrays import as_array
from iclflow.system.memory import require
from iclflow.system.precision import double_precision

__all__ = ["Outputs", "fitted_matrices", "outputs", "predictions"]

BATCH = 2048  # sequences that a function receives at once


@dataclass(frozen=True)
class Outputs:
    """Predictions and effective matrix of every snapshot; `reduced` if the predictions are beta' A x_q exactly."""

    predictions: Float[np.ndarray, "T P O"]
    matrices: Float[np.ndarray, "T D D"]
    reduced: bool


def outputs(subject: Subject, contexts: Contexts) -> Outputs:
    """The outputs of a subject on every sequence."""
    require(8 * subject.count * contexts.target.size * 2, f"predictions of {subject.count} snapshots")
    with np.errstate(over="ignore", invalid="ignore"):
        guesses = predictions(subject, contexts)
        if not np.isfinite(guesses).all() or np.abs(guesses).max() > 1e100:
            raise BadInput("weights: are so large, or so wrong, that predictions are not finite numbers")
    if not subject.linear:
        return Outputs(guesses, fitted_matrices(guesses, contexts), reduced=False)
    scale = unit(subject.normalize, contexts.length)
    thetas = all_coefficients(subject)
    matrices = np.stack([scale * effective_matrix(theta, subject.task) for theta in thetas])
    return Outputs(guesses, matrices, all(is_reduced(theta, subject.task) for theta in thetas))


def predictions(subject: Subject, contexts: Contexts) -> Float[np.ndarray, "T P O"]:
    """The labels of the queries as every snapshot predicts them."""
    if subject.function is not None:
        return ask(subject.function, contexts)[None]
    assert subject.model is not None
    if not subject.linear:
        return np.stack([by_tokens(subject.model, w, contexts, subject.task) for w in subject.snapshots])
    scale, thetas = unit(subject.normalize, contexts.length), all_coefficients(subject)
    if contexts.target.shape[1] == 1 and all(is_reduced(theta, subject.task) for theta in thetas):
        features = (contexts.beta[:, 0, :, None] * contexts.query[:, None, :]).reshape(len(contexts.query), -1)
        flat = [effective_matrix(theta, subject.task).ravel() for theta in thetas]
        return scale * (np.stack(flat) @ features.T)[:, :, None]
    return np.stack([scale * by_coefficients(theta, contexts) for theta in thetas])


def all_coefficients(subject: Subject) -> list[Float[np.ndarray, "O A B D"]]:
    r"""$\Theta$ of every snapshot of a linear model."""
    assert subject.model is not None
    return [coefficients(subject.model, weights, subject.task) for weights in subject.snapshots]


def by_coefficients(theta: Float[np.ndarray, "O A B D"], contexts: Contexts) -> Predictions:
    r"""$\sum_{abc}\Theta_o[a,b,c]\,(S_{ab}/N)\,x_c$, with the query in $S$."""
    x, outputs = contexts.query, theta.shape[0]
    if theta.shape[1] == outputs:
        second = contexts.beta
    else:
        top = contexts.gram + x[:, :, None] * x[:, None, :] / contexts.length
        second = np.block([[top, contexts.beta.transpose(0, 2, 1)], [contexts.beta, contexts.labels]])
    flat = theta.reshape(outputs, -1, x.shape[1])
    return np.stack([np.einsum("pc,pc->p", second.reshape(len(x), -1) @ one, x) for one in flat], axis=1)


def by_tokens(model: Model, weights: Weights, contexts: Contexts, task: Task) -> Predictions:
    """The predictions of the model itself, from all tokens."""
    batch = compiled(model, model.compiled_for(task))
    with double_precision():
        parts = [batch(weights, contexts.tokens[i : i + BATCH]) for i in range(0, len(contexts.tokens), BATCH)]
        return np.concatenate([np.asarray(part) for part in parts])


@cache
def compiled(model: Model, task: Task) -> Callable[[Weights, np.ndarray], Any]:
    """The predictions of a batch, compiled once for all snapshots."""
    import jax

    return jax.jit(jax.vmap(lambda weights, sequence: model.predict(weights, sequence, task), in_axes=(None, 0)))


def ask(function: Predictor, contexts: Contexts) -> Predictions:
    """The predictions of a user's function, in batches; it gets copies in which the label of the query is 0."""
    batches = range(0, len(contexts.tokens), BATCH)
    parts = [as_array(function(contexts.tokens[i : i + BATCH].copy())).astype(float) for i in batches]
    shape = contexts.target[:BATCH].shape
    if parts[0].shape == shape[:1] and shape[1] == 1:
        parts = [part[:, None] for part in parts]
    if parts[0].shape != shape:
        raise BadInput(f"function: returned shape {parts[0].shape} for a batch of sequences, must be {shape}")
    return np.concatenate(parts)


def fitted_matrices(guesses: Float[np.ndarray, "T P O"], contexts: Contexts) -> Float[np.ndarray, "T D D"]:
    r"""The $A$ for which $\beta'Ax_q$ is nearest to the predictions on the sample, for every snapshot.

    If $A$ has too many entries for such a fit: $\langle\beta\beta'\rangle^{-1}\langle\hat y\beta x_q'\rangle\langle
    x_qx_q'\rangle^{-1}$, the same up to sampling noise because the query does not depend on its context.
    """
    dim, size = contexts.query.shape[1], guesses[0].size
    if size < 4 * dim**2:
        beta, x = contexts.beta.reshape(-1, dim), contexts.query
        cross = np.einsum("tpo,poi,pj->tij", guesses, contexts.beta, x, optimize=True) / size
        across = np.linalg.solve(x.T @ x / len(x), cross.transpose(0, 2, 1)).transpose(0, 2, 1)
        return np.linalg.solve(beta.T @ beta / len(beta), across)
    require(8 * size * dim**2 * 2, f"a linear fit with {dim**2} coefficients")
    features = (contexts.beta[..., :, None] * contexts.query[:, None, None, :]).reshape(-1, dim**2)
    fitted = np.linalg.lstsq(features, guesses.reshape(len(guesses), -1).T, rcond=None)[0]
    return fitted.T.reshape(-1, dim, dim)
