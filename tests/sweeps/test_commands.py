"""`iclflow sweep` and its commands, called as a shell would."""

import json
import shutil

import numpy as np
import pytest

import iclflow as icl
from commands import call

FILE = """\
seeds = 2
points = 30
[base]
model = "merged"
heads = 2
dim = 2
context = 4
lr = 0.05
steps = 20
samples = 40
[axes]
init = [0.1, 0.2]
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "a.toml").write_text(FILE)
    return tmp_path / "a.toml"


@pytest.fixture
def done(file, tmp_path, capsys):
    assert call(capsys, "sweep", file, "--out", tmp_path / "s", "--workers", 0)[0] == 0
    return tmp_path / "s"


def test_a_sweep_says_what_it_will_take_and_what_came_of_it(file, tmp_path, capsys):
    code, out, _ = call(capsys, "sweep", file, "--out", tmp_path / "s", "--workers", 0)
    assert code == 0
    first, last = out.splitlines()
    assert first.startswith(f"{file}: 4 runs on 2 datasets, ")
    assert first.endswith(" of disk")
    assert last == f"{tmp_path / 's'}: 4 of 4 runs are done (4 ok)"


def test_a_dry_run_writes_nothing(file, tmp_path, capsys):
    code, out, _ = call(capsys, "sweep", file, "--out", tmp_path / "s", "--dry-run")
    assert code == 0
    assert "4 runs" in out
    assert not (tmp_path / "s").exists()


def test_an_existing_sweep_is_only_resumed_when_asked_and_unchanged(file, done, capsys):
    code, _, err = call(capsys, "sweep", file, "--out", done)
    assert code == 2
    assert "--resume" in err
    before = {f: f.stat().st_mtime_ns for f in (done / "runs").iterdir()}
    assert call(capsys, "sweep", file, "--out", done, "--resume")[0] == 0
    assert {f: f.stat().st_mtime_ns for f in (done / "runs").iterdir()} == before
    file.write_text(FILE.replace("steps = 20", "steps = 30"))
    code, _, err = call(capsys, "sweep", file, "--out", done, "--resume")
    assert code == 2
    assert err.startswith("iclflow: base.steps: was 20, is now 30; ")
    code, _, err = call(capsys, "sweep", file, "--out", done, "--resume", "--summary")
    assert code == 2


def test_what_is_left_is_what_a_resumed_sweep_will_take(file, done, capsys):
    (done / "runs" / "000001.json").unlink()
    code, out, _ = call(capsys, "sweep", file, "--out", done, "--workers", 0, "--resume")
    assert code == 0
    assert out.startswith(f"{file}: 1 runs, ")


def test_a_strange_directory_is_left_alone(file, tmp_path, capsys):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    for flags in ([], ["--resume"]):
        code, _, err = call(capsys, "sweep", file, "--out", tmp_path / "home", *flags)
        assert code == 2
        assert "holds 'thesis.txt'" in err
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["thesis.txt"]


def test_a_making_that_was_cut_short_is_begun_again(file, done, tmp_path, capsys):
    for piece in ((done / "sweep.json"), *(done / "runs").iterdir()):
        piece.unlink()
    assert call(capsys, "sweep", file, "--out", done, "--workers", 0)[0] == 0
    assert icl.load(done).status == {"ok": 4}


def test_a_name_that_no_disk_takes_is_refused(file, tmp_path, capsys):
    code, _, err = call(capsys, "sweep", file, "--out", tmp_path / ("x" * 300), "--workers", 0)
    assert code == 2
    assert err.startswith("iclflow: out: ")
    assert err.count("\n") == 1


def test_a_store_that_lost_all_its_manifests_opens_empty_and_is_filled_again(file, done, capsys):
    shutil.rmtree(done / "runs")
    assert icl.load(done).status == {"missing": 4}
    assert call(capsys, "sweep", "check", done)[0] == 3
    assert call(capsys, "sweep", file, "--out", done, "--workers", 0, "--resume")[0] == 0
    assert icl.load(done).status == {"ok": 4}


def test_a_diverging_run_is_exit_code_one(file, tmp_path, capsys):
    file.write_text(FILE.replace("[0.1, 0.2]", "[0.1, 1e4]"))
    code, out, _ = call(capsys, "sweep", file, "--out", tmp_path / "s", "--workers", 0)
    assert code == 1
    assert "4 of 4 runs are done (2 diverged, 2 ok)" in out
    code, out, _ = call(capsys, "sweep", "status", tmp_path / "s")
    assert code == 0
    assert "2 diverged, 2 ok" in out
    assert "run 2 diverged: the loss blew up" in out


def test_status_in_words_and_as_json(done, capsys):
    code, out, _ = call(capsys, "sweep", "status", done)
    assert code == 0
    assert out.splitlines() == [f"{done}: 4 runs (2 init x 2 seed): 4 ok", "nobody is at work on it"]
    found = json.loads(call(capsys, "sweep", "status", done, "--json")[1])
    assert found == {"runs": 4, "status": {"ok": 4}, "writer": None}


def test_check_is_silent_on_a_sound_store_and_says_three_on_a_gap(done, capsys):
    code, out, err = call(capsys, "sweep", "check", done)
    assert (code, err) == (0, "")
    assert out == f"{done}: all 4 runs are intact\n"
    (done / "runs" / "000001.json").unlink()
    code, out, _ = call(capsys, "sweep", "check", done)
    assert code == 3
    assert out == f"{done}: 1 of 4 runs are missing\n"
    assert call(capsys, "sweep", "check", done, "--repair", "--workers", 0)[0] == 0
    assert call(capsys, "sweep", "check", done)[0] == 0


def test_exports_and_figures_are_files(done, tmp_path, capsys):
    code, out, _ = call(capsys, "sweep", "export", done, "--csv", tmp_path / "a.csv", "--netcdf", tmp_path / "a.nc")
    assert code == 0
    assert out.count("4 runs, 4 ok") == 2
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 5
    for name, flags in (("a.png", []), ("b.pdf", ["--along", "init", "--quantity", "final_loss"])):
        assert call(capsys, "sweep", "figure", done, "--out", tmp_path / name, *flags)[0] == 0
        assert (tmp_path / name).stat().st_size > 2000


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["sweep", "nowhere.toml", "--out", "x"], "file: 'nowhere.toml' must be an existing file"),
        (["sweep", "status", "nowhere"], "dir: 'nowhere' must be a sweep"),
        (["sweep", "check", "nowhere"], "dir: 'nowhere' must be a sweep"),
        (["sweep", "export", "nowhere"], "csv: give --csv FILE or --netcdf FILE"),
        (["sweep", "export", "nowhere", "--csv", "a.csv"], "dir: 'nowhere' must be a sweep"),
        (["sweep", "figure", "nowhere", "--out", "a.txt"], "out: 'a.txt' must end in"),
        (["sweep", "figure", "nowhere", "--out", "a.png"], "dir: 'nowhere' must be a sweep"),
    ],
)
def test_bad_arguments_are_one_line_and_nothing_is_written(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"iclflow: {line}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_load_still_opens_runs(tmp_path, quiet):
    icl.train(icl.Task(dim=2), icl.Merged(heads=2), samples=20, lr=0.1, steps=5, out=tmp_path / "r")
    assert np.isfinite(icl.load(tmp_path / "r").loss.values).all()
    with pytest.raises(icl.BadInput, match="must be a run directory"):
        icl.load(tmp_path / "nowhere")
