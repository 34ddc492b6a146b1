r"""The covariances of the task: $\Lambda = \sum_d \lambda_d e_d e_d'$ of the tokens, $\Omega$ of the task vectors.

Directions are counted from the largest eigenvalue of $\Lambda$; the `d`-th entry of a task spectrum belongs to
the `d`-th entry of the token spectrum as the user wrote it, so the two are sorted together.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.config.spectra import SpectrumLike, is_matrix
from iclflow.errors import BadInput
from iclflow.system.memory import require

__all__ = ["Covariances", "covariance_bytes", "covariances", "in_weight_task", "random_basis", "root", "task_vectors"]

BASIS, IN_WEIGHT, TASK_SET = 101, 102, 103  # streams drawn from `task_seed`


class Covariances(NamedTuple):
    """`token` = basis diag(eigenvalues) basis'; `task` is $\\Omega$, in the same coordinates as the tokens.

    With K fixed tasks `task` is their second moment $\\frac1K\\sum_k w_kw_k'$ (a mean over outputs), which is all that
    the label blocks see of them.
    """

    token: Float[np.ndarray, "D D"]
    task: Float[np.ndarray, "D D"]
    eigenvalues: Float[np.ndarray, " D"]
    basis: Float[np.ndarray, "D D"]


def covariances(task: Task) -> Covariances:
    r"""Both covariances; the eigenvalues of $\Lambda$ in decreasing order, its eigenvectors as columns of `basis`."""
    require(covariance_bytes(task.dim), f"dim {task.dim}, of which matrices are made,")
    if is_matrix(task.spectrum):
        token = np.asarray(task.spectrum)
        eigenvalues, basis = np.linalg.eigh(token)
        eigenvalues, basis = np.clip(eigenvalues[::-1], 0, None), basis[:, ::-1]
        order = np.arange(task.dim)
    else:
        eigenvalues = spectrum_eigenvalues(task.spectrum, task.dim, trace=1.0)
        order = np.argsort(-eigenvalues, kind="stable")
        eigenvalues = eigenvalues[order]
        basis = np.eye(task.dim) if task.basis == "identity" else random_basis(task.dim, task.task_seed)
        token = (basis * eigenvalues) @ basis.T
    omega = task_covariance(task, basis, order)
    if task.tasks is not None:
        w = drawn_tasks(task, omega).reshape(-1, task.dim)
        omega = w.T @ w / len(w)
    return Covariances(token, omega, eigenvalues, basis)


def covariance_bytes(dim: int) -> int:
    """What it takes to make the covariances and the moments of the population: some matrices of this side at once."""
    return 12 * 8 * dim**2


def task_covariance(
    task: Task, basis: Float[np.ndarray, "D D"], order: Int[np.ndarray, " D"]
) -> Float[np.ndarray, "D D"]:
    r"""$\Omega$; `order` holds the position of every sorted eigenvalue in the spectrum as the user wrote it."""
    if task.task_spectrum is None:
        return np.eye(task.dim)
    if is_matrix(task.task_spectrum):
        return np.asarray(task.task_spectrum)
    omega = spectrum_eigenvalues(task.task_spectrum, task.dim, trace=float(task.dim))
    return (basis * omega[order]) @ basis.T


def spectrum_eigenvalues(spectrum: SpectrumLike, dim: int, trace: float) -> Float[np.ndarray, " D"]:
    """The eigenvalues of a spectrum: named laws are scaled to `trace`, numbers are taken as given."""
    if not isinstance(spectrum, str):
        return np.asarray(spectrum, dtype=float)
    name, _, exponent = spectrum.partition(":")
    index = np.arange(1, dim + 1, dtype=float)
    law = {"linear": index[::-1], "white": np.ones(dim)}.get(name)
    law = index ** -float(exponent) if law is None else law
    return trace * law / law.sum()


def random_basis(dim: int, seed: int) -> Float[np.ndarray, "D D"]:
    """An orthogonal matrix from the Haar measure: QR of a Gaussian matrix, signs fixed by R's diagonal."""
    rng = np.random.default_rng([BASIS, seed])
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    return q * np.sign(np.diag(r))


def task_vectors(task: Task) -> Float[np.ndarray, "K O D"]:
    """The fixed task vectors of a task with `tasks` = K, mirrored ones behind the others; a larger K keeps the first.

    Raises:
        BadInput: every sequence has a task of its own.
    """
    if task.tasks is None:
        raise BadInput("tasks: None must be a number here; every sequence has a task vector of its own")
    w = drawn_tasks(task, covariances(task.new_tasks).task)
    return np.concatenate([w, -w]) if task.mirror_tasks else w


def drawn_tasks(task: Task, omega: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "K O D"]:
    r"""K vectors from $N(0, \Omega)$ for every output."""
    assert task.tasks is not None
    require(4 * 8 * task.tasks * task.out_dim * task.dim, f"{task.tasks} task vectors (tasks, dim {task.dim})")
    rng = np.random.default_rng([TASK_SET, task.task_seed])
    return rng.standard_normal((task.tasks, task.out_dim, task.dim)) @ root(omega)


def in_weight_task(task: Task) -> Float[np.ndarray, "O D"]:
    r"""The fixed task vector of every output that in-weight sequences share, $|w_0| = \sqrt D$."""
    rng = np.random.default_rng([IN_WEIGHT, task.task_seed])
    w = rng.standard_normal((task.out_dim, task.dim))
    return w * np.sqrt(task.dim) / np.linalg.norm(w, axis=1, keepdims=True)


def root(matrix: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"]:
    """The symmetric square root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
