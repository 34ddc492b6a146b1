"""The verdict on a run is drawn from its losses."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.engines.verdict import judge_descent


def test_a_falling_curve_is_fine():
    assert judge_descent(np.exp(-np.linspace(0, 5, 100)), 1.0, kind="monotone").status == "ok"


def test_a_hop_at_the_end_is_unstable_and_an_early_one_is_not():
    curve = np.exp(-np.linspace(0, 5, 100))
    late, early = curve.copy(), curve.copy()
    late[-5:] += [0.01, 0, 0.01, 0, 0.01]
    early[5] += 0.05
    assert judge_descent(late, 1.0, kind="monotone").status == "unstable"
    assert judge_descent(early, 1.0, kind="monotone").status == "ok"


def test_a_run_thrown_back_to_where_it_came_from_is_unstable():
    curve = np.concatenate([np.linspace(1, 0.2, 50), np.full(200, 1.0)])
    assert judge_descent(curve, 1.0, kind="monotone").status == "unstable"


def test_divergence_names_the_first_bad_step():
    curve = np.concatenate([np.ones(7), [1e9, np.inf, np.nan]])
    verdict = judge_descent(curve, 1.0, kind="monotone")
    assert verdict.status == "diverged"
    assert "step 7" in verdict.why


def test_noise_of_minibatches_is_not_instability():
    rng = np.random.default_rng(0)
    curve = 0.15 + np.exp(-np.linspace(0, 5, 500)) + 0.05 * rng.random(500)
    assert judge_descent(curve, 1.0, kind="noisy").status == "ok"
    plateau = 1 + 0.3 * rng.standard_normal(50)
    assert judge_descent(plateau, 1.0, kind="noisy").status == "ok"
    assert judge_descent(plateau + np.linspace(0, 2, 50), 1.0, kind="noisy").status == "unstable"
    assert judge_descent(plateau, 1.0, kind="smooth").status == "unstable"


@pytest.mark.parametrize("model", [icl.Merged(heads=4), icl.Separate(heads=5), icl.Separate(heads=3, rank=2)])
def test_a_rate_far_too_large_is_never_called_ok(model, quiet):
    task = icl.Task(dim=3, spectrum="white")
    stable = icl.train(task, model, lr=1e-3, steps=1).summary["runs"][0]["stable_step"]
    for factor in (1.5, 2.0, 3.0):
        run = icl.train(task, model, lr=factor * stable, steps=3000, init=0.05)
        settled = run.loss.values[-1] <= icl.theory.minimum(task) + 1e-3
        assert settled or run.status in ("unstable", "diverged"), (factor, run)


def test_the_warning_names_rate_and_limit():
    with pytest.warns(UserWarning, match=r"lr = 5 exceeds the stable step at the minimum, 1\.4"):
        icl.train(icl.Task(), icl.Merged(heads=4), lr=5.0, steps=5)
