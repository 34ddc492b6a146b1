r"""What a subject predicts, and the matrix in it.

$$\hat y_o = \nu\sum_{abc}\Theta_o[a,b,c]\,S_{ab}\,x_c,\qquad
  A = \tfrac1O\sum_o\big(\Theta_o[y_o, \cdot, \cdot] + \Theta_o[\cdot, y_o, \cdot]\big)$$

for a linear model: $A$ is all that multiplies $\beta_ox_q'$ on the way to label $o$ [`effective-matrix`]. For softmax
and for functions $A$ is the best linear fit of the predictions on $\beta x_q'$.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Model
from iclflow.errors import BadInput
from iclflow.memory import require
from iclflow.models import Weights, vectors_are_zero
from iclflow.probing.contexts import Contexts
from iclflow.probing.scene import unit
from iclflow.probing.subject import Predictor, Subject

__all__ = ["Outputs", "effective_matrix", "fitted_matrix", "outputs", "predictions"]

BATCH = 2048  # sequences that a function is asked about at once
AT_ONCE = 2**22  # numbers, one for every sequence, head and column, that are held at once


@dataclass(frozen=True)
class Outputs:
    """Of every snapshot: predictions on the sample and the effective matrix; `reduced` if that is all there is."""

    predictions: Float[np.ndarray, "T P O"]
    matrices: Float[np.ndarray, "T D D"]
    reduced: bool


def outputs(subject: Subject, contexts: Contexts) -> Outputs:
    """Ask a subject about every sequence."""
    require(8 * subject.count * contexts.target.size * 2, f"predictions of {subject.count} snapshots")
    with np.errstate(over="ignore", invalid="ignore"):
        found = predictions(subject, contexts)
        if not np.isfinite(found).all() or np.abs(found).max() > 1e100:
            raise BadInput("weights: are so large, or so wrong, that predictions are not finite numbers")
    if subject.model is None or subject.model.softmax:
        return Outputs(found, fitted_matrices(found, contexts), reduced=False)
    model, task = subject.model, subject.task
    scale = unit(subject.normalize, contexts.length)
    matrices = np.stack([scale * effective_matrix(model, w, task.dim, task.out_dim) for w in subject.snapshots])
    return Outputs(found, matrices, all(is_reduced(model, w, task.dim) for w in subject.snapshots))


def predictions(subject: Subject, contexts: Contexts) -> Float[np.ndarray, "T P O"]:
    """Labels of the queries by every snapshot."""
    if subject.function is not None:
        return ask(subject.function, contexts)[None]
    assert subject.model is not None
    if subject.model.softmax:
        return np.stack([by_tokens(subject.model, w, contexts, subject.normalize) for w in subject.snapshots])
    scale = unit(subject.normalize, contexts.length)
    if contexts.target.shape[1] == 1 and all(is_reduced(subject.model, w, subject.task.dim) for w in subject.snapshots):
        features = (contexts.beta[:, 0, :, None] * contexts.query[:, None, :]).reshape(len(contexts.query), -1)
        flat = [effective_matrix(subject.model, w, subject.task.dim, 1).ravel() for w in subject.snapshots]
        return scale * (np.stack(flat) @ features.T)[:, :, None]
    return np.stack([scale * by_heads(subject.model, w, contexts) for w in subject.snapshots])


def is_reduced(model: Model, weights: Weights, dim: int) -> bool:
    """Whether the prediction is beta' A x_q: no vector blocks, and one label or labels that do not mix."""
    if not vectors_are_zero(model, weights, dim):
        return False
    if model.kind == "mlp":
        return True
    block = weights["value"][:, dim:, dim:]
    return bool(np.all(block == block[:, :1, :1] * np.eye(block.shape[1])))


def key_query(model: Model, weights: Weights, dim: int) -> Float[np.ndarray, "H E D"]:
    """The matrix between tokens and query in every head."""
    if model.kind == "merged":
        return weights["key_query"][:, :, :dim]
    return weights["key"].transpose(0, 2, 1) @ weights["query"][:, :, :dim]


