"""Gains, heads, fixed points and vector blocks of weights that are known."""

import numpy as np
import pytest

import hand_built
import iclflow as icl
from iclflow.data.spectrum import covariances
from iclflow.probing.gains import effective_rank
from iclflow.theory.algorithm import plateau_matrix, prediction_distance
from iclflow.theory.landscape import directions, landscape
from iclflow.theory.separate import escape_directions, hessian_spectrum

TASK = icl.Task(dim=4, context=31)


def test_the_effective_rank_counts_equal_gains():
    """[`effective-rank`]"""
    assert effective_rank(np.zeros((3, 3))) == 0
    for m in (1, 2, 3):
        assert effective_rank(np.diag([1.0] * m + [0.0] * (3 - m))) == pytest.approx(m)
    assert 1 < effective_rank(np.diag([1.0, 0.2, 0.0])) < 2


def test_all_fixed_points_are_measured_and_the_nearest_is_described():
    """[`component-distance`] 16 distances by the trace formula; index and rate of the saddle."""
    d, scene = directions(TASK), landscape(TASK)
    learned = np.array([False, True, False, True])
    A = d.matrix(d.strength * learned)
    fixed = icl.probe(hand_built.separate(1.05 * A), TASK, shifts=False).fixed_points
    assert (fixed.nearest, len(fixed.distances)) == ((2, 4), 16)
    for code in range(16):
        mask = (code >> np.arange(4)) % 2 == 1
        name = "{" + ",".join(str(i + 1) for i in np.flatnonzero(mask)) + "}"
        apart = prediction_distance(scene, 1.05 * A, d.matrix(d.strength * mask)) / scene.base
        assert fixed.distances[name] == pytest.approx(apart, abs=1e-12)
    assert fixed.index == escape_directions(d, learned) == 3
    assert fixed.fastest_escape == pytest.approx(hessian_spectrum(d, learned, 4).max())
    assert not fixed.conditions["hold"]
    assert fixed.conditions["C1"] == pytest.approx(0.05 * np.linalg.norm(A) / np.linalg.norm(d.strength), rel=1e-6)


def test_merged_attention_does_not_rest_at_part_of_the_components():
    fixed = icl.probe(hand_built.merged(plateau_matrix(TASK, 2)), TASK, shifts=False).fixed_points
    assert (fixed.nearest, fixed.of_this_model, fixed.index) == ((1, 2), False, None)
    assert icl.probe(hand_built.merged(0 * np.eye(4), heads=3), TASK, shifts=False).fixed_points.index == 3


def test_heads_show_what_they_carry_and_whether_they_are_balanced():
    """[`alignment`] A head for components 1 and 3 each, one mixed, one out of balance."""
    e, alpha = covariances(TASK).basis, directions(TASK).strength
    weights = {"value": np.zeros((4, 5, 5)), "key": np.zeros((4, 1, 5)), "query": np.zeros((4, 1, 5))}
    mixed = (e[:, 1] + e[:, 3]) / np.sqrt(2)
    for h, (vector, size) in enumerate(((e[:, 0], alpha[0]), (e[:, 2], alpha[2]), (mixed, 1.0))):
        weights["value"][h, 4, 4] = weights["key"][h, 0, :4] = weights["query"][h, 0, :4] = (
            np.cbrt(size) * np.append(vector, 1)[-1]
        )
        weights["key"][h, 0, :4] = weights["query"][h, 0, :4] = np.cbrt(size) * vector
    weights["value"][3, 4, 4] = 2.0
    found = icl.probe(weights, TASK, shifts=False).heads
    assert found.carrier == (0, None, 1, None)
    np.testing.assert_allclose(found.alignment[0], [1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.alignment[2], [0, 0.5, 0, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.share[:, 0], [1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.balance, [0, 0, 0, 4], atol=1e-12)
    assert found.imbalance == pytest.approx(1.0)


def test_blocks_that_theory_keeps_at_zero_are_measured():
    weights = hand_built.separate(plateau_matrix(TASK, 1))
    weights["key"][0, 0, 4] = 0.25 * np.linalg.norm(weights["key"])
    weights["value"][0, :4, :] = 7.0  # rows that reach no label do not count
    found = icl.probe(weights, TASK, shifts=False)
    assert found.vector_blocks["key"] == pytest.approx(0.25)
    assert found.vector_blocks["value"] == 0
    assert not found.exact
