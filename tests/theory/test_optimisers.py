"""Momentum, Adam and Muon: closed rules and iterated modes against small loops that share no code with them."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.theory import directions, landscape, merged
from iclflow.theory.laws import adam, momentum, muon
from iclflow.theory.single_mode import time_to_reach

TASK = icl.Task(dim=3, context=20)
D = directions(TASK)


def loop(g, m, v, step, beta):
    """Heavy ball in the order of the engines; steps until the middle of the drop, and parts of one."""
    n, memory, half = 0, 0.0, np.cbrt((1 - np.sqrt(0.5)) * g / m)
    while True:
        memory = beta * memory - (g * v**2 - m * v**5)
        if v - step * memory > half:
            return n + (half - v) / (-step * memory)
        v, n = v - step * memory, n + 1


@pytest.mark.parametrize(("step", "beta"), [(0.3, 0.0), (0.05, 0.5), (0.02, 0.9)])
@pytest.mark.parametrize("time", [300.0, 3000.0])
def test_the_lag_of_a_mode_is_that_of_its_map(time, step, beta):
    """[`momentum-lag`]"""
    g, m = float(D.drive[0]), float(D.curvature[0])
    start, half = 1 / (g * time), np.cbrt((1 - np.sqrt(0.5)) * g / m)
    late = loop(g, m, start, step, beta) * step / (1 - beta) - time_to_reach(half, start, g, m)
    assert momentum.mode_lag(g, m, time, step, beta) == pytest.approx(late, rel=0.1)


@pytest.mark.parametrize(("beta", "shrink"), [(0.0, 0.0), (0.9, 0.0), (0.9, 1e-3)])
def test_merged_attention_grows_by_the_root(beta, shrink):
    """[`momentum-merged`] the largest eigenvalue of the two-term map."""
    drive = 0.02
    step = np.array([[1 - shrink + drive, beta], [drive, beta]])  # (W, u) -> (W - shrink W + u', u')
    largest = np.abs(np.linalg.eigvals(step)).max()
    assert momentum.merged_growth(drive, beta, shrink) == pytest.approx(np.log(largest), rel=1e-12)


def test_merged_steps_tend_to_the_flow():
    """[`momentum-merged`] at first order in the step."""
    L, alpha = landscape(TASK), 1e-6
    flow = merged.half_time(L, alpha)
    late = [momentum.merged_steps(L, alpha, merged.lowest_loss(L), h).half_time - flow for h in (0.2, 0.1)]
    assert late[0] / late[1] == pytest.approx(2.0, rel=0.05)


def test_merged_steps_that_diverge_have_no_course():
    L = landscape(TASK)
    assert len(momentum.merged_steps(L, 1e-6, merged.lowest_loss(L), 20.0).time) == 0


def test_adam_has_two_regimes():
    """[`adam-regimes`]"""
    names = [adam.adam_regime(time, 1.3, 2.0).name for time in (1e3, 2e8, 1e10)]
    assert names == ["entries", "between", "epsilon"]
    assert adam.adam_regime(1e10, 1.3, 2.0).pace == 2e8


def test_muon_stacked_begins_at_its_closed_form():
    """[`muon`] half of the leading direction at (alpha_1 |g| / 2 g_1)^(1/3), before anything saturates."""
    course = muon.muon_stacked(D)
    share = 0.02  # of the strength, where nothing has saturated yet
    early = np.interp(share, course.strength[:, 0] / D.strength[0], course.time)
    closed = np.cbrt(share * D.strength[0] * np.linalg.norm(D.drive) / D.drive[0])
    assert early == pytest.approx(closed, rel=0.01)
    assert (course.strength[-1] == D.strength).all()


def test_muon_of_single_heads_and_of_merged_attention():
    """[`muon`]"""
    course = muon.muon_heads(D, 5)
    half = np.interp(0.5 * D.strength[0], course.strength[:, 0], course.time)
    assert half == pytest.approx(np.cbrt(D.strength[0] / 10), rel=1e-3)
    course = muon.muon_merged(D, 1)
    halves = [np.interp(0.5 * s, course.strength[:, i], course.time) for i, s in enumerate(D.strength)]
    np.testing.assert_allclose(halves, np.sqrt(D.strength / 2), rtol=1e-3)


@pytest.mark.parametrize(("beta", "shrink"), [(0.0, 0.0), (0.9, 0.0), (0.9, 2e-5)])
def test_the_lag_of_a_head_that_is_not_yet_along_its_direction(beta, shrink, quiet):
    """[`momentum-lag`] One head alone, against the engines: momentum behind the flow with the same decay."""
    task, model, lr = icl.Task(dim=2, context=20), icl.Separate(heads=1), 0.02
    d, pace = directions(task), 2 * lr / (1 - beta)
    settings = {"init": 0.03, "seed": 4}
    flow = icl.predict(task, model, **settings).drop_times[0]
    rule = {"optimizer": "momentum", "beta": beta} if beta else {}
    steps = int(1.6 * flow / pace) + 200
    run = icl.train(task, model, **settings, lr=lr, steps=steps, weight_decay=shrink / lr, records=2, **rule)
    slow = icl.train(task, model, **settings, time=steps * pace, weight_decay=2 * shrink / pace, records=2)
    middle = d.base - d.saved[0] / 2
    times = [np.interp(-middle, -one.loss.values, one.time.values) for one in (run, slow)]
    given = {"weights": run.initial_weights, "weight_decay": shrink / lr}
    stepped = icl.predict(task, model, lr=lr, **given, **rule).drop_times[0]
    lag = stepped - icl.predict(task, model, weights=run.initial_weights, weight_decay=2 * shrink / pace).drop_times[0]
    assert lag == pytest.approx(times[0] - times[1], rel=0.03, abs=0.1)


# --- against the engines ----------------------------------------------------------------------------------------------


def test_momentum_on_one_clock(quiet):
    """Merged: the whole curve; the same run on the clock without its lag would be off by a tenth."""
    run = icl.train(TASK, icl.Merged(heads=4), init=1e-3, optimizer="momentum", beta=0.9, lr=0.02, steps=900)
    found = icl.compare(run)
    assert found.drops[0].error < 1e-4
    assert found.largest_gap < 5e-4
    flow = icl.predict(TASK, run.model, weights=run.initial_weights, optimizer="momentum")
    assert flow.drop_times[0] < 0.95 * found.drops[0].observed_time


def test_muon_against_theory(quiet):
    run = icl.train(TASK, icl.Merged(heads=4), init=1e-6, optimizer="muon", lr=2e-3, steps=1100)
    assert icl.compare(run).largest_gap < 5e-3


def test_any_other_optimiser_has_levels_and_says_that_it_has_no_times():
    predicted = icl.predict(TASK, icl.Separate(heads=3), optimizer="optax:lion")
    assert len(predicted.drop_times) == 0
    assert len(predicted.levels) == 4
    assert "no theory of its times" in predicted.notes[-1]
    assert "every entry moves by lr" in icl.predict(TASK, icl.Separate(heads=3), optimizer="adam").notes[-1]


def test_muon_of_optax_shows_the_levels(quiet):
    """The open door: momentum and Newton-Schulz of optax.contrib, on arrays of three axes as they are."""
    contrib = pytest.importorskip("optax.contrib")
    if not hasattr(contrib, "muon"):
        pytest.skip("this optax has no muon")
    run = icl.train(TASK, icl.Separate(heads=3), optimizer=contrib.muon(1e-2), init=1e-3, steps=400)
    assert run.loss.values[-1] < 0.5 * run.loss.values[0]
    found = icl.compare(run)
    assert len(found.levels) == 4
    assert "no theory of its times" in found.why


def test_a_run_of_adam_is_compared_by_its_levels(quiet):
    run = icl.train(TASK, icl.Merged(heads=4), optimizer="adam", lr=0.01, steps=400)
    found = icl.compare(run)
    assert "every entry moves by lr" in found.why
    assert found.to_dict()["levels"] == pytest.approx(icl.theory.plateau_losses(TASK))


def test_bad_settings_are_one_line():
    with pytest.raises(icl.BadInput, match="optimizer: 'lion' must be one of sgd, momentum, adam, muon"):
        icl.predict(TASK, icl.Separate(heads=3), optimizer="lion")
    with pytest.raises(icl.BadInput, match="beta: 1.5"):
        icl.predict(TASK, icl.Separate(heads=3), optimizer="momentum", beta=1.5)
    with pytest.raises(icl.BadInput, match="lr: -1"):
        icl.predict(TASK, icl.Separate(heads=3), lr=-1.0)
    with pytest.raises(icl.BadInput, match="weight_decay: -0.1"):
        icl.predict(TASK, icl.Separate(heads=3), weight_decay=-0.1)
