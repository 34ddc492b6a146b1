"""Covariances agree with the definitions of their spectra."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.data.spectrum import covariances, in_weight_task, random_basis, root


@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_named_spectra_have_trace_one_and_their_law(dim):
    index = np.arange(1, dim + 1)
    laws = {"linear": index[::-1], "white": np.ones(dim), "power:1.5": index**-1.5}
    for name, law in laws.items():
        values = covariances(icl.Task(dim=dim, spectrum=name)).eigenvalues
        np.testing.assert_allclose(values, law / law.sum(), rtol=1e-14)


def test_the_papers_spectrum_at_four_dimensions():
    np.testing.assert_allclose(covariances(icl.Task()).eigenvalues, [0.4, 0.3, 0.2, 0.1], rtol=1e-14)


def test_eigenvectors_are_columns_of_an_orthogonal_basis_drawn_by_the_task_seed():
    first, again, other = (covariances(icl.Task(task_seed=s)) for s in (0, 0, 1))
    np.testing.assert_allclose(first.basis.T @ first.basis, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(first.token @ first.basis, first.basis * first.eigenvalues, atol=1e-14)
    assert np.array_equal(first.token, again.token)
    assert np.abs(first.token - other.token).max() > 1e-2
    assert np.array_equal(covariances(icl.Task(basis="identity")).basis, np.eye(4))


def test_random_bases_have_no_preferred_direction():
    """Haar: the first column has mean 0 and covariance I/D, within 5 standard errors over 4000 draws."""
    columns = np.stack([random_basis(3, seed)[:, 0] for seed in range(4000)])
    assert np.abs(columns.mean(axis=0)).max() < 5 * np.sqrt(1 / 3 / 4000)
    assert np.abs(columns.T @ columns / 4000 - np.eye(3) / 3).max() < 5 * np.sqrt(1 / 4000)


def test_a_task_spectrum_follows_the_token_spectrum_as_written():
    cov = covariances(icl.Task(spectrum=[0.1, 0.4], task_spectrum=[3.0, 1.0], basis="identity"))
    np.testing.assert_allclose(cov.eigenvalues, [0.4, 0.1])
    np.testing.assert_allclose(np.diag(cov.task), [1.0, 3.0])


def test_matrices_are_taken_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 3))
    np.save(tmp_path / "c.npy", a @ a.T)
    task = icl.Task(spectrum=str(tmp_path / "c.npy"))
    assert task.dim == 3
    np.testing.assert_allclose(covariances(task).token, a @ a.T, rtol=1e-12)


def test_in_weight_tasks_have_norm_root_dim():
    w = in_weight_task(icl.Task(dim=5, out_dim=2, task_seed=3))
    np.testing.assert_allclose(np.linalg.norm(w, axis=1), np.sqrt(5))


def test_root_squares_back():
    a = np.random.default_rng(1).standard_normal((4, 4))
    np.testing.assert_allclose(root(a @ a.T) @ root(a @ a.T), a @ a.T, atol=1e-12)
