"""Weights built by hand are named for what they were built to do."""

from collections import Counter

import numpy as np
import pytest

import hand_built
import iclflow as icl
from iclflow.data.spectrum import covariances
from iclflow.probing.candidates import Entry, Sets, ridge_tie
from iclflow.probing.naming import THRESHOLD, name
from iclflow.theory.algorithm import one_step_descent, plateau_matrix
from iclflow.theory.landscape import directions, landscape

TASK = icl.Task(dim=4, context=31)
ALGORITHMS = ("zero", "pcr", "least_squares", "ridge", "gd", "in_weight", "none")


def random_task(rng):
    """Eigenvalues each at least 1.2 times the next, any basis."""
    dim, context = int(rng.integers(2, 8)), int(rng.choice([8, 16, 31, 64]))
    eigenvalues = np.cumprod(rng.uniform(1.2, 1.8, dim))[::-1]
    return icl.Task(
        dim=dim, context=context, spectrum=tuple(eigenvalues / eigenvalues.sum()), task_seed=int(rng.integers(99))
    )


def random_matrix(task, what, rng):
    """The matrix, and what it should be called; penalties stay a factor of three away from the tie."""
    cov, d = covariances(task), directions(task)
    if what == "ridge":
        penalty = ridge_tie(cov.eigenvalues.sum(), task.context)[0] * rng.uniform(3, 6)
        return (cov.basis / (cov.eigenvalues + penalty)) @ cov.basis.T, "ridge", None
    if what == "gd":
        return one_step_descent(task).step * rng.uniform(0.7, 1.2) * np.eye(task.dim), "gd", None
    learned = rng.random(task.dim) < 0.5
    called = {0: "zero", task.dim: "least_squares"}.get(int(learned.sum()), "pcr")
    return d.matrix(d.strength * learned), called, tuple(np.flatnonzero(learned) + 1)


def test_a_hundred_matrices_built_by_hand_are_named_rightly(capsys):
    """[`naming`] Population ridge, one gradient step, random sets of components; prints the confusion matrix."""
    rng, seen = np.random.default_rng(6), Counter()
    for number in range(100):
        task, what = random_task(rng), ("ridge", "gd", "set")[number % 3]
        A, called, components = random_matrix(task, what, rng)
        weights = (hand_built.separate, hand_built.merged)[number % 2](A)
        found = icl.probe(weights, task, shifts=False)
        seen[called, found.algorithm] += 1
        if components is not None:
            assert found.components == components, (number, found.last)
    rows = sorted({called for called, _ in seen}, key=ALGORITHMS.index)
    with capsys.disabled():
        print("\nbuilt as \\ named " + "".join(f"{column:>14s}" for column in ALGORITHMS))
        for row in rows:
            print(f"{row:16s} " + "".join(f"{seen[row, column]:14d}" for column in ALGORITHMS))
    assert sum(seen[row, row] for row in rows) == 100


@pytest.mark.parametrize("seed", range(8))
def test_random_weights_are_none_of_these(seed):
    rng = np.random.default_rng(seed)
    weights = {name: rng.standard_normal((3, 5, 5)) for name in ("value", "key_query")}
    if seed % 2:  # without vector blocks the distances are exact
        weights["value"][:, -1, :-1] = 0
        weights["key_query"][:, -1] = 0
    found = icl.probe(weights, TASK, shifts=False)
    assert (found.algorithm, found.exact) == ("none", bool(seed % 2))
    assert found.last.distance > THRESHOLD


