"""The flow is the limit of descent, conserves what it must, and knows when it has settled."""

import numpy as np
import pytest

import iclflow as icl

TASK, MODEL = icl.Task(dim=3, context=10), icl.Separate(heads=4, rank=2)


def at(run, times):
    return np.interp(times, run.time.values, run.loss.values)


def test_descent_approaches_the_flow_at_first_order_in_the_step(quiet):
    """Error of descent at a fixed time, halved with the step: the fitted slope is 1."""
    end, rates = 40.0, np.array([0.16, 0.08, 0.04, 0.02])
    flow = icl.train(TASK, MODEL, init=0.3, time=end, tolerance=1e-12)
    target = flow.loss.values[-1]
    errors = []
    for lr in rates:
        run = icl.train(TASK, MODEL, init=0.3, lr=float(lr), steps=round(end / (2 * lr)))
        assert run.time.values[-1] == pytest.approx(end)
        errors.append(abs(run.loss.values[-1] - target))
    slope = np.polyfit(np.log(rates), np.log(errors), 1)[0]
    assert 0.9 < slope < 1.1


@pytest.mark.parametrize("model", [icl.Merged(heads=3), MODEL, icl.MLP(heads=3)])
@pytest.mark.parametrize("data", [{}, {"samples": 200}])
def test_conserved_quantities_drift_only_by_the_tolerance(model, data):
    run = icl.train(TASK, model, init=0.3, time=60.0, tolerance=1e-10, **data)
    assert run.summary["runs"][0]["conservation_drift"] <= 20 * 1e-10
    loose = icl.train(TASK, model, init=0.3, time=60.0, tolerance=1e-4, **data)
    assert loose.summary["runs"][0]["conservation_drift"] > 1e-10


@pytest.mark.parametrize("model", [icl.Merged(heads=3), MODEL])
def test_the_loss_never_rises(model):
    run = icl.train(TASK, model, init=0.1)
    assert np.diff(run.loss.values).max() <= 1e-9


def test_two_halves_equal_the_whole():
    whole = icl.train(TASK, MODEL, init=0.3, time=60.0, tolerance=1e-11)
    half = icl.train(TASK, MODEL, init=0.3, time=25.0, tolerance=1e-11)
    joined = icl.resume(half, time=35.0)
    assert joined.time.values[-1] == pytest.approx(60.0)
    assert joined.loss.values[-1] == pytest.approx(whole.loss.values[-1], rel=1e-8)
    assert np.diff(joined.time.values).min() > 0


def test_it_starts_at_the_start():
    run = icl.train(TASK, MODEL, init=0.3, time=1.0)
    for name, array in run.initial_weights.items():
        np.testing.assert_array_equal(run.weights[name][0], array)
    assert run.time.values[0] == 0


@pytest.mark.parametrize(
    ("task", "model"),
    [
        (icl.Task(), icl.Separate(heads=5)),
        (icl.Task(), icl.Merged(heads=8)),
        (icl.Task(dim=6), icl.Separate(heads=3, rank=2)),
        (icl.Task(out_dim=2), icl.Separate(heads=4)),
        (icl.Task(normalize="none"), icl.Separate(heads=5)),
        (icl.Task(prefix_loss=True, normalize="tokens"), icl.Separate(heads=5)),
    ],
)
def test_it_stops_when_settled_at_the_minimum_and_never_on_a_plateau(task, model):
    run = icl.train(task, model, init=0.02)
    lowest = icl.theory.minimum(task)
    zero = icl.theory.plateau_losses(task)[0]
    assert run.status == "ok"
    assert -1e-12 <= run.loss.values[-1] - lowest <= 1e-4 * (zero - lowest) * 1.01


def test_with_fewer_components_than_dimensions_it_settles_at_their_plateau():
    run = icl.train(icl.Task(), icl.Separate(heads=2), init=0.02)
    assert run.status == "ok"
    assert run.loss.values[-1] == pytest.approx(icl.theory.plateau_losses(icl.Task())[2], abs=1e-4)


def test_clocks_of_all_normalisations_agree():
    """The same network in other units: weights times N^{1/3}, and the loss over t/tau is one curve."""
    paper = icl.train(icl.Task(), icl.Separate(heads=5), init=0.05, time=500.0)
    factor = 31 ** (1 / 3)
    scaled = {name: array / factor for name, array in paper.initial_weights.items()}
    public = icl.train(icl.Task(normalize="none"), icl.Separate(heads=5), weights=scaled, time=500.0)
    times = np.linspace(0, 500, 200)
    fine = icl.train(icl.Task(normalize="none"), icl.Separate(heads=5), weights=scaled, time=250.0)
    assert np.abs(at(paper, times) - at(public, times)).max() < 2e-3
    assert public.loss.values[-1] == pytest.approx(paper.loss.values[-1], rel=1e-7)
    assert fine.loss.values[-1] > public.loss.values[-1]


@pytest.mark.parametrize("init", [1e-8, 1e-13])
@pytest.mark.parametrize("model", [icl.Merged(heads=8), icl.Separate(heads=5)], ids=["merged", "separate"])
def test_the_flow_is_as_exact_from_tiny_weights(model, init):
    """An absolute tolerance that did not follow the weights would be late by per cents at 1e-12 and below."""
    run = icl.train(icl.Task(), model, init=init, seed=1)
    assert max(drop.error for drop in icl.compare(run).drops) < 1e-4


@pytest.mark.parametrize(
    ("task", "model", "init"),
    [
        (icl.Task(), icl.Separate(heads=5), 3.0),
        (icl.Task(), icl.Separate(heads=5), 30.0),
        (icl.Task(), icl.Merged(heads=8), 30.0),
        (icl.Task(spectrum=[4e8, 3e8]), icl.Separate(heads=5), 3.0),
    ],
)
def test_what_is_saved_is_bounded_by_the_logarithm_of_the_first_loss(task, model, init, quiet):
    """One point per share of the zero loss would be millions here, and more than memory holds from larger weights."""
    run = icl.train(task, model, init=init)
    zero, first = icl.theory.plateau_losses(task)[0], float(run.loss.values[0])
    assert first > 100 * zero
    assert run.loss.size < 5000 + 150 * np.log(first / zero)
    high = run.loss.values[run.loss.values > 4 * zero]
    assert (high[:-1] / high[1:]).max() < 1.5  # the fall is still seen on the way
    assert run.status == "ok" or "has not settled" in run.summary["runs"][0]["why"]


def test_weights_of_a_scale_beyond_double_precision_end_as_failed():
    weights = icl.train(icl.Task(), icl.Separate(heads=5), init=1e7, time=1e-60).initial_weights
    run = icl.train(icl.Task(), icl.Separate(heads=5), weights=weights)
    assert run.status == "failed"
    assert "rounding" in run.summary["runs"][0]["why"]
