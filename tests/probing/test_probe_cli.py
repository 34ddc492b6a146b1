"""`iclflow probe` and its figures."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hand_built
import iclflow as icl
from commands import call
from iclflow.data.sequences import Law, fresh
from iclflow.theory.algorithm import plateau_matrix

TASK = icl.Task(dim=4, context=31)


@pytest.fixture
def weights(tmp_path):
    np.savez(tmp_path / "w.npz", **hand_built.separate(plateau_matrix(TASK, 2)))
    return tmp_path / "w.npz"


def test_json_names_algorithm_components_and_distances(capsys, weights):
    code, out, err = call(capsys, "probe", weights, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["algorithm"], found["components"]) == ("pcr", [1, 2])
    assert found["distances"]["pcr-2 shrunk"] < 1e-12 < 0.2 < found["distances"]["zero"]
    assert {
        "margin",
        "ties",
        "gains",
        "fixed_point",
        "heads",
        "vector_blocks",
        "off_distribution",
        "along_training",
    } <= set(found)
    assert len(found["fixed_point"]["distances"]) == 16
    path = found["paths"]["ridge"]
    assert min(path["distance"]) == pytest.approx(found["distances"]["ridge"], rel=0.05)
    assert path["penalty"] == sorted(path["penalty"])
    assert found["heads"]["carrier"][2:] == [None, None]


def test_the_table_is_for_people(capsys, weights):
    code, out, _ = call(capsys, "probe", weights)
    assert code == 0
    assert out.splitlines()[0] == f"{weights} (separate): pcr, components {{1,2}}"
    for part in (
        "pcr-2 shrunk, distance",
        "gain by component",
        "carries",
        "nearest fixed point {1,2}",
        "off distribution",
    ):
        assert part in out


def test_a_run_is_told_along_its_training(capsys, tmp_path):
    call(capsys, "train", "--dim", 2, "--heads", 2, "--init", 0.01, "--save-weights", "--out", tmp_path / "a")
    code, out, _ = call(capsys, "probe", tmp_path / "a", "--figure", tmp_path / "f.png")
    lines = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    rows = [line[2:4] for line in lines if len(line) >= 4]
    assert code == 0
    assert [name for name, _ in rows if name in ("zero", "pcr", "least_squares")][:3] == [
        "zero",
        "pcr",
        "least_squares",
    ]
    assert sorted(p.name for p in tmp_path.glob("f-*")) == ["f-alignment.png", "f-distances.png", "f-gains.png"]


def test_data_of_ones_own_is_probed_on(capsys, weights, tmp_path):
    np.savez(tmp_path / "d.npz", sequences=fresh(Law.of(TASK), (3,), 0, 2000))
    code, out, _ = call(capsys, "probe", weights, "--data", tmp_path / "d.npz", "--json")
    found = json.loads(out)
    assert (code, found["algorithm"], found["components"], found["exact"]) == (0, "pcr", [1, 2], False)
    assert found["sequences"] == 2000
    assert 0 < found["distance"] < 2e-3


def test_several_seeds_are_all_reported(capsys, tmp_path):
    call(capsys, "train", "--model", "merged", "--dim", 2, "--seeds", 2, "--init", 0.01, "--out", tmp_path / "a")
    found = json.loads(call(capsys, "probe", tmp_path / "a", "--json")[1])
    assert [one["algorithm"] for one in found["seeds"]] == [found["algorithm"]] * 2 == ["least_squares"] * 2


BAD = [
    ("nowhere.npz", "weights: 'nowhere.npz' must be an existing file"),
    ("nowhere", "weights: 'nowhere' must be a run directory, a folder"),
    (".", "weights: '.' must hold a run or"),
    ("w.npz --dim 7", "dim: 7 contradicts the weights, which have 4"),
    ("w.npz --dim x", "dim: 'x' must be a whole number"),
    ("w.npz --lr 3", "--lr: unknown flag or argument; see"),
    ("w.npz --data nowhere.npz", "data: 'nowhere.npz' must be an existing file"),
    ("w.npz:other.", "weights: 'w.npz:other.' holds no weights"),
    ("w.npz --figure a.doc", "figure: 'a.doc' must end in"),
    ("", "SOURCE: needs a value"),
]


@pytest.mark.parametrize(("arguments", "line"), BAD)
def test_bad_input_is_one_line_with_exit_code_two(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if arguments != ".":
        np.savez("w.npz", **hand_built.separate(np.eye(4)))
    before = set(tmp_path.iterdir())
    code, out, err = call(capsys, "probe", *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"iclflow: {line}"), err
    assert set(tmp_path.iterdir()) == before


def test_a_damaged_run_has_exit_code_three(capsys, tmp_path):
    call(capsys, "train", "--model", "merged", "--dim", 2, "--init", 0.1, "--out", tmp_path / "a")
    (tmp_path / "a" / "weights.safetensors").write_bytes(b"")
    code, _, err = call(capsys, "probe", tmp_path / "a")
    assert (code, err.count("\n")) == (3, 1)


def test_help_has_an_example_and_refusals_never_load_jax(weights):
    script = (
        "import sys\nfrom iclflow.cli import main\n"
        "for arguments in (['--help'], [sys.argv[1], '--dim', '3'], [sys.argv[1], '--spectrum', 'pink']):\n"
        "    try: main(['probe', *arguments])\n    except SystemExit: pass\n"
        "assert not {'jax', 'xarray', 'diffrax'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(weights)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Example: iclflow probe" in done.stdout


def test_figures_draw_what_the_probe_holds():
    found = icl.probe({**hand_built.merged(plateau_matrix(TASK, 3))}, TASK, shifts=False)
    bars = [bar.get_height() for bar in icl.figures.probe_gains(found).axes[0].patches]
    np.testing.assert_allclose(bars, found.gains.gain[-1])
    shown = icl.figures.probe_alignment(found).axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, found.heads.alignment)
    lines = {line.get_label(): line.get_ydata() for line in icl.figures.probe_distances(found).axes[0].lines}
    assert lines["zero"] == pytest.approx(found.distances["zero"])
    with pytest.raises(icl.BadInput, match="no heads"):
        icl.figures.probe_alignment(icl.probe(lambda s: s[:, -1, :1], icl.Task(dim=2), shifts=False))
