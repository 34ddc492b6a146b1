"""What is computed on the plateaus, against sampled sequences and enumeration."""

import numpy as np
import pytest

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory import algorithm
from iclflow.theory.landscape import directions, landscape, plateau_losses

TASK = Task(dim=4, context=31)


def sampled(task, count, seed):
    """beta, x_q and w of fresh sequences, straight from the definition of the task."""
    rng, cov = np.random.default_rng(seed), covariances(task)
    factor = np.linalg.cholesky(cov.token)
    x = rng.standard_normal((count, task.context + 1, task.dim)) @ factor.T
    w = rng.standard_normal((count, task.dim)) @ np.linalg.cholesky(cov.task).T
    y = np.einsum("pnd,pd->pn", x[:, :-1], w)
    y += np.sqrt(task.label_noise) * rng.standard_normal(y.shape)
    return np.einsum("pn,pnd->pd", y, x[:, :-1]) / task.context, x[:, -1], w


def within(values, expected, errors=5):
    assert abs(values.mean() - expected) < errors * values.std() / np.sqrt(len(values))


def test_plateau_matrix_is_regression_on_shrunk_principal_components():
    """[`plateau-algorithm`] [`shrinkage`] Eq. 22 written out."""
    cov = covariances(TASK)
    lam, N = cov.eigenvalues, TASK.context
    np.testing.assert_allclose(algorithm.shrinkage(TASK), (1 + lam.sum() / lam) / N, rtol=1e-12)
    for m in range(5):
        e = cov.basis[:, :m]
        expected = (e / (lam[:m] * (1 + (1 + lam.sum() / lam[:m]) / N))) @ e.T
        np.testing.assert_allclose(algorithm.plateau_matrix(TASK, m), expected, atol=1e-12)


@pytest.mark.parametrize("task", [TASK, TASK.replace(task_spectrum=(1.0, 2.0, 1.5, 0.5), label_noise=0.2)])
@pytest.mark.parametrize("m", [1, 3, 4])
def test_distance_to_ideal_regression_and_loss_match_sampled_sequences(task, m):
    """[`pcr-distance`] [`pcr-ideal`] Mean over 60000 sequences within five standard errors."""
    beta, x, w = sampled(task, 60_000, seed=m)
    A = algorithm.plateau_matrix(task, m)
    cov = covariances(task)
    first = cov.basis[:, directions(task).order[:m]]
    prediction, ideal = np.einsum("pi,ij,pj->p", beta, A, x), np.einsum("pi,ij,pj->p", w, first @ first.T, x)
    within((prediction - ideal) ** 2, algorithm.pcr_distance(task, m))
    within((prediction - np.einsum("pd,pd->p", w, x)) ** 2, plateau_losses(task)[m])


def test_ideal_regression_is_the_limit_of_long_contexts():
    """[`pcr-ideal`] [`pcr-distance`] The distance falls as 1/N and the matrices meet."""
    far, near = (algorithm.pcr_distance(TASK.replace(context=n), 3) for n in (10**3, 10**5))
    assert far / near == pytest.approx(100, rel=0.02)
    for m in range(5):
        gap = algorithm.plateau_matrix(TASK.replace(context=10**8), m) - algorithm.pcr_matrix(TASK, m)
        assert np.abs(gap).max() < 1e-5


def test_one_step_of_descent_beats_three_learned_components():
    """[`one-step-descent`] Loss 0.2029, below the plateau at 0.2098; no other step size does better."""
    step, loss = algorithm.one_step_descent(TASK)
    assert loss == pytest.approx(0.2029, abs=5e-5)
    assert loss < plateau_losses(TASK)[3]
    L = landscape(TASK)
    around = [L.loss(eta * np.eye(4)) for eta in (step, 0.99 * step, 1.01 * step)]
    assert around[0] == pytest.approx(loss, rel=1e-12)
    assert min(around[1:]) > loss
    beta, x, w = sampled(TASK, 60_000, seed=9)
    within((step * np.einsum("pd,pd->p", beta, x) - np.einsum("pd,pd->p", w, x)) ** 2, loss)


def test_prediction_distance_is_the_mean_squared_gap_of_two_predictors():
    """[`prediction-distance`] A gap that reads the first component of beta and writes the last of x_q."""
    e, other = covariances(TASK).basis, np.random.default_rng(0).standard_normal((4, 4))
    A = other + np.outer(e[:, 0], e[:, 3])
    beta, x, _ = sampled(TASK, 60_000, seed=4)
    within(
        np.einsum("pi,ij,pj->p", beta, A - other, x) ** 2,
        algorithm.prediction_distance(landscape(TASK), A, other),
    )


@pytest.mark.parametrize("outputs", [1, 3])
def test_every_plateau_is_recognised_with_its_neighbours_nearby(outputs):
    """[`identify`] Also when perturbed by a few per cent; mixed matrices are reported as such."""
    task = TASK.replace(out_dim=outputs)
    rng = np.random.default_rng(1)
    for m in range(5):
        A = algorithm.plateau_matrix(task, m) + 0.02 * rng.standard_normal((4, 4))
        found = algorithm.identify(task, A)
        assert (found.count, found.clean) == (m, True)
        assert found.learned.tolist() == [d < m for d in range(4)]
        name, distance = algorithm.nearest(task, A)
        assert name == (f"plateau {m}" if m else "zero")
        assert distance < 1e-3
    assert algorithm.nearest(task, algorithm.pcr_matrix(task, 3))[0] == "PCR 3"
    assert [algorithm.identify(task, part * algorithm.plateau_matrix(task, 2)).count for part in (0.4, 0.6)] == [0, 2]
    mixed = algorithm.plateau_matrix(task, 4)
    e = covariances(task).basis
    assert not algorithm.identify(task, mixed + np.outer(e[:, 0], e[:, 1])).clean


def test_bad_counts_and_tilted_tasks_are_refused():
    with pytest.raises(BadInput, match="between 0 and dim"):
        algorithm.plateau_matrix(TASK, 5)
    tilted = Task(dim=2, spectrum=(1.0, 0.5), task_spectrum=np.array([[1.0, 0.4], [0.4, 1.0]]))
    with pytest.raises(BadInput, match="task_spectrum"):
        algorithm.shrinkage(tilted)
