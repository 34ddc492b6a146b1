"""One verb for runs, directories, files and arrays; from Python and from the command line."""

import json

import numpy as np
import pytest

import commands
import iclflow as icl

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
    assert apart > 10 * whole.largest_gap
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
    assert f"predicted drops at t/tau: {first:.5g} (" in str(found)


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
        ("nowhere.csv", {}, "curve: 'nowhere.csv' must be a run directory"),
        (np.ones(3), {"source": "sample"}, "source: chooses the moments of a run"),
    ],
)
def test_what_is_no_curve_is_refused_in_a_line(subject, options, line):
    with pytest.raises(icl.BadInput, match=line):
        icl.compare(subject, **options)


def test_a_run_brings_its_own_settings(place):
    with pytest.raises(icl.BadInput, match="lr: a run brings its own"):
        icl.compare(place[1], lr=0.1)
