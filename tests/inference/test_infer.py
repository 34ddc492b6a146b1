"""From a curve to what made it, on curves that the engines made and on curves that something else did."""

import json

import numpy as np
import pytest

import iclflow as icl
from iclflow.inference.fitting import Numbers, Setting, curve, drops, slopes

TASK = icl.Task(spectrum=(0.4, 0.3, 0.2, 0.1), context=31, basis="identity")


@pytest.fixture(scope="module")
def run():
    return icl.train(TASK, icl.Separate(heads=5), init=1e-3)


@pytest.fixture(scope="module")
def found(run):
    return icl.infer(run)


def test_the_whole_flow_gives_its_spectrum_and_context_back(found):
    """[`curve-fit`] All heads are free in this run; nothing but its loss curve is read."""
    assert np.abs(found.eigenvalues / [0.4, 0.3, 0.2, 0.1] - 1).max() < 1e-3
    assert found.context == pytest.approx(31, rel=1e-3)
    assert np.abs(found.levels - icl.theory.plateau_losses(TASK)).max() < 1e-4
    assert found.fits is True


def test_what_was_found_makes_the_same_curve_again(run, found):
    """[`curve-fit`] Task, model and weights of the result go into `predict`, which shares no code with the fit."""
    again = icl.predict(found.task, found.model, weights=found.weights)
    seen = icl.compare(run).drops
    assert np.abs(again.drop_times / [drop.observed_time for drop in seen] - 1).max() < 1e-3
    assert np.abs(again.drop_times / found.drop_times - 1).max() < 1e-3
    gap = np.abs(again.loss(run.time.values) - run.loss.values)
    assert np.mean(gap) < 1e-3


def test_intervals_hold_what_they_are_about(found):
    for name in ("eigenvalues", "initial_sizes", "drop_times", "levels"):
        span = found.intervals[name]
        assert (span[:, 0] < getattr(found, name)).all(), name
        assert (getattr(found, name) < span[:, 1]).all(), name
    low, high = found.intervals["context"]
    assert low < 31 < high


def test_a_curve_that_ends_early_says_what_is_left(run, found):
    """[`curve-fit`] The trace that is left is that of the directions that have not dropped."""
    end = run.time.values < 0.5 * (found.drop_times[2] + found.drop_times[3])
    cut = icl.infer(run.loss.values[end], time=run.time.values[end])
    assert len(cut.eigenvalues) == 3
    assert np.abs(cut.eigenvalues / [0.4, 0.3, 0.2] - 1).max() < 0.02
    assert cut.rest == pytest.approx(0.1, rel=0.1)
    assert any("have not dropped" in note for note in cut.notes)
    assert np.abs(icl.theory.plateau_losses(cut.task)[:4] - found.levels[:4]).max() < 2e-3


@pytest.mark.parametrize("outputs", [1, 2])
def test_outputs_and_known_label_noise(outputs):
    task = icl.Task(spectrum=(0.5, 0.3, 0.15), context=20, out_dim=outputs, label_noise=0.2, basis="identity")
    run = icl.train(task, icl.Separate(heads=4), init=1e-3, init_law="entry")
    found = icl.infer(run.loss.values, time=run.time.values, out_dim=outputs, label_noise=0.2)
    assert np.abs(found.eigenvalues / [0.5, 0.3, 0.15] - 1).max() < 5e-3
    assert found.context == pytest.approx(20, rel=0.02)
    assert found.task.label_noise == 0.2


def test_minibatches_widen_the_intervals():
    """[`curve-fit`] The loss of a batch scatters by a fifth of itself."""
    task = icl.Task(spectrum=(0.6, 0.3, 0.1), context=16, basis="identity")
    run = icl.train(task, icl.Separate(heads=4), init=0.05, batch=256, lr=0.3, steps=2500, seed=1)
    found = icl.infer(run)
    spans, clean = found.intervals["eigenvalues"], icl.infer(curve_of((0.6, 0.3, 0.1), 16), time=TIMES)
    width = lambda spans: np.diff(spans, axis=1).max()
    assert width(spans) > 5 * width(clean.intervals["eigenvalues"])
    truth = np.array([0.6, 0.3, 0.1])[: len(spans)]
    assert (np.abs(found.eigenvalues / truth - 1) < 0.2).all()
    assert any("scatters" in note for note in found.notes)


TIMES = np.linspace(0, 2e4, 20_001)


def curve_of(spectrum, context):
    """A staircase by the formula of the fit."""
    values = np.array(spectrum)
    return curve(Numbers(values, 1 / context, 0.0, 100 / values**2, Setting()).packed, Setting(), TIMES)


