"""The line at the end of a run says what happened."""

from dataclasses import replace

import numpy as np
import pytest

import iclflow as icl
from iclflow.comparison.summary import account, against_theory


def test_drops_are_counted_and_theory_is_beside_them():
    summary = account(icl.train(icl.Task(dim=3), icl.Separate(heads=3), init=1e-3, engine="moments"))
    assert summary.drops == [3]
    assert str(summary).startswith("in 3 drops, plateaus within ")
    assert summary.comparisons[0].mean_gap < 1e-3


def test_many_seeds_give_a_range(quiet):
    run = icl.train(icl.Task(dim=3), icl.Separate(heads=3), init=1e-2, lr=0.2, steps=2000, seeds=3)
    summary = account(run)
    assert len(summary.drops) == 3
    assert f"in {min(summary.drops)}" in str(summary)


def test_where_there_is_no_theory_it_says_why(quiet):
    settings = {"samples": 100, "steps": 20, "lr": 0.05}
    softmax = account(icl.train(icl.Task(dim=2), icl.Merged(heads=2, softmax=True), **settings))
    adam = account(icl.train(icl.Task(dim=2), icl.Merged(heads=2), optimizer="adam", steps=20))
    assert str(softmax) == "without a drop"
    assert "softmax" in softmax.why_not
    assert "adam" in adam.why_not


def test_a_run_that_blew_up_still_has_an_account(quiet):
    run = icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=1.0, lr=50.0, steps=50)
    assert not np.isfinite(run.loss.values).all()
    assert account(run).drops == [0]


def test_own_data_are_judged_by_their_own_moments(quiet):
    """Labels twice as large: the theory of the default task would be off by three times its loss."""
    task = icl.Task(dim=2, context=10)
    sequences = icl.sample(task, 3000)
    sequences[:, :, 2] *= 2
    run = icl.train(data=sequences, model=icl.Merged(heads=3), init=1e-2, lr=0.01, steps=3000, records=2)
    [found] = account(run).comparisons
    assert found.prediction.levels[0] == pytest.approx(run.loss.values[0], rel=1e-3)
    assert found.mean_gap < 0.02


def test_plateaus_far_from_theory_are_said_too():
    comparison = icl.compare(icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=1e-2, engine="moments"))
    far = replace(comparison.plateaus[0], predicted_level=2 * comparison.plateaus[0].observed_level)
    assert "plateaus within 0.5 of theory" in against_theory([replace(comparison, plateaus=(far,))], with_times=True)


def test_a_loss_that_blows_up_is_compared_until_then_and_says_so(quiet):
    """Losses of 1e187 are no distance from theory."""
    run = icl.train(icl.Task(dim=3), icl.Separate(heads=3), init=0.05, lr=3.0, steps=3000)
    assert run.status == "diverged"
    found = icl.compare(run)
    assert found.blown_up
    assert found.loss.max() <= 10
    assert "Steps of this size diverge at a drop" in str(found)
    assert "The loss blows up after time t/tau" in str(found)
    assert "e+" not in str(found)


def test_a_loss_without_drops_has_no_times_of_drops(quiet):
    """Large weights: theory knows when each component is learned, but nothing drops."""
    words = str(account(icl.train(icl.Task(dim=3), icl.Separate(heads=3), init=1.0)))
    assert words.startswith("without a drop")
    assert "drop times" not in words
