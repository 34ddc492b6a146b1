"""The results of a sweep: bit for bit those of `train`, labelled, shared where data are, and out again."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import iclflow as icl
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.sweeps.store.protocol import open_store
from iclflow.sweeps.workers import sharing
from iclflow.system.lru_cache import LRUCache
from iclflow.system.thinning import kept_places

BASE = {"model": "merged", "heads": 2, "dim": 2, "context": 5, "lr": 0.1, "steps": 60}
GRID = {
    "seeds": [3, 7],
    "points": "all",
    "base": BASE,
    "axes": {"init": [0.05, 0.1]},
    "zip": [{"samples": [30, 50], "batch": [30, 25]}],
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return icl.sweep(GRID, tmp_path_factory.mktemp("sweeps") / "s", workers=0)


def trained(**settings) -> icl.Run:
    experiment = Experiment.from_flat(settings)
    chosen = {name: getattr(experiment.training, name) for name in experiment.training.model_fields_set}
    return icl.train(experiment.task, experiment.model, **chosen)


def test_every_run_has_the_bits_of_train(sweep):
    for init in (0.05, 0.1):
        for samples, batch in ((30, 30), (50, 25)):
            for seed in (3, 7):
                run = trained(**BASE, init=init, samples=samples, batch=batch, seed=seed)
                mine = sweep.data.sel(init=init, samples=samples, seed=seed)
                np.testing.assert_array_equal(mine["loss"], run.loss.values)
                np.testing.assert_array_equal(mine["curve_time"], run.time.values)
                assert mine["final_loss"] == run.loss.values[-1]


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "separate", "heads": 2, "dim": 2, "context": 5, "init": 0.1},
        {"model": "separate", "heads": 2, "dim": 2, "context": 5, "samples": 60, "data_seed": 1, "init": 0.1},
        {**BASE, "softmax": True, "samples": 30, "normalize": "none"},
        {**BASE, "icl_fraction": 0.5, "samples": 40, "test_samples": 20, "optimizer": "adam"},
        {**BASE, "samples": 9000, "prefix_loss": True},
    ],
    ids=["flow", "flow on a sample", "softmax", "tests", "two chunks"],
)
def test_every_engine_has_the_bits_of_train(settings, tmp_path, quiet):
    sweep = icl.sweep({"points": 100_000, "base": settings, "seeds": [2]}, tmp_path / "s", workers=0)
    run = trained(**settings, seed=2)
    mine = sweep.data.isel(seed=0)
    length = run.loss.sizes["step"]
    np.testing.assert_array_equal(mine["loss"][:length], run.loss.values)
    assert np.isnan(mine["loss"][length:]).all()
    for name in ("loss_icl", "loss_iwl"):
        if name in run.curves:
            np.testing.assert_array_equal(mine[name][:length], run.curves[name].values)
    assert mine["status"] == run.status


def test_the_dataset_has_the_axes_as_named_dimensions(sweep):
    assert sweep.data["loss"].dims == ("init", "samples", "seed", "point")
    assert sweep.data["batch"].dims == ("samples",)
    assert sweep.data["batch"].values.tolist() == [30, 25]
    assert sweep.data["drop_times"].dims == ("init", "samples", "seed", "drop_number")
    assert sweep.status == {"ok": 8}
    assert sweep.finished
    assert sweep.data["seed"].values.tolist() == [3, 7]


def test_runs_that_share_data_share_the_moments(tmp_path):
    grid = {"seeds": 2, "base": {**BASE, "samples": 80}, "axes": {"init": [0.1, 0.2, 0.3], "heads": [2, 3]}}
    grid["base"].pop("heads")
    sharing.KEPT.things.clear()
    before = sharing.KEPT.made
    icl.sweep(grid, tmp_path / "s", workers=0)
    assert sharing.KEPT.made - before == 2  # one per seed, not one per run
    assert max(len(sharing.KEPT.things), 1) <= sharing.KEPT.most


def test_what_is_kept_for_others_is_bounded():
    kept = LRUCache(8, 2**29, least=1)
    for number in range(20):
        kept.get(number, lambda: [np.zeros(1000)])
    assert list(kept.things) == list(range(12, 20))
    kept.most_bytes = 20_000
    kept.get("large", lambda: [np.zeros(3000)])
    assert list(kept.things) == ["large"]
    assert kept.get("large", lambda: None)[0].size == 3000
    kept.least = 0
    assert kept.get("larger", lambda: [np.zeros(4000)])[0].size == 4000
    assert list(kept.things) == []


def test_runs_on_workers_share_moments_and_have_the_same_bits(tmp_path):
    grid = {"seeds": 2, "base": {**BASE, "samples": 80}, "axes": {"init": [0.1, 0.2]}}
    here, there = (icl.sweep(grid, tmp_path / str(n), workers=n) for n in (0, 2))
    for name in ("loss", "final_loss", "drop_times", "plateau_losses", "status"):
        np.testing.assert_array_equal(here.data[name].values, there.data[name].values)


def test_a_run_can_be_made_again_from_its_manifest_alone(sweep):
    experiment = sweep.experiment(init=0.1, samples=50, seed=7)
    record = open_store(sweep.path).record(sweep.number(init=0.1, samples=50, seed=7))
    assert experiment == Experiment.from_flat(record["config"])
    run = trained(**{k: v for k, v in record["config"].items() if v is not None})
    np.testing.assert_array_equal(sweep.data.sel(init=0.1, samples=50, seed=7)["loss"], run.loss.values)
    with pytest.raises(BadInput, match="samples: must be given too"):
        sweep.experiment(init=0.1, seed=7)


def test_a_run_that_fails_is_a_row_and_not_the_end(tmp_path):
    grid = {"base": {**BASE, "samples": 40}, "axes": {"init": [0.1, 1e4]}}
    sweep = icl.sweep(grid, tmp_path / "s", workers=0)
    assert sweep.data["status"].values.ravel().tolist() == ["ok", "diverged"]
    assert "blew up" in sweep.data["why"].values.ravel()[1]
    assert sweep.data["final_loss"].values.ravel()[0] > 0


def test_a_run_that_raises_is_a_row_with_its_reason(tmp_path):
    grid = {"base": {**BASE, "dim": 5}, "axes": {"samples": [4, 40]}}  # too few to whiten the task vectors
    sweep = icl.sweep(grid, tmp_path / "s", workers=0)
    assert sweep.status == {"failed": 1, "ok": 1}
    assert "must exceed dim = 5" in sweep.data["why"].values.ravel()[0]
    assert np.isnan(sweep.data["final_loss"].values.ravel()[0])


def test_an_unfinished_sweep_opens_with_gaps(sweep, tmp_path):
    path = tmp_path / "s"
    icl.sweep(GRID, path, workers=0)
    (path / "runs" / "000002.json").unlink()
    half = icl.load(path)
    assert half.status == {"missing": 1, "ok": 7}
    assert not half.finished
    flat = half.data["loss"].values.reshape(8, -1)
    assert np.isnan(flat[2]).all()
    np.testing.assert_array_equal(np.delete(flat, 2, 0), np.delete(sweep.data["loss"].values.reshape(8, -1), 2, 0))


def test_summary_keeps_the_quantities_and_no_curves(sweep, tmp_path):
    small = icl.sweep(GRID, tmp_path / "s", workers=0, summary=True)
    assert "loss" not in small.data
    np.testing.assert_array_equal(small.data["plateau_losses"], sweep.data["plateau_losses"])
    assert not list((tmp_path / "s" / "arrays.zarr").glob("curves"))


def test_exports_come_back(sweep, tmp_path):
    sweep.to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", engine="scipy") as back:
        for name in ("loss", "final_loss", "drop_times", "curve_time"):
            np.testing.assert_array_equal(back[name].values, sweep.data[name].values)
        assert back["status"].values.astype(str).tolist() == sweep.data["status"].values.astype(str).tolist()
        assert back["samples"].values.tolist() == [30, 50]
    sweep.to_csv(tmp_path / "a.csv")
    rows = pd.read_csv(tmp_path / "a.csv")
    assert len(rows) == 8
    np.testing.assert_array_equal(rows["final_loss"], sweep.data["final_loss"].values.ravel())
    assert rows["batch"].tolist() == [30, 30, 25, 25] * 2
    assert {"init", "samples", "seed", "status", "drop_time_1", "plateau_loss_0"} <= set(rows)


def test_directions_learned_and_drops_are_counted(tmp_path, quiet):
    base = {"dim": 2, "context": 20, "heads": 3, "init": 5e-3}
    sweep = icl.sweep({"seeds": 2, "base": base, "axes": {"time": [10.0, 4e4]}}, tmp_path / "s", workers=0)
    assert sweep.data["components"].values.tolist() == [[0, 0], [2, 2]]
    assert sweep.data["drops"].values.tolist() == [[0, 0], [2, 2]]
    levels = icl.theory.plateau_losses(icl.Task(dim=2, context=20))
    np.testing.assert_allclose(sweep.data["plateau_losses"].sel(time=4e4, seed=0)[:3], levels, rtol=5e-3)
    late = sweep.data["drop_times"].sel(time=4e4, seed=0).values[:2]
    expected = icl.predict(icl.Task(dim=2, context=20), icl.Separate(heads=3), init=5e-3, seed=0).drop_times
    np.testing.assert_allclose(late, expected, rtol=0.05)


def test_a_thinned_curve_keeps_its_ends_and_every_drop():
    time = np.linspace(0, 1e4, 100_001)
    loss = 2 - np.tanh((time - 50) / 5) / 2 - np.tanh((time - 9000) / 5) / 2
    places = kept_places(time, loss, 200)
    assert places[0] == 0
    assert places[-1] == 100_000
    assert len(places) <= 200
    assert np.abs(np.diff(loss[places])).max() < 0.05
    assert np.diff(time[places]).max() < 0.05 * 1e4


def test_a_sweep_of_own_data_remembers_the_file(tmp_path, monkeypatch):
    data = np.random.default_rng(0).standard_normal((40, 6, 3))
    np.savez(tmp_path / "d.npz", sequences=data)
    grid = {"base": {"data": str(tmp_path / "d.npz"), "model": "merged", "heads": 2, "lr": 0.01, "steps": 20}}
    sweep = icl.sweep(grid, tmp_path / "s", workers=0)
    run = icl.train(data=tmp_path / "d.npz", model=icl.Merged(heads=2), lr=0.01, steps=20)
    np.testing.assert_array_equal(sweep.data["loss"].values[0, :21], run.loss.values)
    np.savez(tmp_path / "d.npz", sequences=data + 1)
    with pytest.raises(BadInput, match="data_sha256"):
        icl.sweep(grid, tmp_path / "s", workers=0, resume=True)
