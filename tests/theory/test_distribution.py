"""Drop times over many initial weights: the same numbers as one by one, and their law under a change of scale."""

import numpy as np
import pytest

import iclflow as icl


def test_the_distribution_is_labelled_and_belongs_to_the_seeds_of_training():
    task, model = icl.Task(dim=3), icl.Separate(heads=4)
    times = icl.theory.drop_time_distribution(task, model, init=1e-3, seeds=5, seed=7)
    assert times.dims == ("seed", "drop_number")
    assert times["seed"].values.tolist() == [7, 8, 9, 10, 11]
    assert times["drop_number"].values.tolist() == [1, 2, 3]
    predicted = icl.predict(task, model, init=1e-3, seed=9).drop_times
    np.testing.assert_allclose(times.sel(seed=9), predicted, rtol=1e-4)


def test_drop_times_are_inverse_to_the_scale_of_the_weights_and_more_heads_are_faster():
    task = icl.Task(dim=2)
    spread = lambda heads, init: icl.theory.drop_time_distribution(task, icl.Separate(heads=heads), init=init, seeds=60)
    small, smaller = spread(3, 1e-3).sel(drop_number=1), spread(3, 1e-4).sel(drop_number=1)
    np.testing.assert_allclose(smaller / small, 10, rtol=2e-3)
    assert spread(12, 1e-3).sel(drop_number=1).median() < 0.8 * small.median()


def test_merged_attention_has_one_drop_a_draw():
    task, model = icl.Task(), icl.Merged(heads=8)
    times = icl.theory.drop_time_distribution(task, model, init=1e-3, seeds=20)
    assert times.shape == (20, 1)
    predicted = icl.predict(task, model, init=1e-3, seed=4).drop_times
    np.testing.assert_allclose(times.sel(seed=4), predicted, rtol=1e-4)


@pytest.mark.parametrize("options", [{"rank": 2}, {}])
def test_ranks_ties_and_near_ties_are_those_of_predict(options):
    task = icl.Task(dim=2, spectrum="linear" if options else "white")
    near = icl.Task(dim=3, spectrum="1,.98,.3")
    tied = icl.theory.drop_time_distribution(near, icl.Separate(heads=4), init=1e-3, seeds=2)
    one = icl.predict(near, icl.Separate(heads=4), init=1e-3, seed=1)
    np.testing.assert_allclose(tied.sel(seed=1), one.drop_times, rtol=1e-4)
    times = icl.theory.drop_time_distribution(task, icl.Separate(heads=2, **options), init=1e-3, seeds=2)
    predicted = icl.predict(task, icl.Separate(heads=2, **options), init=1e-3).drop_times
    np.testing.assert_allclose(times.sel(seed=0), predicted, rtol=1e-4)


def test_what_has_no_distribution_is_refused():
    with pytest.raises(icl.BadInput, match="init_law: 'random' must leave"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(), init_law="random")
    with pytest.raises(icl.BadInput, match="seeds: 0 must be"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(), seeds=0)
    with pytest.raises(icl.BadInput, match="has no theory of its drop times"):
        icl.theory.drop_time_distribution(icl.Task(), icl.Separate(softmax=True))