def by_heads(model: Model, weights: Weights, contexts: Contexts) -> Float[np.ndarray, "P O"]:
    r"""$\sum_h V_h\,(S/N)\,M_hx_q$, with the query in $S$."""
    x, dim = contexts.query, contexts.query.shape[1]
    if model.kind == "mlp":
        A = effective_matrix(model, weights, dim, 1)
        return np.einsum("poi,ij,pj->po", contexts.beta, A, x, optimize=True)
    top = contexts.gram + x[:, :, None] * x[:, None, :] / contexts.length
    across = contexts.beta.transpose(0, 2, 1)
    second = np.block([[top, across], [contexts.beta, contexts.labels]])
    value, blocks = weights["value"][:, dim:], key_query(model, weights, dim)
    found, rows = np.empty(contexts.target.shape), max(1, AT_ONCE // blocks[..., 0].size)
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        asked = np.einsum("hbd,pd->phb", blocks, x[part])
        found[part] = np.einsum("hoa,pha->po", value, asked @ second[part], optimize=True)
    return found


def by_tokens(model: Model, weights: Weights, contexts: Contexts, normalize: str) -> Float[np.ndarray, "P O"]:
    """The model as it trains, token by token."""
    batch = compiled(model, contexts.query.shape[1], normalize)
    parts = [batch(weights, contexts.tokens[i : i + BATCH]) for i in range(0, len(contexts.tokens), BATCH)]
    return np.concatenate([np.asarray(part) for part in parts])


@cache
def compiled(model: Model, dim: int, normalize: str) -> Callable[[Weights, np.ndarray], Any]:
    """Predictions of a batch; compiled once for all snapshots."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from iclflow.engines.token_loss import prediction

    return jax.jit(jax.vmap(lambda w, sequence: prediction(model, w, sequence, dim, normalize), in_axes=(None, 0)))


def ask(function: Predictor, contexts: Contexts) -> Float[np.ndarray, "P O"]:
    """A user's function, in batches; it sees copies, with the query's label 0."""
    batches = range(0, len(contexts.tokens), BATCH)
    parts = [np.asarray(function(contexts.tokens[i : i + BATCH].copy()), dtype=float) for i in batches]
    expected = contexts.target[:BATCH].shape
    if parts[0].shape == expected[:1] and expected[1] == 1:
        parts = [part[:, None] for part in parts]
    if parts[0].shape != expected:
        raise BadInput(f"function: returned shape {parts[0].shape} for a batch of sequences, must be {expected}")
    return np.concatenate(parts)


def effective_matrix(model: Model, weights: Weights, dim: int, out_dim: int) -> Float[np.ndarray, "D D"]:
    r"""$A$ of a linear model in the units of its weights [`effective-matrix`]."""
    if model.kind == "mlp":
        return (weights["second"] @ weights["first"]).reshape(dim, dim)
    value, blocks = weights["value"][:, dim:], key_query(model, weights, dim)
    own = np.einsum("hoo,hbd->bd", value[:, :, dim:], blocks[:, :dim])
    return (own + np.einsum("hoa,hod->ad", value[:, :, :dim], blocks[:, dim:])) / out_dim


def fitted_matrices(found: Float[np.ndarray, "T P O"], contexts: Contexts) -> Float[np.ndarray, "T D D"]:
    return np.stack([fitted_matrix(one, contexts) for one in found])


def fitted_matrix(found: Float[np.ndarray, "P O"], contexts: Contexts) -> Float[np.ndarray, "D D"]:
    r"""The $A$ for which $\beta'Ax_q$ is nearest to the predictions on the sample.

    Where its entries are too many for that: $\langle\beta\beta'\rangle^{-1}\langle\hat y\beta x_q'\rangle\langle
    x_qx_q'\rangle^{-1}$, the same up to sampling noise because the query does not depend on its context.
    """
    dim = contexts.query.shape[1]
    if found.size < 4 * dim**2:
        beta, x = contexts.beta.reshape(-1, dim), contexts.query
        cross = np.einsum("po,poi,pj->ij", found, contexts.beta, x, optimize=True) / found.size
        return np.linalg.solve(beta.T @ beta / len(beta), np.linalg.solve(x.T @ x / len(x), cross.T).T)
    require(8 * found.size * dim**2 * 2, f"a linear fit with {dim**2} coefficients")
    features = (contexts.beta[..., :, None] * contexts.query[:, None, None, :]).reshape(-1, dim**2)
    return np.linalg.lstsq(features, found.reshape(-1), rcond=None)[0].reshape(dim, dim)
