"""Curves from anywhere, over theory and over each other."""

import json

import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import app
from iclflow.comparison.curves import read_curves
from iclflow.comparison.overlay import lay_over
from iclflow.errors import BadInput
from iclflow.results.weights import read_weights
from iclflow.units import clock_rate

TASK = icl.Task(dim=4, context=31, normalize="none")
NAME = "attnM_head8_D4_R1_P5000_N32_seed10.txt"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = icl.train(TASK, icl.Merged(heads=8), init=1e-3, samples=5000, lr=0.002, steps=1500, seed=10)
    run.save(tmp_path_factory.mktemp("runs") / "a")
    return run


@pytest.fixture
def files(run, tmp_path, tmp_path_factory):
    """The same curve as the public code would write it, as a table, and a second one shifted by 0.01."""
    np.savetxt(tmp_path / NAME, run.loss.values)
    run.to_csv(tmp_path / "curve.csv")
    time, loss = run.time.values, run.loss.values
    np.savetxt(
        tmp_path / "shifted.csv", np.stack([time, loss + 0.01], 1), delimiter=",", header="time,loss", comments=""
    )
    run.save(tmp_path / "run")
    return tmp_path


def test_the_public_codes_text_is_put_on_the_clock_by_its_name_and_the_rate(files, run):
    [curve] = read_curves(str(files / NAME), {"lr": 0.002})
    np.testing.assert_allclose(curve.time, run.time.values, rtol=1e-12)
    assert clock_rate(TASK, icl.Merged()) == 62
    assert curve.settings["samples"] == 5000


def test_the_same_curve_from_three_places_is_at_distance_zero_and_theory_is_near(files):
    sources = [files / "run", files / NAME, files / "curve.csv"]
    found = lay_over([c for s in sources for c in read_curves(str(s), {"lr": 0.002})])
    to_theory, *others = found.distances
    assert to_theory.reference == "theory"
    assert to_theory.mean < 0.01
    assert max(d.largest for d in others) < 1e-12
    assert len(found.drops[str(files / NAME)]) == 1


def test_a_known_shift_is_measured(files, run):
    found = lay_over([c for s in ("run", "shifted.csv") for c in read_curves(str(files / s), {})])
    distance = found.distances[-1]
    expected = 0.01 / run.loss.values[0]
    assert (distance.largest, distance.mean) == pytest.approx((expected, expected))


def test_initial_weights_predict_the_course_of_a_file(files, run):
    curves = read_curves(str(files / NAME), {"lr": 0.002})
    assert not lay_over(curves).predictions
    found = lay_over(curves, read_weights(files / "run" / "weights.safetensors").weights)
    assert found.distances[0].mean < 0.02


def test_without_a_rate_files_are_compared_step_by_step(files):
    found = lay_over([c for s in (NAME, "curve.csv") for c in read_curves(str(files / s), {})])
    assert found.clock == "step"
    assert found.distances[-1].largest < 1e-12


def test_the_command_prints_distances_and_leaves_a_figure(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    assert app(["compare", "run", "shifted.csv", "--json"], exit_on_error=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["distances"][-1]["reference"] == "run"
    assert (files / "comparison.pdf").stat().st_size > 1000
    before = (files / "comparison.pdf").stat().st_mtime_ns
    assert app(["compare", "run"], exit_on_error=False) == 0  # the table comes, the figure of before stays
    assert "not drawn, comparison.pdf exists (--overwrite replaces it)" in capsys.readouterr().out
    assert (files / "comparison.pdf").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.txt", "1.0\nhello\n", "rows of numbers"),
        ("a.txt", "", "at least two rows"),
        ("a.txt", "1.0\nnan\n", "finite"),
        ("a.csv", "x,y\n1,2\n3,4\n", "columns loss and time or step"),
        ("a.csv", "time,loss\n1,2\n1,1\n", "must rise"),
        ("a.csv", "time,loss\n1,2\n", "two rows"),
        ("a.csv", "time,loss\n1,a\n2,b\n", "as a table"),
        ("missing.txt", None, "must be an existing file"),
    ],
)
def test_bad_curves_are_refused_in_a_line(name, text, word, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=word) as caught:
        lay_over(read_curves(str(tmp_path / name), {}))
    assert "\n" not in str(caught.value)


def test_curves_without_a_stretch_in_common_are_refused(tmp_path):
    for name, rows in (("a", "1,1\n2,0.9\n"), ("b", "5,1\n6,0.5\n")):
        (tmp_path / f"{name}.csv").write_text("time,loss\n" + rows)
    with pytest.raises(BadInput, match="no stretch in common"):
        lay_over([c for n in "ab" for c in read_curves(str(tmp_path / f"{n}.csv"), {})])
