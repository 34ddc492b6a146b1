"""One verb for runs, directories, files and arrays; from Python and from the command line."""

import json

import numpy as np
import pytest

import commands
import iclflow as icl
from iclflow.results.card import relative

TASK, MODEL = icl.Task(dim=3, context=20), icl.Separate(heads=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("curves")
    run = icl.train(TASK, MODEL, init=0.05, lr=0.2, steps=1500, records=2, out=where / "run")
    run.to_csv(where / "curve.csv")
    return where, run


def test_a_directory_is_the_run_in_it(place):
    where, run = place
    assert icl.compare(where / "run").to_dict() == icl.compare(run).to_dict()


def test_an_array_a_file_and_a_run_have_the_same_gap(place):
    where, run = place
    whole = icl.compare(run)
    known = {"weights": run.initial_weights, "lr": 0.2}
    for subject in (run.loss.values, run.loss.values.tolist(), where / "curve.csv", str(where / "curve.csv")):
        found = icl.compare(subject, TASK, MODEL, **known)
        assert found.distances[0].mean == pytest.approx(whole.mean_gap, rel=1e-9)
    timed = icl.compare(run.loss.values, TASK, MODEL, weights=run.initial_weights, time=run.time.values)
    flow = icl.predict(TASK, MODEL, weights=run.initial_weights).loss(run.time.values)  # no lr tells how far steps lag
    apart = np.abs(run.loss.values - flow).max() / run.loss.values[0]
    assert timed.distances[0].largest == pytest.approx(apart, rel=1e-4)
    assert apart > 4 * whole.largest_gap
    assert "theory" in str(timed)


def test_several_subjects_are_laid_over_each_other(place):
    where, run = place
    found = icl.compare([run, where / "curve.csv", run.loss.values], TASK, MODEL, lr=0.2)
    assert [d.reference for d in found.distances] == ["theory", "run 1, seed 0", "run 1, seed 0"]
    assert max(d.largest for d in found.distances[1:]) < 1e-12


def test_the_command_line_prints_the_table_of_a_run_and_leaves_its_figure_alone(place, capsys, monkeypatch):
    where, run = place
    monkeypatch.chdir(where)
    (where / "comparison.pdf").write_bytes(b"mine")
    code, out, _ = commands.call(capsys, "compare", "run")
    assert code == 0
    assert out.startswith(str(icl.compare(run)))
    assert (where / "comparison.pdf").read_bytes() == b"mine"


def test_predicted_drops_stand_beside_a_curve_whose_initial_weights_are_known(place):
    _, run = place
    found = icl.compare(run.loss.values, TASK, MODEL, weights=run.initial_weights, lr=0.2)
    (first,) = icl.predict(TASK, MODEL, weights=run.initial_weights, lr=0.2).drop_times[:1]
    assert "predicted drops at t/tau" in str(found)
    assert f" {first:.5g} (" in str(found)


@pytest.mark.parametrize("model", [icl.Separate(heads=2, softmax=True), icl.Separate(heads=2, layers=2)])
def test_a_curve_of_a_model_without_a_theory_is_compared_with_the_levels(model):
    levels = icl.theory.plateau_losses(TASK)
    curve = np.interp(np.arange(300), [0, 100, 120, 220, 240, 299], np.repeat(levels[:3], 2))
    found = icl.compare(curve, TASK, model, lr=0.1)
    assert [near for _, near in found.plateaus["curve 1"]] == pytest.approx(levels[:3])


def test_every_run_is_compared_with_the_levels_of_its_own_sample():
    """Samples of 60 sequences have zero losses that differ by several per cent; a plateau lies on its own."""
    settings = {"samples": 60, "init": 1e-3, "lr": 0.05, "steps": 100}
    runs = [icl.train(TASK, icl.Merged(heads=2), seed=seed, **settings) for seed in (0, 1)]
    found = icl.compare(runs)
    near = [found.plateaus[name][0][1] for name in found.plateaus]
    assert near == pytest.approx([float(run.loss[0]) for run in runs], rel=1e-3)
    assert abs(near[0] / near[1] - 1) > 0.005


def test_a_curve_with_its_data_is_compared_with_their_landscape(tmp_path, capsys, monkeypatch):
    """Labels three times as large and another dimension: the population of the default task would be far off."""
    monkeypatch.chdir(tmp_path)
    sequences = icl.sample(TASK, 2000)
    sequences[:, :, 3] *= 3
    np.savez("mine.npz", sequences=sequences)
    run = icl.train(data=sequences, model=icl.Merged(heads=3), init=0.01, lr=0.002, steps=4000, records=2)
    run.to_csv("curve.csv")
    run.save("run")
    own = icl.compare(run)
    found = icl.compare("curve.csv", model=icl.Merged(heads=3), data="mine.npz", lr=0.002, weights=run.initial_weights)
    assert found.distances[0].mean == pytest.approx(own.mean_gap, rel=1e-6)
    assert found.levels[0] == pytest.approx(run.loss.values[0], rel=1e-3)
    files = [
        "--data",
        "mine.npz",
        "--weights",
        "run/weights.safetensors",
        "--model",
        "merged",
        "--lr",
        "0.002",
        "--json",
    ]
    code, out, err = commands.call(capsys, "compare", "curve.csv", *files)
    assert code == 0, err
    assert json.loads(out)["distances"][0]["mean"] == pytest.approx(own.mean_gap, rel=1e-6)


@pytest.mark.parametrize(
    ("subject", "options", "line"),
    [
        (3.0, {}, "subject: an array of shape"),
        ({"a": 1}, {}, "subject: dict must be a run, a directory, a file or an array"),
        (np.array([1.0, np.nan]), {}, "at least two finite losses"),
        (np.ones(3), {"time": [0, 1]}, "time: shape"),
        ("nowhere.csv", {}, "curve: 'nowhere.csv' must be an existing file"),
        (np.ones(3), {"source": "sample"}, "source: chooses the moments of a run"),
    ],
)
def test_what_is_no_curve_is_refused_in_a_line(subject, options, line):
    with pytest.raises(icl.BadInput, match=line):
        icl.compare(subject, **options)


def test_a_run_brings_its_own_settings(place):
    with pytest.raises(icl.BadInput, match="lr: a run brings its own"):
        icl.compare(place[1], lr=0.1)


@pytest.mark.parametrize(
    ("how", "steps"),
    [
        ({"optimizer": "momentum", "beta": 0.9, "lr": 0.02}, 1500),
        ({"lr": 0.2, "weight_decay": 1e-3}, 1500),
        ({"lr": 0.2, "batch": 256}, 1500),
        ({"optimizer": "muon", "lr": 1e-3}, 1500),
    ],
)
def test_a_curve_from_a_file_is_compared_like_the_run_behind_it(how, steps, tmp_path, capsys, monkeypatch):
    """The rule, its momentum, decay and batch were dropped without a word, and the clock lacked 1/(1 - beta)."""
    monkeypatch.chdir(tmp_path)
    run = icl.train(TASK, MODEL, init=0.05, steps=steps, records=2, out="run", **how)
    np.savetxt(
        "curve.csv",
        np.stack([np.arange(steps + 1), run.loss.values], 1),
        delimiter=",",
        header="step,loss",
        comments="",
    )
    own = icl.compare(run).prediction
    found = icl.compare("curve.csv", TASK, MODEL, weights=run.initial_weights, **how)
    (there,) = found.predictions.values()
    np.testing.assert_array_equal(there.drop_times, own.drop_times)
    np.testing.assert_array_equal(there.drop_intervals, own.drop_intervals)
    np.testing.assert_array_equal(found.curves[0].time, run.time.values)
    drawn = icl.compare("curve.csv", TASK, MODEL, init=0.05, **how)  # the same weights, drawn again
    np.testing.assert_array_equal(drawn.predictions["curve.csv"].drop_times, own.drop_times)
    flags = [
        f"--{name.replace('_', '-')}={value}" for name, value in {"dim": 3, "context": 20, "heads": 3, **how}.items()
    ]
    code, out, err = commands.call(capsys, "compare", "curve.csv", "--weights", "run/weights.safetensors", *flags)
    assert code == 0, err
    assert out.startswith(str(icl.compare("curve.csv", TASK, MODEL, weights="run/weights.safetensors", **how)))


def test_an_adam_curve_gets_no_forecast_of_descent(place):
    _, run = place
    found = icl.compare(run.loss.values, TASK, MODEL, weights=run.initial_weights, lr=1e-3, optimizer="adam")
    assert not found.predictions


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"records": 5}, "records: 5 has no effect on a forecast"),
        ({"steps": 5}, "steps: 5 has no effect on the comparison of a curve"),
        ({"batch": 5}, "batch: 5 has no effect without weights or init"),
        ({"lrr": 5}, "lrr: unknown name; did you mean 'lr'"),
        ({"lr": -1}, "lr: -1 must be greater than 0"),
    ],
)
def test_a_setting_without_effect_on_a_curve_is_refused_by_name(settings, line):
    with pytest.raises(icl.BadInput, match=line):
        icl.compare(np.linspace(1, 0.1, 50), TASK, MODEL, **settings)


