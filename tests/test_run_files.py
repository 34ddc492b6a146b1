"""Runs on disk: complete or absent, exact, and never replaced unless asked."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import iclflow as icl
from iclflow.results import loading, writing
from iclflow.results.labelled import Labelled, Variable
from iclflow.results.run import Run
from iclflow.results.tensors import write_tensors
from iclflow.results.weights import read_weights
from iclflow.system.digest import file_digest
from iclflow.system.manifest import read_manifest, write_manifest

V0_2_0 = Path(__file__).parent / "fixtures" / "v0.2.0" / "sample"
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
    initial = {name: np.asarray(array, order="F") for name, array in run.initial_weights.items()}
    again = icl.load(Run(run.experiment, initial_weights=initial, summary=run.summary, **groups).save(tmp_path / "a"))
    for name, group in run.groups.items():
        xr.testing.assert_identical(getattr(again, name), group.dataset())
    np.testing.assert_array_equal(again.initial_weights["value"], run.initial_weights["value"])


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


def test_a_mean_over_seeds_is_one_over_all_seeds(tmp_path):
    """A seed that has ended keeps its last loss and weights, and `last_step` says where it has ended."""
    run = icl.train(TASK, icl.Separate(heads=2), init=0.1, seeds=3)
    ends = [icl.train(TASK, icl.Separate(heads=2), init=0.1, seed=seed) for seed in range(3)]
    lengths = [one.loss.sizes["step"] for one in ends]
    assert len(set(lengths)) > 1
    for one in (run, icl.load(run.save(tmp_path / "a")), icl.load(run.first_and_last().save(tmp_path / "b"))):
        assert (one.loss.last_step.values + 1).tolist() == lengths
        assert one.loss.mean("seed").values[-1] == np.mean(one.summary["final_loss"])
        assert np.isfinite(one.loss.mean("seed", skipna=False)).all()
        assert np.isfinite(one.weights["value"]).all()
        kept = one.loss.where(one.loss.step <= one.loss.last_step)
        assert kept.notnull().sum("step").values.tolist() == lengths
        for seed, alone in enumerate(ends):
            np.testing.assert_array_equal(one.select(seed).loss.values, alone.loss.values)
            assert one.select(seed).loss.coords.keys() == alone.loss.coords.keys()
            for name, array in alone.final_weights.items():
                np.testing.assert_array_equal(one.final_weights[name][seed], array)
                np.testing.assert_array_equal(one.select(seed).final_weights[name], array)
    for seed, alone in enumerate(ends):
        xr.testing.assert_identical(run.select(seed).weights, alone.weights)


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


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(28, "full"), icl.NoRoom), (KeyboardInterrupt(), KeyboardInterrupt)]
)
@pytest.mark.parametrize(
    ("step", "in_new", "in_old"),
    [("write_tensors", 2, 2), ("write_and_sync", 1, 1), ("sync", 6, 4), ("file_digest", 2, 2)],
)  # the last call of `sync` before the summary gets its name
def test_a_failed_write_leaves_nothing_behind(run, runs, tmp_path, monkeypatch, step, in_new, in_old, error, raised):
    run.save(tmp_path / "old")
    before = contents(tmp_path / "old")
    works, calls = getattr(writing, step), []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == last[target]:
            monkeypatch.setattr(writing, step, works)
            raise error
        return works(*arguments)

    last = {"deep/new": in_new, "old": in_old}
    for target in last:
        calls.clear()
        monkeypatch.setattr(writing, step, fail)
        with pytest.raises(raised):
            runs.save(tmp_path / target, overwrite=target == "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert contents(tmp_path / "old") == before


def contents(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


def test_every_damaged_file_is_found(run, tmp_path):
    run.save(tmp_path / "good")
    assert len(contents(tmp_path / "good")) == 3
    for name in contents(tmp_path / "good"):
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
    summary = read_manifest(tmp_path / "a" / "summary.json")
    write_manifest(tmp_path / "a" / "summary.json", {**summary, "schema": 99})
    with pytest.raises(icl.DamagedStore, match="schema 99"):
        icl.load(tmp_path / "a")


def test_safetensors_keep_transposed_arrays(tmp_path):
    array = np.arange(12.0).reshape(3, 4).T
    write_tensors(tmp_path / "w.safetensors", {"value": array})
    np.testing.assert_array_equal(read_weights(str(tmp_path / "w.safetensors")).weights["value"], array)


@pytest.mark.parametrize("name", ["old", "fresh"])
def test_only_the_files_of_a_run_are_replaced(name, run, runs, tmp_path):
    """Notes, figures, a run below, links, and files with the names that the writer would like to use all stay."""
    if name == "old":
        shutil.copytree(V0_2_0, tmp_path / "a")
    else:
        run.save(tmp_path / "a")
    known = {tmp_path / "a" / name for name in contents(tmp_path / "a")}
    mine = tmp_path / "a" / "mine"
    run.save(mine / "run")
    theirs = ["notes.txt", ".hidden", "loss.pdf", "arrays-12345678.safetensors", "arrays.npz", "mine/run/x.partial"]
    for file in theirs:
        (tmp_path / "a" / file).write_text(file)
    (tmp_path / "a" / "link").symlink_to(mine)
    before = {f: d for f, d in contents(tmp_path / "a").items() if tmp_path / "a" / f not in known}
    for one in (runs, run, runs):
        one.save(tmp_path / "a", overwrite=True)
        after = contents(tmp_path / "a")
        assert {f: after.get(f) for f in before} == before
        assert sorted(after.keys() - before.keys()) == ["arrays.safetensors", "summary.json", "weights.safetensors"]
        assert_same(one, icl.load(tmp_path / "a"))
    assert not (tmp_path / "a" / "arrays.zarr").exists()
    assert_same(run, icl.load(mine / "run"))


def test_files_of_the_user_keep_the_names_that_the_writer_would_use(run, runs, tmp_path):
    run.save(tmp_path / "a")
    (tmp_path / "a" / "arrays.safetensors").rename(tmp_path / "a" / "moved")
    (tmp_path / "a" / "summary.json").unlink()
    (tmp_path / "a" / "weights.safetensors").rename(tmp_path / "w")
    with pytest.raises(icl.BadInput, match="is not a run"):
        runs.save(tmp_path / "a", overwrite=True)
    (tmp_path / "a" / "moved").unlink()
    run.save(tmp_path / "a")
    summary = read_manifest(tmp_path / "a" / "summary.json")
    files = {
        "weights.safetensors": summary["files"]["weights.safetensors"],
        "mine": summary["files"]["arrays.safetensors"],
    }
    (tmp_path / "a" / "arrays.safetensors").rename(tmp_path / "a" / "mine")
    write_manifest(tmp_path / "a" / "summary.json", {**summary, "files": files})
    (tmp_path / "a" / "arrays.safetensors").write_text("the user's own")
    runs.save(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "arrays.safetensors").read_text() == "the user's own"
    assert not (tmp_path / "a" / "mine").exists()
    assert_same(runs, icl.load(tmp_path / "a"))


def test_a_picture_of_the_user_is_not_drawn_over(run, runs, tmp_path):
    where = run.save(tmp_path / "a")
    (where / "loss.pdf").write_text("the user's own")
    for content in (b"one", b"two"):
        with writing.writing(where, overwrite=True):
            writing.write_run(runs, where)
            drawn = writing.add_picture(where, content)
    assert drawn.read_bytes() == b"two"
    assert {file.name for file in where.glob("*.pdf")} == {"loss.pdf", drawn.name}
    assert (where / "loss.pdf").read_text() == "the user's own"
    drawn.unlink()  # a picture is not needed to open a run
    assert_same(runs, icl.load(where))


def test_a_summary_cannot_name_files_elsewhere(run, tmp_path):
    """Otherwise a run from a stranger could have any file removed whose content they know."""
    run.save(tmp_path / "a")
    (tmp_path / "thesis.txt").write_text("years of work")
    summary = read_manifest(tmp_path / "a" / "summary.json")
    for part in ("files", "replaced"):
        digest = {"../thesis.txt": file_digest(tmp_path / "thesis.txt")}
        write_manifest(tmp_path / "a" / "summary.json", {**summary, part: {**summary[part], **digest}})
        with pytest.raises(icl.DamagedStore, match="foreign"):
            icl.load(tmp_path / "a")
        run.save(tmp_path / "a", overwrite=True)
        assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_one_of_several_seeds_keeps_its_own_seed(runs, tmp_path):
    again = icl.load(runs.select(1).save(tmp_path / "a"))
    assert (again.seeds, again.training.seed, again.training.seeds) == ([1], 1, 1)
    assert again.config == runs.select(1).config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": [0, 3]}, "seeds"),
        ({"config": {"seed": 4}}, "seeds"),
        ({"config": {"dim": 3}}, "weights"),
        ({"config": {"heads": 3}}, "weights"),
        ({"steps_done": 7}, "steps"),
        ({"runs": []}, "seeds"),
        ({"seeds": None}, "damaged"),
        ({"config": None}, "damaged"),
    ],
)
def test_seeds_sizes_and_arrays_belong_together(runs, tmp_path, change, words):
    runs.save(tmp_path / "a")
    summary = read_manifest(tmp_path / "a" / "summary.json")
    for name, value in change.items():
        summary[name] = {**summary[name], **value} if isinstance(value, dict) else value
    write_manifest(tmp_path / "a" / "summary.json", summary)
    with pytest.raises(icl.DamagedStore, match=words):
        icl.load(tmp_path / "a")


def test_a_run_that_version_0_2_0_lost_half_way_is_mentioned(run, tmp_path, capsys):
    run.save(tmp_path / ".a.0123abcd.old")
    (tmp_path / ".a.4567abcd.old").mkdir()
    with pytest.raises(icl.BadInput, match=r"has left one in '.*\.a\.0123abcd\.old'$"):
        icl.load(tmp_path / "a")
    run.save(tmp_path / "a")
    assert capsys.readouterr().err.count(".a.0123abcd.old") == 1
    assert_same(run, icl.load(tmp_path / ".a.0123abcd.old"))


def test_a_reader_whose_run_is_replaced_meanwhile_reads_the_new_one(run, runs, tmp_path, monkeypatch):
    run.save(tmp_path / "a")
    read = loading.file_digest

    def replaced(path):
        monkeypatch.setattr(loading, "file_digest", read)
        runs.save(tmp_path / "a", overwrite=True)
        return read(path)

    for _ in range(5):  # the new summary often gets the inode of the old one
        monkeypatch.setattr(loading, "file_digest", replaced)
        assert_same(runs, icl.load(tmp_path / "a"))


def test_a_run_whose_measures_are_no_numbers_is_saved_all_the_same(tmp_path):
    """The squares of its weights are below the smallest number, so that the drift of their norms is 0 / 0."""
    tiny = icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=1e-300, time=1.0, out=tmp_path / "a")
    assert tiny.summary["runs"][0]["conservation_drift"] is None
    assert_same(tiny, icl.load(tmp_path / "a"))


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