def test_slopes_are_those_of_the_curve():
    packed = Numbers(np.array([0.5, 0.3]), 0.05, 0.1, np.array([300.0, 900.0]), Setting(2, 0.1)).packed
    time = np.linspace(0, 1500, 60)
    slope, step = slopes(packed, Setting(2, 0.1), time), 1e-5
    for i in range(len(packed)):
        nudge = step * (np.arange(len(packed)) == i)
        by_hand = (
            (curve(packed + nudge, Setting(2, 0.1), time) - curve(packed - nudge, Setting(2, 0.1), time)) / 2 / step
        )
        assert np.abs(slope[:, i] - by_hand).max() < 2e-3 * np.abs(by_hand).max()
    assert drops(packed, Setting(2, 0.1)).trace[0] == pytest.approx(0.9)


def power_law(t):
    return 0.2 + (1 + t / 10) ** -0.7


def unequal(t):
    return 1 - 0.3 * (1 + np.tanh((t - 300) / 12)) / 2 - 0.5 * (1 + np.tanh((t - 700) / 60)) / 2


def two_layers(t):
    """Two-layer linear networks from small weights learn by logistic jumps (arXiv:1312.6120)."""
    s, a = np.array([2.0, 1.2, 0.5]), 1e-4
    grown = s / (1 + (s / a - 1) * np.exp(-2 * s * t[:, None] / 80))
    return ((s - grown) ** 2).sum(axis=1) / 5


@pytest.mark.parametrize("made", [power_law, unequal, two_layers])
def test_curves_of_something_else_are_not_claimed(made):
    """[`curve-test`] What fits is said by a test that can fail, and these fail it."""
    t = np.linspace(0, 1000, 1500)
    found = icl.infer(made(t), time=t)
    assert found.fits is not True
    assert found.why


def test_one_drop_does_not_decide():
    found = icl.infer(curve_of((0.5,), 20), time=TIMES)
    assert found.fits is None
    assert "one drop" in found.why


def test_merged_gives_drive_minimum_and_size():
    """[`merged-start`] Against the norm of C_1, the minimum of the task and the weights that the run began with."""
    run = icl.train(TASK, icl.Merged(heads=4), init=1e-3)
    found = icl.infer(run, model="merged")
    L = icl.theory.landscape(TASK)
    start = run.initial_weights
    parts = np.einsum("hij,ij->h", start["key_query"][:, :4, :4], L.cross / np.linalg.norm(L.cross))
    assert found.drive == pytest.approx(np.linalg.norm(L.cross), rel=3e-3)
    assert found.minimum == pytest.approx(icl.theory.minimum(TASK), rel=2e-3)
    assert found.initial_size == pytest.approx(np.linalg.norm(start["value"][:, 4, 4] + parts) / 2, rel=0.03)
    assert found.fits is None
    assert icl.infer(curve_of((0.6, 0.3), 16), time=TIMES, model="merged").fits is False


def test_steps_need_a_clock_and_bad_input_is_named(tmp_path, run):
    losses = curve_of((0.6, 0.3), 16)
    for call, word in (
        (lambda: icl.infer(losses), "lr"),
        (lambda: icl.infer(losses, time=TIMES, model="mlp"), "model"),
        (lambda: icl.infer(losses, time=TIMES, out_dim=0), "out_dim"),
        (lambda: icl.infer(losses, time=TIMES, label_noise=-1.0), "label_noise"),
        (lambda: icl.infer(losses[:7], time=TIMES[:7]), "curve"),
        (lambda: icl.infer(run, lr=0.1), "lr"),
        (lambda: icl.infer(str(tmp_path / "none.csv")), "curve"),
    ):
        with pytest.raises(icl.BadInput, match=f"^{word}"):
            call()


def test_steps_and_times_tell_the_same():
    """A file of steps with a learning rate is the curve of its times, t/tau = 2 lr step."""
    losses = curve_of((0.6, 0.3), 16)
    by_time = icl.infer(losses, time=TIMES)
    by_step = icl.infer(losses, lr=float(TIMES[1]) / 2)
    assert np.allclose(by_time.eigenvalues, by_step.eigenvalues, rtol=1e-9)
    assert by_time.eigenvalues == pytest.approx([0.6, 0.3], rel=1e-3)


def test_everything_is_ready_for_json(found):
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["fits"] is True
    assert again["eigenvalues"] == found.eigenvalues.tolist()
    assert f"{found.eigenvalues[0]:.5g}" in str(found)
    assert "<table>" in found._repr_html_()