def test_several_seeds_print_one_table(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = icl.train(TASK, MODEL, init=0.03, seeds=2, out="run")
    found = icl.compare(run)
    assert [one.seed for one in found] == [0, 1]
    lines = str(found).splitlines()
    assert lines[1].split() == ["seed", "drops", "inside", "their", "intervals", "largest", "error", "mean", "gap"]
    inside, error = sum(drop.inside for drop in found[1].drops), max(drop.error for drop in found[1].drops)
    assert lines[3].split()[:5] == ["1", str(inside), "of", "3", relative(error)]
    assert found._repr_html_().count("<tr>") == 3
    assert commands.call(capsys, "compare", "run")[1].startswith(f"{found}\n")
    assert json.loads(commands.call(capsys, "compare", "run", "--json")[1])["runs"] == found.to_dict()["runs"]


def test_a_drop_that_is_over_at_the_start_is_printed_without_an_error(quiet):
    """A time of 0.0 was taken for a missing one, and the table crashed."""
    task = icl.Task(dim=3)
    found = icl.compare(icl.train(task, icl.Separate(heads=4), init=0.6, lr=0.1, steps=6000, batch=64, records=2))
    assert found.window > 1
    assert (found.drops[0].observed_time, found.drops[0].error, found.drops[0].inside) == (0.0, None, None)
    assert all(drop.error < 0.2 for drop in found.drops[1:])
    first = next(line.split() for line in str(found).splitlines() if line.split()[0] == "1")
    assert first[4:7] == ["0", "-", "-"]  # observed, error, inside
    assert found._repr_html_()


def test_the_population_behind_own_data_is_not_made_up():
    sequences = 3 * icl.sample(TASK, 300)
    run = icl.train(data=sequences, model=icl.Merged(heads=3), init=0.01, lr=0.001, steps=50)
    with pytest.raises(icl.BadInput, match="source: must be 'sample' for a run on your own data"):
        icl.compare(run, source="population")
    assert icl.compare(run).source == "sample"


def test_a_run_from_learned_weights_is_not_compared_with_the_level_above_its_start():
    """It begins at the second plateau, and was told that its first one is at the loss of zero weights."""
    model = icl.Merged(heads=4)
    first = icl.train(TASK, model, init=1e-3, time=60.0)
    early = next(w for w in first.snapshots() if icl.train(TASK, model, weights=w, time=1.0).loss.values[0] < 0.7)
    run = icl.train(TASK, model, weights=early)
    found = icl.compare(run)
    assert run.loss.values[0] < 0.7 < found.prediction.levels[0]
    assert all(plateau.predicted_level < 0.7 for plateau in found.plateaus)
