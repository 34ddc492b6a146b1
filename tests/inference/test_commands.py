"""The commands, and what `compare` offers."""

import json

import numpy as np
import pytest

import iclflow as icl
from commands import call


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    """A curve from elsewhere: times and losses in a table."""
    run = icl.train(icl.Task(spectrum=(0.5, 0.3), context=12, basis="identity"), icl.Separate(heads=3), init=1e-3)
    path = tmp_path_factory.mktemp("curve") / "mine.csv"
    rows = np.column_stack([run.time.values, run.loss.values])
    np.savetxt(path, rows, delimiter=",", header="time,loss", comments="", fmt="%.12g")
    return path


def test_infer_prints_what_python_holds(capsys, curve):
    code, out, _ = call(capsys, "infer", str(curve))
    assert code == 0
    assert "context 12" in out
    found = json.loads(call(capsys, "infer", str(curve), "--json")[1])
    assert found == icl.infer(curve).to_dict()
    assert found["eigenvalues"] == pytest.approx([0.5, 0.3], rel=1e-3)
    merged = json.loads(call(capsys, "infer", str(curve), "--model", "merged", "--json")[1])
    assert merged["fits"] is False


def test_design_prints_a_task_and_writes_weights(capsys, tmp_path):
    out = tmp_path / "start.npz"
    code, text, _ = call(capsys, "design", "1,0.7,0.5,0.4", "--drop-times", "100,300,800", "--out", str(out), "--json")
    assert code == 0
    found = json.loads(text)
    wanted = icl.design([1, 0.7, 0.5, 0.4], drop_times=[100, 300, 800])
    assert found == wanted.to_dict()
    assert np.array_equal(np.load(out)["key"], wanted.weights["key"])


@pytest.mark.parametrize(
    "words", [["infer", "none.csv"], ["design", "1,2"], ["design", "1,x"], ["design", "1,0.5", "--out", "w.txt"]]
)
def test_bad_input_is_one_line(capsys, words):
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1


def test_compare_offers_the_task_that_fits(capsys, curve, tmp_path):
    picture = str(tmp_path / "c.pdf")
    code, out, _ = call(capsys, "compare", str(curve), "--dim", "2", "--spectrum", "0.7,0.2", "--out", picture)
    assert code == 0
    assert "levels of the task you gave are" in out
    assert "this curve fits eigenvalues 0.5 0.3 at context 12" in out
    fitting = ["compare", str(curve), "--spectrum", "0.5,0.3", "--context", "12", "--out", picture, "--overwrite"]
    assert "levels of the task" not in call(capsys, *fitting)[1]
