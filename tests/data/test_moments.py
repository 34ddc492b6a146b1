"""Moments: sampled ones against explicit averages, exact ones against enumeration and Monte Carlo."""

import itertools

import numpy as np
import pytest

import iclflow as icl
import twin
from iclflow.data.features import features
from iclflow.data.moments import Moments
from iclflow.data.population import population_moments
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import Law, Sample, as_array
from iclflow.data.spectrum import covariances, in_weight_task
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models.initial import initial_weights
from iclflow.models.parts import take

VARIANTS = [
    {},
    {"spectrum": "white", "normalize": "tokens"},
    {"normalize": "none", "label_noise": 0.4},
    {"prefix_loss": True},
    {"prefix_loss": True, "normalize": "tokens", "label_noise": 0.3, "query_noise": True},
    {"task_spectrum": [3.0, 1.0, 0.4]},
    {"task_spectrum": [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.7]]},
    {"out_dim": 2, "label_noise": 0.2, "query_noise": True},
    {"icl_fraction": 0.4},
    {"icl_fraction": 0.0},
    {"icl_fraction": 0.7, "out_dim": 2, "task_spectrum": [1.5, 1.0, 0.5], "label_noise": 0.1},
    {"icl_fraction": 0.5, "prefix_loss": True},
]


def weights_for(model, task, scale=0.6, seed=0):
    return initial_weights(model, task, "random", scale, seed, covariances(task))


def per_sequence_products(data, task, theta, normalize):
    """Every sequence's squared error, straight from the definition of the features."""
    dim, errors = task.dim, []
    lengths = range(1, task.context + 1) if task.prefix_loss else [task.context]
    for n in lengths:
        psi = twin.scale(normalize, n) * features(data[:, :n], data[:, n, :dim], "all")
        errors.append(np.mean((data[:, n, dim:] - psi @ theta.T) ** 2, axis=1))
    return np.mean(errors, axis=0)


@pytest.mark.parametrize("options", VARIANTS)
def test_population_loss_lies_within_five_standard_errors_of_monte_carlo(options):
    """For random weights in every block, so that every entry of C and b takes part."""
    task = icl.Task(dim=3, context=6, task_seed=4, **options)
    normalize = task.normalize or "context"
    moments = population_moments(task, normalize, "all")
    model = icl.Merged(heads=3)
    part = take(model, weights_for(model, task), task, "all")
    theta = np.asarray(moments.fold(model.theta(part)))
    data = as_array(Sample(Law.of(task), 60_000, (9,), whiten=False))
    errors = per_sequence_products(data, task, theta, normalize)
    exact = float(MomentLoss(moments, (), None, model).loss(part))
    assert abs(errors.mean() - exact) < 5 * errors.std() / np.sqrt(len(errors))


@pytest.mark.parametrize("options", VARIANTS)
def test_every_population_entry_lies_within_six_standard_errors(options):
    task = icl.Task(dim=2, context=4, task_seed=1, **{k: v for k, v in options.items() if k != "task_spectrum"})
    exact = population_moments(task, "context", "all")
    data = as_array(Sample(Law.of(task), 40_000, (2,), whiten=False))
    if task.prefix_loss:
        pytest.skip("the loss test covers prefixes; their entries are averages of correlated ones")
    psi = features(data[:, :-1], data[:, -1, :2], "all") / task.context
    left_error = np.sqrt(np.maximum((psi**2).T @ psi**2 / len(psi) - exact.left**2, 1e-12) / len(psi))
    assert (np.abs(psi.T @ psi / len(psi) - exact.left) < 6 * left_error).all()
    y = data[:, -1, 2:]
    cross_error = np.sqrt(np.maximum((y**2).T @ psi**2 / len(psi) - exact.cross**2, 1e-12) / len(psi))
    assert (np.abs(y.T @ psi / len(psi) - exact.cross) < 6 * cross_error).all()


def gauss_hermite(count):
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


