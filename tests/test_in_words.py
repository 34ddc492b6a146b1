"""The line at the end of a run says what happened."""

import numpy as np

import iclflow as icl
from iclflow.comparison.summary import account


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
    assert "optimizer" in adam.why_not


def test_a_run_that_blew_up_still_has_an_account(quiet):
    run = icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=1.0, lr=50.0, steps=50)
    assert not np.isfinite(run.loss.values).all()
    assert account(run).drops == [0]
