"""Drop times over many initial weights: the same numbers as one by one, and their law under a change of scale."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.comparison.distribution import drawn
from iclflow.theory.distribution import State, advanced, blow_up_times, drop_times
from iclflow.theory.early_phase import early_phase
from iclflow.theory.staircase import staircase

DRIVE = np.array([0.16, 0.09, 0.04, 0.01])


def random_heads(count, seed=0):
    rng = np.random.default_rng(seed)
    return State(rng.standard_normal(count), rng.standard_normal((count, 4)), rng.standard_normal((count, 4)))


@pytest.fixture(scope="module")
def paths():
    heads = random_heads(60)
    return heads, [early_phase(v, k[None], q[None], DRIVE) for v, k, q in zip(*heads, strict=True)]


def test_blow_up_times_of_many_heads_are_those_of_each(paths):
    heads, each = paths
    times, signs = blow_up_times(*heads, np.tile(DRIVE, (60, 1)))
    np.testing.assert_allclose(times, [path.time for path in each], rtol=1e-7)
    assert signs.tolist() == [path.sign for path in each]
    assert any(path.turns for path in each)
    assert not all(path.turns for path in each)


def test_heads_that_never_grow_have_no_blow_up():
    v, k = np.array([1.0, 0.5]), np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    times, _ = blow_up_times(v, k, -k, np.tile(DRIVE, (2, 1)))
    assert np.isinf(times[1])


def test_waiting_heads_move_as_in_the_constant_force(paths):
    heads, each = paths
    wait = 0.9 * np.array([path.time for path in each])
    times = blow_up_times(*heads, np.tile(DRIVE, (60, 1)))[0]
    moved = advanced(heads, np.tile(DRIVE, (60, 1)), times, wait)
    for n, path in enumerate(each):
        v, k, q = path.weights(float(wait[n]))
        np.testing.assert_allclose(moved.v[n], v, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(np.stack([moved.k[n], moved.q[n]]), np.concatenate([k, q]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("task", [icl.Task(), icl.Task(tasks=3, mirror_tasks=True)], ids=["own", "few"])
def test_all_draws_at_once_are_the_staircases_of_each(task):
    heads = drawn(task, icl.Separate(heads=5), 1e-3, "entry", range(6))
    K, Q = heads.keys_and_queries
    together = drop_times(task, heads.value, K, Q)
    for n in np.flatnonzero(together.in_order):
        alone = staircase(task, heads.value[n], K[n], Q[n])
        np.testing.assert_allclose(together.times[n], alone.drop_times, rtol=1e-3)
        assert together.heads[n].tolist() == alone.heads.tolist()


def test_the_distribution_is_labelled_and_belongs_to_the_seeds_of_training():
    task, model = icl.Task(dim=3), icl.Separate(heads=4)
    times = icl.theory.drop_time_distribution(task, model, init=1e-3, seeds=5, seed=7)
    assert times.dims == ("seed", "drop_number")
    assert times["seed"].values.tolist() == [7, 8, 9, 10, 11]
    assert times["drop_number"].values.tolist() == [1, 2, 3]
    predicted = icl.predict(task, model, init=1e-3, seed=9).drop_times
    np.testing.assert_allclose(times.sel(seed=9), predicted, rtol=2e-2)


def test_drop_times_are_inverse_to_the_scale_of_the_weights_and_more_heads_are_faster():
    task = icl.Task(dim=2)
    spread = lambda heads, init: icl.theory.drop_time_distribution(
        task, icl.Separate(heads=heads), init=init, seeds=200
    )
    small, smaller = spread(3, 1e-3).sel(drop_number=1), spread(3, 1e-4).sel(drop_number=1)
    np.testing.assert_allclose(smaller / small, 10, rtol=2e-3)
    assert spread(12, 1e-3).sel(drop_number=1).median() < 0.8 * small.median()


def test_merged_attention_has_one_drop_a_draw():
    task, model = icl.Task(), icl.Merged(heads=8)
    times = icl.theory.drop_time_distribution(task, model, init=1e-3, seeds=20)
    assert times.shape == (20, 1)
    predicted = icl.predict(task, model, init=1e-3, seed=4).drop_times
    np.testing.assert_allclose(times.sel(seed=4), predicted, rtol=1e-6)


@pytest.mark.parametrize("options", [{"rank": 2}, {}])
def test_ranks_and_ties_are_predicted_one_by_one(options):
    task = icl.Task(dim=2, spectrum="linear" if options else "white")
    times = icl.theory.drop_time_distribution(task, icl.Separate(heads=2, **options), init=1e-3, seeds=2)
    predicted = icl.predict(task, icl.Separate(heads=2, **options), init=1e-3).drop_times
    np.testing.assert_allclose(times.sel(seed=0), predicted, rtol=2e-2)


def test_what_has_no_distribution_is_refused():
    with pytest.raises(icl.BadInput, match="init_law: 'random' must leave"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(), init_law="random")
    with pytest.raises(icl.BadInput, match="seeds: 0 must be"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(), seeds=0)
    with pytest.raises(icl.BadInput, match="has no theory of its drop times"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(softmax=True))
