"""Theory over a run: drops are timed, plateaus found, gaps measured, and a wrong theory is seen."""

from dataclasses import replace

import numpy as np
import pytest

import iclflow as icl
from iclflow.comparison.comparing import Drop, crossing, gaps
from iclflow.comparison.gains import gains
from iclflow.prediction.regimes.staircase import Staircase


@pytest.fixture(scope="module")
def run():
    return icl.train(icl.Task(), icl.Separate(heads=5), init=1e-3, init_law="public", seed=3)


def test_the_staircase_is_predicted_from_the_initial_weights(run):
    found = icl.compare(run)
    assert [d.predicted_head for d in found.drops] == [d.observed_head for d in found.drops]
    assert [d.direction for d in found.drops] == [d.observed_direction for d in found.drops] == [0, 1, 2, 3]
    assert max(d.error for d in found.drops) < 2e-3
    assert found.mean_gap < 5e-4
    np.testing.assert_allclose(
        [p.observed_level for p in found.plateaus], icl.theory.plateau_losses(run.task), atol=2e-3
    )
    for plateau, expected in zip(found.plateaus[:-1], np.diff(found.prediction.drop_times, prepend=0), strict=True):
        assert plateau.length == pytest.approx(expected, rel=0.02)


def test_a_prediction_for_another_context_length_is_seen_to_be_wrong(run):
    wrong = icl.predict(icl.Task(context=8), run.model, weights=run.initial_weights)
    right = icl.predict(run.task, run.model, weights=run.initial_weights)
    time = run.time.values
    gap = lambda p: np.abs(run.loss.values - p.loss(time)).max()
    assert gap(wrong) > 0.1 > gap(right)


def test_value_weights_follow_the_prediction(run):
    prediction = icl.predict(run.task, run.model, weights=run.initial_weights)
    times = run.weights["time"].values
    observed = run.weights["value"].values[:, :, -1, -1]
    expected = prediction.values(times)
    calm = np.abs(times[:, None] / prediction.drop_times - 1).min(axis=1) > 0.01
    assert np.abs(observed - expected)[calm].max() < 0.02


@pytest.mark.parametrize("model", [icl.Merged(heads=8), icl.MLP(heads=8)])
def test_the_one_drop_of_merged_attention_is_predicted(model):
    found = icl.compare(icl.train(icl.Task(), model, init=1e-3))
    assert found.largest_gap < 5e-4
    assert found.drops[0].error < 1e-3


def test_a_sample_is_judged_by_its_own_moments(quiet):
    settings = {"samples": 2000, "lr": 0.01, "steps": 20_000, "init": 1e-3, "freeze_vectors": True}
    sampled = icl.train(icl.Task(), icl.Merged(heads=4), **settings)
    own, population = icl.compare(sampled), icl.compare(sampled, source="population")
    assert (own.source, population.source) == ("sample", "population")
    assert own.largest_gap < 0.5 * population.largest_gap


def test_shared_tasks_have_their_own_theory():
    task = icl.Task(icl_fraction=0.4, spectrum="white")
    found = icl.compare(icl.train(task, icl.Merged(heads=8), init=1e-4, time=200.0))
    assert found.largest_gap < 1e-3


def test_many_seeds_give_a_list_and_a_table(quiet):
    found = icl.compare(icl.train(icl.Task(), icl.Merged(heads=8), init=1e-3, seeds=2))
    assert [c.seed for c in found] == [0, 1]
    assert "predicted t/tau" in str(found[0])
    assert set(found[0].to_dict()) >= {"largest_gap", "mean_gap", "drops", "plateaus"}


def test_drops_not_reached_are_left_open():
    short = icl.train(icl.Task(), icl.Separate(heads=5), init=1e-2, time=10.0)
    assert all(d.observed_time is None and d.error is None for d in icl.compare(short).drops)


def test_softmax_has_no_predicted_curve():
    with pytest.raises(icl.BadInput, match="merged, softmax has no theory of its loss curve"):
        icl.predict(icl.Task(), icl.Merged(softmax=True))


def test_crossing_interpolates():
    assert crossing(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.8, 0.2]), 0.5) == pytest.approx(1.5)
    assert crossing(np.array([0.0, 1.0]), np.array([1.0, 0.9]), 0.5) is None


def test_a_run_that_starts_below_a_drop_has_no_error_for_it():
    drop = Drop(5.0, 0.0, 0, -1, None, -1, None)
    assert drop.error is None
    assert replace(drop, observed_time=4.0).error == 0.25


def test_every_direction_is_observed_once_at_weights_that_are_not_small():
    """At 3e-2 an entry one direction was once seen twice and another never."""
    found = icl.compare(icl.train(icl.Task(), icl.Separate(heads=5), init=3e-2, seed=0))
    assert sorted(drop.observed_direction for drop in found.drops) == [0, 1, 2, 3]


def test_directions_are_observed_only_where_weights_were_recorded_on_both_sides():
    """A run with two snapshots named the first direction at its third drop."""
    run = icl.train(icl.Task(), icl.Separate(heads=5), init=1e-2, seed=0)
    found = icl.compare(run.first_and_last())
    assert [drop.observed_direction for drop in found.drops] == [None] * 4
    assert [drop.observed_head for drop in found.drops] == [drop.predicted_head for drop in found.drops]


