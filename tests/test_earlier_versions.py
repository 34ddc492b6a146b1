"""Runs and sweeps that earlier versions wrote still open, compare, resume and are probed."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import commands
import iclflow as icl

pytestmark = pytest.mark.filterwarnings("ignore:lr = 0.1 exceeds")
OLD, LAST = (Path(__file__).parent / "fixtures" / version for version in ("v0.1.0", "v0.2.0"))


@pytest.mark.parametrize("name", ["flow", "momentum", "seeds", "mlp"])
def test_a_run_of_0_1_0_is_the_run_that_its_settings_make_now(name):
    old = icl.load(OLD / name)
    assert old.summary["versions"]["iclflow"] == "0.1.0"
    again = icl.train(**settings_of(old))
    solver = name == "flow"  # which takes other steps now, and keeps other times of the same curve
    then = np.interp(old.time.values, again.time.values, again.loss.values) if solver else again.loss.values
    np.testing.assert_allclose(old.loss.values, then, rtol=1e-5 if solver else 1e-12)
    for array, weights in old.final_weights.items():
        np.testing.assert_allclose(weights, again.final_weights[array], rtol=1e-7 if solver else 1e-10, atol=1e-14)
    assert old.moments is None


@pytest.mark.parametrize("name", ["flows", "sample"])
def test_a_run_of_0_2_0_is_the_run_that_its_settings_make_now(name):
    """Three seeds of the flow, which end at different times; two of momentum on a sample, with its moments."""
    old = icl.load(LAST / name)
    again = icl.train(**settings_of(old)).first_and_last()
    for seed in old.seeds:
        then, now = old.select(seed), again.select(seed)
        np.testing.assert_allclose(
            then.loss.values, np.interp(then.time.values, now.time.values, now.loss.values), 1e-5
        )
        for array, weights in then.final_weights.items():
            bound = 1e-6 if name == "sample" else 0.05  # the flow goes on until its last direction is learned
            np.testing.assert_allclose(weights, now.final_weights[array], rtol=bound, atol=1e-12)
    assert old.loss.attrs == again.loss.attrs
    assert not old.loss.isnull().any()
    assert not old.weights.isnull().to_array().any()
    np.testing.assert_allclose(old.loss.values[:, -1], old.summary["final_loss"], rtol=0)
    assert old.weights["value"].dims == again.weights["value"].dims
    assert (old.moments is None) == (again.moments is None)
    if old.moments is not None:
        np.testing.assert_allclose(old.moments["left"].values, again.moments["left"].values, rtol=1e-12)
        longer = icl.resume(old, steps=10)
        np.testing.assert_array_equal(longer.loss.values[:, :20], old.loss.values[:, :20])


def settings_of(run):
    given = {name: getattr(run.training, name) for name in run.training.model_fields_set}
    return {"task": run.task, "model": run.model, **given}


def test_a_run_without_moments_draws_its_sample_again_to_be_compared():
    old = icl.load(OLD / "seeds")
    new = icl.train(**settings_of(old))
    for before, now in zip(icl.compare(old), icl.compare(new), strict=True):
        assert before.source == now.source == "sample"
        np.testing.assert_allclose(before.prediction.levels, now.prediction.levels, rtol=1e-12)
        np.testing.assert_allclose(before.loss, now.loss, rtol=1e-9)
    assert [p.algorithm for p in icl.probe(old, shifts=False)] == [p.algorithm for p in icl.probe(new, shifts=False)]


@pytest.mark.parametrize(("name", "more"), [("flow", {"time": 5.0}), ("momentum", {"steps": 10})])
def test_a_run_of_0_1_0_is_resumed(name, more):
    old = icl.load(OLD / name)
    longer = icl.resume(old, **more)
    first = old.loss.sizes["step"]
    np.testing.assert_array_equal(longer.loss.values[: first - 1], old.loss.values[:-1])
    assert longer.loss.values[first - 1] == pytest.approx(old.loss.values[-1], rel=1e-14)  # by another program
    assert longer.loss.sizes["step"] > first


def test_a_sweep_of_0_1_0_opens_and_half_of_one_is_finished(tmp_path, capsys):
    whole = icl.load(OLD / "sweep")
    assert whole.status == {"ok": 4}
    half = tmp_path / "half"
    shutil.copytree(OLD / "half-sweep", half)
    assert icl.load(half).status == {"missing": 2, "ok": 2}
    code, out, err = commands.call(
        capsys, "sweep", str(OLD / "sweep.toml"), "--out", str(half), "--workers", "0", "--resume"
    )
    assert code == 0, err
    assert "4 of 4 runs are done" in out
    finished = icl.load(half)
    for name in ("loss", "final_loss", "drop_times", "plateau_losses"):
        np.testing.assert_allclose(finished.data[name].values, whole.data[name].values, rtol=1e-12)
