"""K fixed task vectors: what is drawn, and exact population moments against enumeration, samples and a slow twin."""

import itertools

import numpy as np
import pytest

import iclflow as icl
import twin
from iclflow.data.grams import balanced_grams, fresh_grams
from iclflow.data.population import population_moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import Law, Sample, as_array, fresh
from iclflow.data.spectrum import covariances, task_vectors
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models.initial import initial_weights
from iclflow.models.parts import take

FEW = icl.Task(dim=2, context=4, tasks=3, label_noise=0.2, task_seed=5)


def slopes(sequences, dim):
    """The task vector of every sequence without noise, by least squares over all its tokens."""
    return np.array([np.linalg.lstsq(s[:, :dim], s[:, dim:], rcond=None)[0].T for s in sequences])


def test_every_sequence_has_one_of_the_k_tasks_and_every_task_occurs():
    task = icl.Task(dim=3, out_dim=2, context=6, tasks=4)
    for sequences in (icl.sample(task, 60), fresh(Law.of(task), (1,), 0, 60)):
        gaps = np.abs(slopes(sequences, 3)[:, None] - task_vectors(task)).max(axis=(2, 3))
        assert gaps.min(axis=1).max() < 1e-9
        assert set(gaps.argmin(axis=1)) == {0, 1, 2, 3}


def test_tasks_are_drawn_by_the_task_seed_and_more_of_them_keep_the_first():
    task = icl.Task(tasks=5, task_spectrum=(4.0, 1.0, 1.0, 0.5), basis="identity")
    first = task_vectors(task)
    np.testing.assert_array_equal(task_vectors(task.replace(tasks=9))[:5], first)
    assert not np.allclose(task_vectors(task.replace(task_seed=1)), first)
    mirrored = task_vectors(task.replace(mirror_tasks=True))
    np.testing.assert_array_equal(mirrored, np.concatenate([first, -first]))
    many = task_vectors(task.replace(tasks=100_000))[:, 0]
    np.testing.assert_allclose(np.cov(many.T), np.diag([4.0, 1.0, 1.0, 0.5]), atol=0.06)
    second = np.einsum("kod,koe->de", first, first) / 5
    np.testing.assert_allclose(covariances(task).task, second, atol=1e-12)
    np.testing.assert_allclose(covariances(task.replace(mirror_tasks=True)).task, second, atol=1e-12)


def enumerated(task):
    """Features by explicit loops, tokens, query and noise on Gauss-Hermite grids, tasks one by one; one example."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    weights = weights / weights.sum()
    root = np.linalg.cholesky(covariances(task).token)
    left, cross, tasks = 0.0, 0.0, task_vectors(task)[:, 0]
    for w in tasks:
        for *ix, e in itertools.product(range(4), repeat=5):
            weight = np.prod(weights[ix]) * weights[e] / len(tasks)
            x, query = root @ nodes[ix[:2]], root @ nodes[ix[2:]]
            token = np.array([*x, w @ x + np.sqrt(task.label_noise) * nodes[e]])
            second = np.outer(token, token)
            second[:2, :2] += np.outer(query, query)
            psi = np.array([second[a, b] * query[c] for a in range(3) for b in range(a, 3) for c in range(2)])
            left, cross = left + weight * np.outer(psi, psi), cross + weight * (w @ query) * psi
    return left, cross


@pytest.mark.parametrize("mirror", [False, True])
def test_all_block_moments_of_k_tasks_equal_exact_enumeration(mirror):
    task = FEW.replace(context=1, tasks=2, mirror_tasks=mirror)
    left, cross = enumerated(task)
    exact = population_moments(task, "context", "all")
    np.testing.assert_allclose(exact.left, left, atol=1e-12 * np.abs(left).max())
    np.testing.assert_allclose(exact.cross[0], cross, atol=1e-12 * np.abs(left).max())


def test_every_population_entry_of_k_tasks_lies_within_five_standard_errors_of_a_sample():
    """204 entries, a sample of 40,000: one in 200 such tests would fail by chance, so the seed is fixed."""
    from iclflow.data.features import features

    exact = population_moments(FEW, "context", "all")
    data = as_array(Sample(Law.of(FEW), 40_000, (3,)))
    psi, y = features(data[:, :-1], data[:, -1, :2], "all") / FEW.context, data[:, -1, 2:]
    for seen, squares, expected in (
        (psi.T @ psi, (psi**2).T @ psi**2, exact.left),
        (y.T @ psi, (y**2).T @ psi**2, exact.cross),
    ):
        error = np.sqrt((squares / len(psi) - expected**2) / len(psi))
        assert (np.abs(seen / len(psi) - expected) < 5 * error).all()


@pytest.mark.parametrize("options", [{}, {"out_dim": 2}, {"mirror_tasks": True, "label_noise": 0.3}])
def test_label_moments_of_k_tasks_are_part_of_those_of_all_blocks(options):
    task = icl.Task(dim=3, context=6, tasks=2, **options)
    factored = population_moments(task, "tokens", "label")
    dense = population_moments(task, "tokens", "all").label_part()
    np.testing.assert_allclose(np.kron(factored.left, factored.right), dense.left, atol=1e-14)
    np.testing.assert_allclose(factored.cross.reshape(dense.cross.shape), dense.cross, atol=1e-14)
    assert factored.power == pytest.approx(float(dense.power))


def test_many_tasks_approach_a_task_of_its_own_for_every_sequence():
    task = icl.Task(dim=2, context=3, tasks=200_000)
    many, own = (population_moments(t, "context", "all") for t in (task, task.new_tasks))
    assert np.abs(many.left - own.left).max() < 0.02 * np.abs(own.left).max()


def test_sampled_moments_of_k_tasks_give_the_slow_twins_loss():
    sample, model = Sample(Law.of(FEW), 6, (0,)), icl.Separate(heads=2)
    weights = initial_weights(model, FEW, "random", 0.7, 1, covariances(FEW))
    moments = sampled_moments(sample, "context", False, "all")
    value = float(MomentLoss(moments, (), None, model).loss(take(model, weights, FEW, "all")))
    assert value == pytest.approx(twin.loss(weights, as_array(sample), 2, "context"), rel=1e-12)


def test_drawn_gram_matrices_have_labels_of_the_k_tasks():
    law = Law.of(icl.Task(dim=2, context=5, tasks=3))
    for grams in (balanced_grams(law, 24, (1,)), fresh_grams(law, (1,), 0, 24)):
        w = np.linalg.solve(grams[:, :2, :2], grams[:, :2, 2:3])[:, :, 0]
        gaps = np.abs(w[:, None] - law.task_set[:, 0]).max(axis=2)
        assert gaps.min(axis=1).max() < 1e-9
        assert set(gaps.argmin(axis=1)) == {0, 1, 2}


def test_task_sets_that_do_not_fit_in_memory_are_refused_before_they_are_drawn():
    with pytest.raises(icl.NoRoom, match="task vectors"):
        task_vectors(icl.Task(tasks=10**13))
    with pytest.raises(icl.BadInput, match="mirror_tasks or freeze_vectors"):
        population_moments(icl.Task(dim=32, tasks=2), "context", "all")
