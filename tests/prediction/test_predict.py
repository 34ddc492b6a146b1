"""One question for all verbs: settings of training by their names, their refusals, and several seeds at once."""

import inspect
import json

import numpy as np
import pytest

import commands
import iclflow as icl
from iclflow.prediction.regimes.drop import Drop
from iclflow.prediction.regimes.regime import Regime
from iclflow.sweeps.forecast import expected_of
from iclflow.sweeps.sweep_file import grid_from
from iclflow.units import clock_of

TASK, MODEL = icl.Task(dim=3, context=20), icl.Separate(heads=3)


def test_a_forecast_takes_every_setting_of_training_and_shows_them():
    shown = inspect.signature(icl.predict).parameters
    assert set(icl.Training.model_fields) <= set(shown)
    assert "sequences per step" in icl.predict.__doc__
    assert shown["lr"].default is None


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"records": 7}, "records: 7 has no effect on a forecast"),
        ({"engine": "tokens"}, "engine: 'tokens' has no effect on a forecast"),
        ({"dtype": "float32"}, "dtype: 'float32' has no effect"),
        ({"lrr": 0.1}, "lrr: unknown name; did you mean 'lr'"),
        ({"beta": 0.5}, "beta: belongs to momentum, adam and muon; sgd has none"),
        ({"lr": 0.1, "time": 3.0}, "lr: belongs to descent"),
        ({"init_law": "nonsense"}, "init_law: 'nonsense'"),
        ({"batch": 8, "samples": 4, "lr": 0.1}, "batch: 8 must be at most samples = 4"),
        ({"seeds": 2, "weights": "given"}, "seeds: 2 must be 1 with given weights"),
    ],
)
def test_what_training_refuses_and_what_has_no_effect_is_refused_by_name(settings, line):
    if settings.get("weights") == "given":
        settings = {**settings, "weights": icl.train(TASK, MODEL, time=1.0).initial_weights}
    with pytest.raises(icl.BadInput, match=line):
        icl.predict(TASK, MODEL, **settings)


def test_a_whole_record_of_training_may_hold_what_has_no_effect():
    run = icl.train(TASK, MODEL, init=0.05, samples=3000, lr=0.1, steps=50, records=5, seed=3)
    own, same = icl.compare(run).prediction, icl.predict(TASK, MODEL, training=run.training)
    np.testing.assert_allclose(same.drop_times, own.drop_times, rtol=1e-9)
    other = icl.predict(TASK, MODEL, init=0.05, lr=0.1, seed=3)
    assert np.abs(other.drop_times / own.drop_times - 1).max() > 1e-3  # the population's


def test_samples_by_number_and_the_same_sequences_as_data_have_one_forecast():
    settings = {"init": 0.02, "lr": 0.1, "freeze_vectors": True}
    run = icl.train(TASK, icl.Merged(heads=3), samples=500, steps=5, seed=2, **settings)
    from iclflow.data.sequences import as_array
    from iclflow.prediction.sample import sequences_of

    start = run.initial_weights
    drawn = icl.predict(TASK, icl.Merged(heads=3), samples=500, seed=2, weights=start, **settings)
    given = icl.predict(model=icl.Merged(heads=3), data=as_array(sequences_of(run)), weights=start, **settings)
    np.testing.assert_allclose(given.drop_times, drawn.drop_times, rtol=1e-9)
    np.testing.assert_allclose(given.levels, drawn.levels, rtol=1e-9)
    assert abs(given.levels[-1] / icl.predict(TASK, icl.Merged(heads=3)).levels[-1] - 1) > 1e-3


def test_several_seeds_are_a_sequence_with_labelled_arrays_and_one_table(capsys):
    found = icl.predict(TASK, MODEL, init=0.01, seed=4, seeds=3)
    alone = [icl.predict(TASK, MODEL, init=0.01, seed=seed) for seed in (4, 5, 6)]
    assert len(found) == 3
    assert found.drop_times.dims == ("seed", "drop")
    assert found.drop_times.seed.values.tolist() == [4, 5, 6]
    np.testing.assert_array_equal(found.drop_times.values, [one.drop_times for one in alone])
    np.testing.assert_array_equal(found.drop_intervals.sel(end="high").values[1], alone[1].drop_intervals[:, 1])
    assert found.reliable.dims == ("seed",)
    assert str(found).count("\n") == 4
    assert found._repr_html_().count("<tr>") == 4
    assert len(found[1:]) == 2
    flags = ("theory", "--dim", 3, "--context", 20, "--heads", 3, "--init", 0.01, "--seed", 4, "--seeds", 3)
    assert commands.call(capsys, *flags)[1] == f"{found}\n"
    told = json.loads(commands.call(capsys, *flags, "--json")[1])["predictions"]
    assert [one["drop_times"] for one in told] == [one.drop_times.tolist() for one in alone]


