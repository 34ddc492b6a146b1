r"""The setting in which a subject is probed: a task, its directions, and sequences to predict.

Matrices are in the units of $\hat y = \beta'Ax_q$ with $\beta = \frac1N\sum_n y_nx_n$, whatever the subject's own scale
$\nu$: $A = N\nu\,A_{weights}$. Distances between two of them are exact on the population, $\operatorname{tr}(\Delta'B
\Delta\Lambda)$; everything else is measured on one sample of sequences, the same for all candidates.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.features import attention_scale
from iclflow.data.sequences import Given
from iclflow.data.spectrum import Covariances, covariances, root
from iclflow.errors import BadInput
from iclflow.probing.contexts import Contexts, draw, read_contexts
from iclflow.probing.subject import Subject
from iclflow.theory.landscape import Directions, Landscape, directions, landscape

__all__ = ["Setting", "described_by", "setting_of", "unit", "whitener"]

MOST_GIVEN = 8192  # at most this many of a user's own sequences are used


@dataclass(frozen=True)
class Setting:
    """`reference` is the task that theory describes: the same task, with its own task vector for every sequence."""

    reference: Task
    covariances: Covariances
    directions: Directions
    strength: Float[np.ndarray, " D"]  # of one output at the fixed point, in the units above
    contexts: Contexts
    closed: Landscape | None  # population loss; None if it does not describe the sequences
    base: float  # loss of the zero predictor, the unit of all distances


def setting_of(subject: Subject) -> Setting:
    """The setting of a subject's own task, or of the sequences given with the subject."""
    task = subject.task
    closed = None
    if subject.data is not None:
        contexts = given_contexts(subject.data, task)
        reference = described_by(contexts, task)
    else:
        contexts = draw(task)
        reference = task.replace(icl_fraction=1.0)
        if task.icl_fraction == 1:
            closed = landscape(task.replace(normalize="context", prefix_loss=False))
    # A nonlinear model such as softmax normalises by itself; it is compared with the paper's 1/N.
    reference = reference if subject.linear else reference.replace(normalize="context")
    d = directions(reference)
    strength = d.strength / np.sqrt(task.out_dim)
    if reference.normalize == "tokens":
        strength = strength * unit("tokens", task.context)
    base = closed.base if closed is not None else contexts.power
    if not base > 0:
        raise BadInput("data: all labels of the queries are zero; there is nothing to predict")
    return Setting(reference, covariances(reference), d, strength, contexts, closed, base)


def unit(normalize: str, length: int) -> float:
    r"""$N\nu$, the factor from the effective matrix of the weights to that of $\beta = \frac1N\sum_n y_nx_n$."""
    return length * attention_scale(normalize, length)


def given_contexts(data: Given, task: Task) -> Contexts:
    """The contexts of a user's own sequences, whose sizes must be those of the task."""
    if (data.dim, data.out_dim) != (task.dim, task.out_dim):
        raise BadInput(
            f"data: has dim {data.dim} and out_dim {data.out_dim}, the subject has {task.dim} and {task.out_dim}"
        )
    return read_contexts(data.sequences[:MOST_GIVEN], data.out_dim)


def described_by(contexts: Contexts, task: Task) -> Task:
    r"""The task estimated from sequences: $\Lambda$ from all tokens, $\Omega$ and noise from fits in every context.

    $\Omega$ is assumed to share the eigenvectors of $\Lambda$; if contexts are too short to be fitted, it is $I$.
    """
    dim, out_dim = task.dim, task.out_dim
    x = contexts.tokens[:, :, :dim].reshape(-1, dim)
    token = x.T @ x / len(x)
    settings: dict[str, Any] = {"dim": dim, "out_dim": out_dim, "context": contexts.length, "spectrum": token}
    if contexts.length > dim:
        noise, omega = fitted_tasks(contexts)
        basis = np.linalg.eigh(token)[1]
        along = np.einsum("id,ij,jd->d", basis, omega, basis)
        noise = noise if noise > 1e-9 * contexts.power else 0.0
        if np.abs(along - 1).max() > 1e-6 and along.min() > 0:
            settings["task_spectrum"] = (basis * along) @ basis.T
        settings["label_noise"] = noise
    if task.prefix_loss:
        settings |= {"prefix_loss": True, "query_noise": settings.get("label_noise", 0.0) > 0}
    return Task(**settings, normalize=task.normalize)


def fitted_tasks(contexts: Contexts) -> tuple[float, Float[np.ndarray, "D D"]]:
    r"""Noise and $\Omega$ from least squares in every context: $E\hat w\hat w' = \Omega + \sigma^2E(X'X)^{-1}$."""
    dim, length = contexts.query.shape[1], contexts.length
    inverse = np.linalg.pinv(contexts.gram, hermitian=True)
    w = np.einsum("pij,poj->poi", inverse, contexts.beta)
    explained = np.einsum("poi,poi->po", w, contexts.beta)
    rest = np.einsum("poo->po", contexts.labels) - explained
    noise = max(float(rest.mean()) * length / (length - dim), 0.0)
    omega = np.einsum("poi,poj->ij", w, w) / w[:, :, 0].size
    return noise, omega - noise / length * inverse.mean(axis=0)


def whitener(setting: Setting) -> Float[np.ndarray, "D D"]:
    r"""$\Lambda^{-1/2}$."""
    return np.linalg.inv(root(setting.covariances.token))
