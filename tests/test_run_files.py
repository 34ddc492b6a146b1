"""Runs on disk: complete or absent, exact, and never replaced unless asked."""

import json
import os
import shutil

import numpy as np
import pytest
import xarray as xr

import iclflow as icl
from iclflow.results import writing
from iclflow.results.labelled import Labelled, Variable
from iclflow.results.run import Run
from iclflow.results.tensors import write_tensors
from iclflow.results.weights import read_weights
from iclflow.system import atomic

TASK = icl.Task(dim=2, context=5)


@pytest.fixture(scope="module")
def run():
    return icl.train(TASK, icl.Separate(heads=2), samples=20, lr=0.05, steps=30, optimizer="adam")


@pytest.fixture(scope="module")
def runs():
    return icl.train(TASK, icl.Merged(heads=2), init=0.2, seeds=2)


def assert_same(a, b):
    xr.testing.assert_identical(a.curves, b.curves)
    xr.testing.assert_identical(a.weights, b.weights)
    for name, array in a.initial_weights.items():
        np.testing.assert_array_equal(array, b.initial_weights[name])
    assert a.config == b.config
    assert a.summary == b.summary


def test_a_saved_run_comes_back_without_loss(run, runs, tmp_path):
    for number, one in enumerate((run, runs)):
        one.save(tmp_path / str(number))
        assert_same(one, icl.load(tmp_path / str(number)))


def test_axes_coordinates_attributes_and_types_come_back(run, runs, tmp_path):
    for number, one in enumerate((run, runs, runs.select(1), runs.first_and_last())):
        again = icl.load(one.save(tmp_path / str(number)))
        for group in one.groups:
            before, after = getattr(one, group), getattr(again, group)
            xr.testing.assert_identical(before, after)
            assert list(before.coords) == list(after.coords)
            for name, array in before.variables.items():
                assert (array.dims, array.dtype, array.attrs) == (
                    after[name].dims,
                    after[name].dtype,
                    after[name].attrs,
                )
    assert runs.loss.attrs["units"] == "mean squared error per label"


def test_arrays_in_any_order_in_memory_come_back(run, tmp_path):
    """The library for safetensors writes wrong numbers where an array is not contiguous."""
    turned = lambda v: Variable(v.dims, np.asarray(v.values, order="F"), v.attrs)
    groups = {name: Labelled({n: turned(v) for n, v in group.variables.items()}) for name, group in run.groups.items()}
    assert not groups["weights"]["value"].flags.c_contiguous
    transposed = {name: array.swapaxes(-1, -2) for name, array in run.initial_weights.items()}
    again = icl.load(
        Run(run.experiment, initial_weights=transposed, summary=run.summary, **groups).save(tmp_path / "a")
    )
    for name, group in run.groups.items():
        xr.testing.assert_identical(getattr(again, name), group.dataset())
    np.testing.assert_array_equal(again.initial_weights["key"], transposed["key"])


def test_others_may_read_what_the_user_lets_them_read(run, tmp_path):
    run.save(tmp_path / "a")
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "a").glob("*.*")} == {0o666 & ~mask()}


def mask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_arrays_without_xarray_are_those_of_the_datasets(runs):
    labelled, dataset = runs.arrays("weights"), runs.weights
    assert labelled.sizes == dict(dataset.sizes)
    assert set(labelled.values()) == set(dataset.data_vars)
    for name, variable in labelled.variables.items():
        assert variable.dims == dataset[name].dims
        np.testing.assert_array_equal(labelled[name], dataset[name].values)
    xr.testing.assert_identical(labelled.pick("seed", 1).dataset(), dataset.isel(seed=1, drop=True))
    places = np.array([2, 0])
    xr.testing.assert_identical(labelled.take("record", places).dataset(), dataset.isel(record=places))
    each = np.array([[0, 1], [2, 3]])  # other records for every seed
    picked = dataset.isel(record=xr.DataArray(each, dims=("seed", "record")))
    xr.testing.assert_identical(labelled.take("record", each).dataset(), picked)