def test_the_command_forecasts_own_data(tmp_path, capsys):
    sequences = icl.sample(TASK, 500, seed=5)
    np.savez(tmp_path / "mine.npz", sequences=sequences)
    code, out, err = commands.call(capsys, "theory", "--data", tmp_path / "mine.npz", "--heads", 3, "--init", 0.02)
    assert code == 0, err
    assert out == f"{icl.predict(model=MODEL, data=sequences, init=0.02)}\n"


def test_the_way_to_a_forecast_is_named():
    assert icl.predict(TASK, MODEL).method == "reduced"
    assert icl.predict(TASK, icl.Merged(heads=3)).method == "closed"
    assert icl.predict(TASK, MODEL, optimizer="muon", lr=1e-3).method == "closed"
    assert icl.predict(TASK, icl.Separate(heads=2, layers=2), init=1e-2).method == "reduced"


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "muon"])
def test_one_clock_serves_runs_and_curves(rule):
    task, model = icl.Task(dim=2, context=7, normalize="none"), icl.Merged(heads=2)
    how = {} if rule == "sgd" else {"optimizer": rule, "beta": 0.75}
    run = icl.train(task, model, lr=1e-3, steps=3, **how)
    assert run.time.values[1] == clock_of(task, model, run.training).time(1e-3)
    assert icl.compare(run.loss.values, task, model, lr=1e-3, **how).curves[0].time[1] == run.time.values[1]


class Doubled(Regime):
    """Half as fast as merged attention."""

    @classmethod
    def flow(cls, problem):
        plain = Drop.flow(problem)
        return plain.moved(2 * plain.drop_times, loss=lambda t: plain.loss(np.asarray(t) / 2))


class Slower(icl.Merged):
    def theory(self, task):
        return Doubled


def test_a_model_of_ones_own_brings_its_own_regime():
    plain, slow = (icl.predict(TASK, model(heads=3), init=1e-3) for model in (icl.Merged, Slower))
    np.testing.assert_allclose(slow.drop_times, 2 * plain.drop_times)
    with pytest.raises(icl.BadInput, match=r"weight_decay: 0.1 must be 0 with the theory of"):
        icl.predict(TASK, Slower(heads=3), init=1e-3, weight_decay=0.1)
    assert "the lag of finite steps is left out" in icl.predict(TASK, Slower(heads=3), lr=0.1).notes


def test_a_sweeps_dashed_line_has_the_steps_of_its_run():
    base = {"dim": 3, "context": 20, "heads": 3, "init": 0.03, "lr": 1.2, "steps": 100, "samples": 1000}
    (point,) = grid_from({"base": base}).points_of_grid
    expected = expected_of(point).drop_times
    settings = {"init": 0.03, "lr": 1.2}
    np.testing.assert_array_equal(expected, icl.predict(TASK, MODEL, **settings).drop_times)
    assert np.abs(expected / icl.predict(TASK, MODEL, init=0.03).drop_times - 1).max() > 0.01


ONE = icl.Task(dim=1)


@pytest.mark.parametrize(
    ("task", "model", "settings"),
    [
        (ONE, icl.Separate(heads=3), {"init": 0.01, "lr": 0.1, "batch": 64, "optimizer": "momentum"}),
        (ONE, icl.Separate(heads=1), {"init": 0.01, "lr": 0.1, "batch": 64}),
        (ONE, icl.Separate(heads=3, layers=2), {"init": 0.03, "init_law": "norm"}),
        (ONE, icl.Separate(heads=4), {"init": 5e-12, "lr": 4e-3, "batch": 32, "weight_decay": 1e-2}),
    ],
)
def test_settings_that_crashed_have_a_forecast(task, model, settings):
    found = icl.predict(task, model, **settings)
    assert len(found.levels) == len(found.drop_times) + 1
    assert np.isfinite(found.loss(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize(
    ("task", "model", "settings", "line"),
    [
        (icl.Task(dim=3, spectrum="0.5,0.5,0"), icl.Merged(heads=3), {}, "spectrum: must have full rank"),
        (ONE, icl.Merged(heads=1), {"init": 1e-3, "init_law": "norm"}, "weights: no part of them grows"),
    ],
)
def test_settings_that_crashed_are_refused_in_a_line(task, model, settings, line):
    with pytest.raises(icl.BadInput, match=line):
        icl.predict(task, model, **settings)
