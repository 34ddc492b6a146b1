"""Softmax attention: early growth and the limit of long contexts, from sequences with true softmax."""

import numpy as np
import pytest

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory.laws import softmax

TASK = Task(dim=3, context=8, label_noise=0.1)


def sequences(task, count, seed):
    rng, cov = np.random.default_rng(seed), covariances(task)
    x = rng.standard_normal((count, task.context + 1, task.dim)) @ np.linalg.cholesky(cov.token).T
    w = rng.standard_normal((count, task.dim)) @ np.linalg.cholesky(cov.task).T
    y = np.einsum("pnd,pd->pn", x, w)
    target = y[:, -1].copy()
    y = y + np.sqrt(task.label_noise) * rng.standard_normal(y.shape)
    y[:, -1] = 0  # the query's own label is hidden, its token is attended
    return x, y, target


def attended(x, y, U):
    """Softmax-weighted mean label of each sequence."""
    logits = np.einsum("pnd,de,pe->pn", x, U, x[:, -1])
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return (weights * y).sum(1) / weights.sum(1)


def test_force_on_small_key_query_matrices():
    """[`softmax-early`] d/dU of E[y_q softmax(..)] at U = 0 by differences on 100000 sequences."""
    x, y, target = sequences(TASK, 100_000, seed=0)
    h, expected = 1e-3, softmax.drive(TASK)
    for i in range(3):
        for j in range(3):
            U = np.zeros((3, 3))
            U[i, j] = h
            slope = target * (attended(x, y, U) - attended(x, y, -U)) / (2 * h)
            assert abs(slope.mean() - expected[i, j]) < 5 * slope.std() / np.sqrt(len(slope))


def test_drag_of_the_mean_readout_and_spread_of_the_forcing():
    """[`softmax-early`] [`softmax-forcing`] Second moments of mean(y) and of y_q mean(y)."""
    for task in (TASK, TASK.replace(task_spectrum=(2.0, 1.0, 0.5))):
        _, y, target = sequences(task, 200_000, seed=1)
        mean = y.mean(1)
        drag = mean**2
        assert abs(drag.mean() - softmax.mean_readout(task)) < 5 * drag.std() / np.sqrt(len(drag))
        force = (target * mean) ** 2
        expected = 200 * softmax.forcing_scale(task, 200) ** 2
        assert abs(force.mean() - expected) < 5 * force.std() / np.sqrt(len(force))


@pytest.mark.parametrize("heads", [1, 4])
def test_growth_rates_are_the_largest_eigenvalues_of_the_linear_flow(heads):
    """[`softmax-growth`] The early equations as one matrix: H - 1 free modes and a dragged one."""
    G, r = softmax.drive(TASK), softmax.mean_readout(TASK)
    size = heads * 10
    matrix = np.zeros((size, size))
    for h in range(heads):
        matrix[h, :heads] -= r
        matrix[h, heads + 9 * h : heads + 9 * (h + 1)] = matrix[heads + 9 * h : heads + 9 * (h + 1), h] = G.ravel()
    rates = np.sort(np.linalg.eigvalsh(matrix))[::-1]
    free, uniform = softmax.growth_rates(TASK, heads)
    np.testing.assert_allclose(rates[:heads], [free] * (heads - 1) + [uniform], rtol=1e-10)
    assert 0 < uniform < free


def test_curvature_of_the_softmax_loss_at_zero_gives_the_growth_rates():
    """[`softmax-growth`] Second differences of the true softmax loss in all ten weights of two heads."""
    task = Task(dim=2, context=6)
    x = sequences(task, 20_000, seed=3)[0].repeat(2, axis=0)
    w = np.tile(np.sqrt(2) * np.eye(2), (20_000, 1))  # the loss is quadratic in w, so these two average it exactly
    y = np.einsum("pnd,pd->pn", x, w)
    target = y[:, -1].copy()
    y[:, -1] = 0

    def loss(w):
        heads = sum(w[h] * attended(x, y, w[2 + 4 * h : 6 + 4 * h].reshape(2, 2)) for h in range(2))
        return np.mean((target - heads) ** 2)

    h, pairs = 0.05, np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    rows = np.eye(10)
    curvature = np.array(
        [[sum(a * b * loss(h * (a * e + b * f)) for a, b in pairs) / (4 * h * h) for f in rows] for e in rows[:2]]
    )
    # Two of the ten rows are enough: at zero the loss has no curvature within U.
    matrix = np.zeros((10, 10))
    matrix[:2], matrix[:, :2] = -curvature / 2, -curvature.T / 2
    rates = np.sort(np.linalg.eigvalsh(matrix))[::-1][:2]
    np.testing.assert_allclose(rates, softmax.growth_rates(task, 2), rtol=0.03)


def test_long_contexts_turn_softmax_into_linear_attention_for_any_matrix():
    """[`softmax-infinite`] 2 million tokens, a large U: what is attended is Lambda U x_q within its error."""
    rng = np.random.default_rng(5)
    cov = covariances(Task(dim=3))
    x = rng.standard_normal((2_000_000, 3)) @ np.linalg.cholesky(cov.token).T
    U, query = 2.0 * rng.standard_normal((3, 3)), np.array([0.5, -0.4, 0.3])
    logits = x @ U @ query
    assert 0.1 < logits.var() < 2
    weights = np.exp(logits)
    weights /= weights.sum()
    got, expected = weights @ x, cov.token @ U @ query
    error = np.sqrt((weights[:, None] ** 2 * (x - got) ** 2).sum(0))
    assert (np.abs(got - expected) < 5 * error).all()
    L = softmax.infinite_context(Task(dim=3))
    np.testing.assert_allclose(L.cross, cov.token @ cov.token)
    np.testing.assert_allclose(L.context, L.cross)
    assert L.loss(np.linalg.inv(cov.token)) == pytest.approx(0, abs=1e-12)


def test_shared_tasks_and_prefixes_are_refused():
    for task, word in ((Task(icl_fraction=0.5), "icl_fraction"), (Task(prefix_loss=True), "prefix_loss")):
        with pytest.raises(BadInput, match=word):
            softmax.drive(task)
    with pytest.raises(BadInput, match="heads"):
        softmax.growth_rates(TASK, 0)
    with pytest.raises(BadInput, match="samples"):
        softmax.forcing_scale(TASK, 0)