VARIANTS = {
    "no scale": {"normalize": "none"},
    "tokens": {"normalize": "tokens", "context": 8},
    "prefixes": {"prefix_loss": True},
    "two labels": {"out_dim": 2},
    "noise": {"label_noise": 0.5},
    "task covariance": {"task_spectrum": (1.0, 3.0, 1.5, 1.0)},
    "tilted": {"task_spectrum": np.eye(4) + 0.3},
    "shorter than wide": {"context": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_sets_are_named_in_every_variant_of_the_task_by_both_roads(variant):
    """Exactly from the population, and on the sample, where a speck in a vector block forces it."""
    task = TASK.replace(**VARIANTS[variant])
    d = directions(task)
    A = d.matrix(d.strength * np.array([1.0, 0.0, 1.0, 0.0]))
    weights = hand_built.separate(A / task.context if task.normalize == "none" else A, task.out_dim)
    for exact in (True, False):
        weights["value"][0, -1, 0] = 0.0 if exact else 1e-9
        found = icl.probe(weights, task, shifts=False)
        assert (found.exact, found.algorithm, found.components) == (exact, "pcr", (1, 3))
        assert found.last.distance < 1e-9
        np.testing.assert_allclose(found.gains.gain[-1], [1, 0, 1, 0], atol=1e-7)
        assert found.fixed_points.nearest == (1, 3)
        assert found.fixed_points.conditions["hold"]


def test_the_minimum_is_ridge_up_to_a_factor():
    """[`ridge-tie`] And nothing but that factor is between them."""
    penalty, factor = ridge_tie(1.0, TASK.context)
    cov = covariances(TASK)
    ridge = (cov.basis / (cov.eigenvalues + penalty)) @ cov.basis.T
    np.testing.assert_allclose(plateau_matrix(TASK, 4), factor * ridge, rtol=1e-12)
    found = icl.probe(hand_built.mlp(plateau_matrix(TASK, 4)), TASK, shifts=False)
    assert found.last.ties == ("least squares shrunk", "ridge")
    scene = landscape(TASK)
    apart = (1 - factor) ** 2 * np.sum(ridge * (scene.context @ ridge @ scene.query)) / scene.base
    assert 0.1 * apart < found.distances["ridge"] < apart  # another penalty makes up for part of the factor
    assert found.entries["ridge"].parameter[-1] == pytest.approx(penalty, rel=0.5)


def test_with_white_tokens_the_minimum_is_one_step_of_descent_and_says_so():
    task = icl.Task(spectrum="white")
    found = icl.probe(hand_built.separate(plateau_matrix(task, 4)), task, shifts=False)
    assert found.algorithm == "least_squares"
    assert set(found.last.tied_algorithms) == {"least_squares", "gd", "ridge"}
    assert found.fixed_points.index is None
    assert "continua" in found.fixed_points.note


@pytest.mark.parametrize(("distance", "algorithm"), [(0.0199, "pcr"), (0.0201, "none")])
def test_the_threshold_is_two_per_cent(distance, algorithm):
    sets = Sets(np.array([[True, False]]), np.array([[True, False]]), np.arange(2))
    far = {key: Entry("gd", 5, np.array([0.5])) for key in ("gd 1 step", "ridge")}
    zero = {"zero": Entry("zero", 0, np.array([0.6]))}
    verdict = name({**zero, "pcr-1 shrunk": Entry("pcr", 1, np.array([distance])), **far}, sets, 0)
    assert (verdict.algorithm, verdict.label, verdict.runner_up) == (algorithm, "pcr-1 shrunk", "gd 1 step")
    assert verdict.margin == pytest.approx(0.5 - distance)
    assert verdict.components == (1,)


def test_a_fitted_number_has_to_earn_its_name():
    sets = Sets(np.ones((1, 2), bool), np.ones((1, 2), bool), np.arange(2))
    entry = lambda family, order, distance: Entry(family, order, np.array([distance]))
    found = {"zero": entry("zero", 0, 0.9), "least squares shrunk": entry("least_squares", 1, 0.004)}
    assert name({**found, "ridge": entry("ridge", 7, 0.002)}, sets, 0).algorithm == "least_squares"
    assert name({**found, "ridge": entry("ridge", 7, 0.0005)}, sets, 0).algorithm == "ridge"
    for power, step, algorithm in ((0.0019, 1e-9, "zero"), (0.01, 0.003, "zero"), (0.01, 1e-9, "gd")):
        small = {"zero": entry("zero", 0, power), "gd 1 step": entry("gd", 5, step)}
        assert name(small, sets, 0).algorithm == algorithm