@pytest.mark.parametrize("options", [{}, {"label_noise": 0.3}, {"task_spectrum": [[2.0, 0.6], [0.6, 0.5]]}])
def test_population_moments_equal_exact_enumeration(options):
    """Tokens, query, task and noise enumerated on Gauss-Hermite grids that are exact for these polynomials."""
    task = icl.Task(dim=2, context=1, task_seed=2, **options)
    cov = covariances(task)
    root = lambda m: np.linalg.cholesky(m)
    x_nodes, x_weights = gauss_hermite(4)
    w_nodes, w_weights = gauss_hermite(3)
    noise_nodes, noise_weights = gauss_hermite(3) if task.label_noise else (np.zeros(1), np.ones(1))
    left, cross = 0, 0
    for ix in itertools.product(range(4), repeat=4):
        for iw in itertools.product(range(3), repeat=2):
            for k in range(len(noise_nodes)):
                weight = np.prod(x_weights[list(ix)]) * np.prod(w_weights[list(iw)]) * noise_weights[k]
                x = root(cov.token) @ x_nodes[list(ix[:2])]
                query = root(cov.token) @ x_nodes[list(ix[2:])]
                w = root(cov.task) @ w_nodes[list(iw)]
                label = w @ x + np.sqrt(task.label_noise) * noise_nodes[k]
                context = np.array([[[*x, label]]])
                psi = features(context, query[None], "all")[0]
                left = left + weight * np.outer(psi, psi)
                cross = cross + weight * (w @ query) * psi
    exact = population_moments(task, "context", "all")
    np.testing.assert_allclose(exact.left, left, atol=1e-12 * np.abs(left).max())
    np.testing.assert_allclose(exact.cross[0], cross, atol=1e-12 * np.abs(left).max())


@pytest.mark.parametrize("options", [v for v in VARIANTS if "icl_fraction" not in v])
def test_the_two_factors_of_label_moments_multiply_to_the_dense_matrix(options):
    task = icl.Task(dim=3, context=6, **options)
    factored = population_moments(task, "tokens", "label")
    dense = population_moments(task, "tokens", "all").label_part()
    np.testing.assert_allclose(np.kron(factored.left, factored.right), dense.left, atol=1e-14)
    np.testing.assert_allclose(factored.cross.reshape(dense.cross.shape), dense.cross, atol=1e-14)
    assert factored.power == pytest.approx(float(dense.power))


def test_sampled_moments_give_the_slow_twins_loss():
    for options in ({}, {"out_dim": 2}, {"prefix_loss": True}):
        task = icl.Task(dim=2, context=4, **options)
        sample = Sample(Law.of(task), 6, (0,))
        model = icl.Separate(heads=2, rank=2)
        weights = weights_for(model, task)
        moments = sampled_moments(sample, "tokens", task.prefix_loss, "all")
        value = float(MomentLoss(moments, (), None, model).loss(take(model, weights, icl.Task(dim=2), "all")))
        slow = twin.loss(weights, as_array(sample), 2, "tokens", prefix_loss=task.prefix_loss)
        assert value == pytest.approx(slow, rel=1e-12)


def test_sampled_moments_approach_the_population_at_the_root_of_the_sample_size():
    task = icl.Task(dim=2, context=5)
    exact = population_moments(task, "context", "all")
    sizes = np.array([250, 1000, 4000, 16000])
    errors = []
    for size in sizes:
        gaps = [
            np.linalg.norm(
                sampled_moments(Sample(Law.of(task), int(size), (s,)), "context", False, "all").left - exact.left
            )
            for s in range(12)
        ]
        errors.append(np.mean(gaps))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4


def test_folding_and_unfolding_are_transposes():
    rng = np.random.default_rng(0)
    for blocks, shape in (("all", (2, 5, 5, 3)), ("label", (2, 2, 3, 3))):
        count = 45 if blocks == "all" else 18
        moments = Moments(np.eye(count), None, rng.standard_normal((2, count)), np.ones(()), dim=3, blocks=blocks)
        theta, slope = rng.standard_normal(shape), rng.standard_normal((2, count))
        folded = np.sum(moments.fold(theta) * slope)
        assert folded == pytest.approx(np.sum(theta * moments.unfold(slope)))


def test_what_is_too_large_for_exact_all_block_moments_is_refused():
    with pytest.raises(icl.BadInput, match="dim: 32 gives"):
        population_moments(icl.Task(dim=32), "context", "all")


def test_what_would_not_fit_in_memory_is_refused_before_it_is_allocated():
    sample = Sample(Law.of(icl.Task(dim=300)), 400, (0,))
    with pytest.raises(icl.NoRoom, match=r"memory: moments of .* features"):
        sampled_moments(sample, "context", False, "all")


def test_the_in_weight_test_law_is_the_population_of_random_labels():
    task = icl.Task(dim=2, context=3, icl_fraction=0.5)
    power = float(population_moments(task, "context", "all", 0.0).power)
    w = in_weight_task(task)[0]
    assert power == pytest.approx(w @ covariances(task).token @ w)
