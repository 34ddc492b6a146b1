"""Sweeps of a user's own sequences: no change of the file goes unseen, and results outlive it."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import main
from iclflow.data.own import read_own_data
from iclflow.sweeps import grid as grids
from iclflow.sweeps.store.check import check
from iclflow.sweeps.sweep_file import grid_from
from iclflow.system.manifest import read_manifest, write_manifest

SETTINGS = {"model": "merged", "heads": 2, "lr": 0.01, "steps": 20}


@pytest.fixture
def arrays():
    return {"sequences": np.random.default_rng(0).standard_normal((40, 6, 3))}


@pytest.fixture
def file(tmp_path, arrays):
    np.savez(tmp_path / "d.npz", **arrays)
    return tmp_path / "d.npz"


def swept(file, out, **more):
    return icl.sweep({"base": {**SETTINGS, "data": str(file)}}, out, workers=0, **more)


def test_a_second_sweep_after_the_file_changed_trains_on_the_new_data(tmp_path, file, arrays):
    swept(file, tmp_path / "old")
    np.savez(file, sequences=arrays["sequences"] + 1)
    second = swept(file, tmp_path / "new")
    run = icl.train(data=file, model=icl.Merged(heads=2), lr=0.01, steps=20)
    np.testing.assert_array_equal(second.data["loss"].values[0, :21], run.loss.values)


def test_the_digest_covers_test_sets_out_dim_and_shapes(arrays):
    train = arrays["sequences"]
    digest = lambda **given: read_own_data(given, None)[0].digest
    several = [
        digest(sequences=train),
        digest(sequences=train, sequences_icl=train[:5]),
        digest(sequences=train, sequences_iwl=train[:5]),
        digest(sequences=train, sequences_icl=train[1:6]),
        digest(sequences=train, out_dim=np.array(2)),
        digest(sequences=train.reshape(20, 12, 3)),
    ]
    assert len(set(several)) == len(several)
    assert digest(sequences=train, out_dim=np.array(1)) == several[0]


def test_a_run_on_own_data_is_resumed_on_the_same_and_on_no_other(file, arrays, quiet):
    run = icl.train(icl.Task(out_dim=2), icl.Merged(heads=2), data=arrays["sequences"], lr=0.01, steps=5)
    longer = icl.resume(run, steps=5, data=arrays["sequences"])
    assert longer.loss.sizes["step"] == 11
    with pytest.raises(icl.BadInput, match="is not what this run was trained on"):
        icl.resume(run, steps=5, data=arrays["sequences"] + 1)


def test_out_dim_may_stand_in_the_sweep_file(tmp_path, file):
    sweep = icl.sweep({"base": {**SETTINGS, "data": str(file), "out_dim": 2}}, tmp_path / "s", workers=0)
    assert sweep.status == {"ok": 1}


def test_a_data_file_is_read_once_for_a_grid(file, monkeypatch):
    reads = []
    monkeypatch.setattr(grids, "read_own_data", lambda *a: reads.append(a) or read_own_data(*a))
    grid = grid_from({"base": {**SETTINGS, "data": str(file)}, "axes": {"init": [0.1, 0.2, 0.3]}, "seeds": 4})
    assert (grid.drop_slots, grid.has_tests, len(grid.digest)) == (4, True, 64)
    assert [grid.experiment(run).task.dim for run in range(12)] == [2] * 12
    assert len(reads) == 1


def test_a_finished_sweep_outlives_its_data(tmp_path, file, capsys):
    before = swept(file, tmp_path / "s")
    file.unlink()
    after = icl.load(tmp_path / "s")
    np.testing.assert_array_equal(after.data["loss"], before.data["loss"])
    assert check(tmp_path / "s").fine
    assert after.experiment(seed=0).task.dim == 2
    for words in (["status"], ["check"], ["export", "--csv", str(tmp_path / "a.csv")]):
        with pytest.raises(SystemExit) as left:
            main(["sweep", words[0], str(tmp_path / "s"), *words[1:]])
        assert left.value.code == 0, capsys.readouterr().err


def test_a_store_without_sizes_still_opens(tmp_path, file):
    swept(file, tmp_path / "s")
    for name in ("sweep.json", "sweep.copy.json"):
        about = read_manifest(tmp_path / "s" / name)
        write_manifest(tmp_path / "s" / name, {key: value for key, value in about.items() if key != "sizes"})
    assert icl.load(tmp_path / "s").status == {"ok": 1}
