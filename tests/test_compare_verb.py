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
    assert timed.distances[0].largest == pytest.approx(whole.largest_gap, rel=1e-9)
    assert "theory" in str(timed)


def test_several_subjects_are_laid_over_each_other(place):
    where, run = place
    found = icl.compare([run, where / "curve.csv", run.loss.values], TASK, MODEL, lr=0.2)
    assert [d.reference for d in found.distances] == ["theory", "run 1, seed 0", "run 1, seed 0"]
    assert max(d.largest for d in found.distances[1:]) < 1e-12


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