def test_existing_results_are_kept_unless_asked(run, tmp_path):
    run.save(tmp_path / "a")
    before = (tmp_path / "a" / "summary.json").read_bytes()
    with pytest.raises(icl.BadInput, match="exists; choose another directory, or give overwrite=True"):
        run.save(tmp_path / "a")
    assert (tmp_path / "a" / "summary.json").read_bytes() == before
    run.save(tmp_path / "a", overwrite=True)
    assert_same(run, icl.load(tmp_path / "a"))


def test_overwrite_never_replaces_what_is_not_a_run(run, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(icl.BadInput, match="is not a run"):
        run.save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_place_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(icl.BadInput, match="must be a directory that you can write to"):
        icl.train(TASK, icl.Merged(heads=2), samples=20, lr=0.05, steps=30, out=tmp_path / "file" / "run")


def test_a_failed_write_leaves_nothing_behind(run, tmp_path, monkeypatch):
    run.save(tmp_path / "old")

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write_tensors", full_disk)
    for target, overwrite in (("new", False), ("old", True)):
        with pytest.raises(icl.NoRoom, match="No space left"):
            run.save(tmp_path / target, overwrite)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert_same(run, icl.load(tmp_path / "old"))


def test_an_interrupted_write_is_never_taken_for_a_run(run, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "force_to_disk", stop)
    with pytest.raises(KeyboardInterrupt):
        run.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_every_damaged_file_is_found(run, tmp_path):
    run.save(tmp_path / "good")
    files = [f.relative_to(tmp_path / "good") for f in (tmp_path / "good").rglob("*") if f.is_file()]
    assert len(files) == 3
    for name in files:
        for damage in ("flip", "cut", "remove"):
            shutil.rmtree(tmp_path / "bad", ignore_errors=True)
            shutil.copytree(tmp_path / "good", tmp_path / "bad")
            target = tmp_path / "bad" / name
            content = bytearray(target.read_bytes())
            if damage == "remove":
                target.unlink()
            elif damage == "cut":
                target.write_bytes(content[: len(content) // 2])
            else:
                content[len(content) // 2] ^= 255
                target.write_bytes(content)
            with pytest.raises((icl.DamagedStore, icl.BadInput)):
                icl.load(tmp_path / "bad")


def test_another_schema_is_refused(run, tmp_path):
    run.save(tmp_path / "a")
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    summary["schema"] = 99
    (tmp_path / "a" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(icl.DamagedStore, match="schema 99"):
        icl.load(tmp_path / "a")


def test_safetensors_keep_transposed_arrays(tmp_path):
    array = np.arange(12.0).reshape(3, 4).T
    write_tensors(tmp_path / "w.safetensors", {"value": array})
    np.testing.assert_array_equal(read_weights(str(tmp_path / "w.safetensors")).weights["value"], array)


def test_exports_hold_the_curve(run, runs, tmp_path):
    run.to_npz(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        np.testing.assert_array_equal(file["loss"], run.loss.values)
        np.testing.assert_array_equal(file["final_weights.value"], run.final_weights["value"])
    runs.to_csv(tmp_path / "a.csv")
    table = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True)
    first = table[table["seed"] == 0]
    np.testing.assert_allclose(first["loss"], runs.select(0).loss.values, rtol=1e-12)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 40, (2**40).to_bytes(8, "little") + b"{}"])
def test_files_that_are_not_safetensors_are_refused(content, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(icl.BadInput, match="is not a safetensors file"):
        read_weights(str(tmp_path / "w.safetensors"))


def test_a_run_on_a_whole_covariance_matrix_comes_back(tmp_path):
    task = icl.Task(spectrum=np.array([[0.6, 0.1], [0.1, 0.4]]), context=5)
    run = icl.train(task, icl.Merged(heads=1), lr=0.1, steps=5, out=tmp_path / "a")
    assert icl.load(tmp_path / "a").experiment == run.experiment