def test_momentum_whose_steps_lag_far_behind_the_flow_is_forecast_by_its_steps():
    """Drops come a hundredth later than those of the flow."""
    rule, model = {"init": 2e-2, "optimizer": "momentum", "lr": 0.05}, icl.Separate(heads=5)
    found = icl.compare(icl.train(icl.Task(), model, steps=4500, **rule))
    assert [drop.inside for drop in found.drops] == [True] * 4
    assert max(drop.error for drop in found.drops) < 5e-4
    assert found.prediction.reliable
    assert found.prediction.drop_times[0] > 1.01 * icl.predict(icl.Task(), model, init=2e-2).drop_times[0]


@pytest.mark.parametrize("change", [{}, {"normalize": "none"}, {"out_dim": 2}, {"normalize": "tokens", "out_dim": 2}])
def test_gains_are_one_at_the_minimum_in_every_unit(change):
    task, model = icl.Task(dim=3, context=12).replace(**change), icl.Separate(heads=3)
    d = icl.theory.directions(task)
    paper = model.balanced(d.matrix(d.strength), task)
    factor = task.context ** (1 / 3) if task.normalize == "none" else 1.0
    weights = {name: array / factor for name, array in paper.items()}
    np.testing.assert_allclose(gains(model, weights, task), 1, rtol=1e-9)


def test_without_tasks_in_context_the_forecast_says_that_a_drop_is_missing():
    task = icl.Task(icl_fraction=0.0, spectrum="white")
    prediction = icl.predict(task, icl.Merged(heads=4), init=1e-3)
    assert not prediction.reliable
    assert any("later drop" in note for note in prediction.notes)


def test_heads_and_components_count_from_one_in_print_and_from_zero_in_arrays(run):
    prediction = icl.predict(run.task, run.model, weights=run.initial_weights)
    assert prediction.directions.tolist() == [0, 1, 2, 3]
    assert f"head {prediction.heads[0] + 1} learns component 1 and holds 100% of it" in repr(prediction)
    unsure = replace(prediction, head_shares=np.zeros(4))
    assert "learns component 1, or another: small effects decide" in repr(unsure)


def test_the_mean_gap_follows_theory_where_the_curve_has_no_points():
    """Drops that are a little late, on a curve with few points on its plateaus: the gap is the area between the two."""
    task = icl.Task(dim=3)
    start = icl.train(task, icl.Separate(heads=3), init=1e-3, time=1.0).initial_weights
    prediction = icl.predict(task, icl.Separate(heads=3), weights=start)
    late = 0.01 * prediction.drop_times[0]
    dense = np.linspace(0, prediction.end, 400_001)
    curve = prediction.loss(np.maximum(dense - late, 0))
    exact = np.trapezoid(np.abs(curve - prediction.loss(dense)), dense) / dense[-1] / prediction.levels[0]
    moved = np.abs(np.diff(curve, prepend=curve[0])) > 1e-5
    few = moved | (np.arange(len(dense)) % 4000 == 0)
    assert few.sum() < 40_000
    assert gaps(dense[few], curve[few], prediction)[1] == pytest.approx(exact, rel=0.02)


def test_the_time_of_a_drop_is_exact_between_the_points_of_a_curve():
    time = np.arange(0, 6, 0.23)
    loss = 1 / (1 + np.exp(time - 3))
    for level in (0.2, 0.35, 0.6, 0.8):  # a straight line between two points is off by up to 3e-3
        assert crossing(time, loss, level) == pytest.approx(3 + np.log(1 / level - 1), abs=1e-4)
    stairs = np.minimum.accumulate(np.round(loss, 1))  # flat pieces have no cubic
    assert crossing(time, stairs, 0.55) == pytest.approx(3 + np.log(1 / 0.55 - 1), abs=0.23)
    assert crossing(time, loss, 2.0) == 0.0
    assert crossing(time, loss, -1.0) is None


def test_what_predict_compare_and_a_figure_of_a_run_need_is_forecast_once(monkeypatch):
    task, model = icl.Task(dim=2, context=17), icl.Separate(heads=2)
    run = icl.train(task, model, init=0.05, time=100.0)
    made = []
    descent = Staircase.descent
    monkeypatch.setattr(Staircase, "descent", lambda problem: made.append(problem) or descent(problem))
    first = icl.predict(task, model, weights=run.initial_weights)
    times = first.drop_times.copy()
    first.drop_times[:] = 0.0  # the caller's own
    np.testing.assert_array_equal(icl.predict(task, model, init=0.05).drop_times, times)
    icl.figures.loss_curve(run)
    np.testing.assert_array_equal(icl.compare(run).prediction.drop_times, times)
    assert icl.predict(task, model, weights=run.initial_weights, weight_decay=1e-9).drop_times[0] > times[0]
    assert len(made) == 2  # of the flow, and of the flow with decay
    for other in ({"init": 0.051}, {"init": 0.05, "seed": 1}):
        assert icl.predict(task, model, **other).drop_times[0] != times[0]
    assert icl.predict(task.replace(context=18), model, init=0.05).drop_times[0] != times[0]
    assert len(made) == 5
