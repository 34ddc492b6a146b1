"""Saved runs and sweeps are shown read only, by number, and nothing outside the directory is shown."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.explorer.saved import Saved

GRID = {
    "seeds": 2,
    "base": {"dim": 2, "context": 10, "heads": 2, "lr": 0.1, "steps": 200, "init": 0.1},
    "axes": {"rank": [1, 2]},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("explore")
    icl.sweep(GRID, where / "in" / "grid", workers=0)
    icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=0.1, lr=0.1, steps=50, out=where / "in" / "one")
    icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=0.1, lr=0.1, steps=5, out=where / "outside")
    (where / "in" / "link").symlink_to(where / "outside")
    (where / "in" / "notes").mkdir()
    return where / "in"


def test_runs_and_points_of_sweeps_are_found_and_nothing_else(place):
    assert Saved(place).names == ["grid: rank=1", "grid: rank=2", "one"]
    assert Saved(None).names == []


def test_a_point_of_a_sweep_shows_its_seeds_and_levels(place):
    shown = Saved(place).show(1)
    sweep = icl.load(place / "grid")
    assert len(shown.seeds) == 2
    assert shown.seeds[0]["loss"][-1] == pytest.approx(float(sweep.data["final_loss"].sel(rank=2, seed=0)))
    np.testing.assert_allclose(shown.view.levels, icl.theory.plateau_losses(icl.Task(dim=2, context=10)))


def test_a_run_shows_its_curve_its_theory_and_its_weights(place):
    shown, run = Saved(place).show(2), icl.load(place / "one")
    assert shown.seeds[0]["loss"][-1] == pytest.approx(float(run.loss[-1]), rel=1e-5)
    assert shown.view.loss is not None
    assert len(shown.detail.time) == len(shown.detail.algorithms)


@pytest.mark.parametrize("number", [-1, 3, 10**9, "0", None, True, 0.0, [0], "../outside"])
def test_numbers_that_name_nothing_show_nothing(place, number):
    assert Saved(place).show(number) is None


def test_a_damaged_run_is_reported_not_shown(place, tmp_path):
    import shutil

    shutil.copytree(place / "one", tmp_path / "bad")
    (tmp_path / "bad" / "weights.safetensors").write_bytes(b"x")
    shown = Saved(tmp_path).show(0)
    assert shown.seeds == []
    assert "damaged" in shown.words


def test_a_run_whose_weights_have_no_eigenbasis_still_shows_its_curve(tmp_path):
    task = icl.Task(dim=2, icl_fraction=0.5, spectrum="white")
    icl.train(task, icl.Merged(heads=2), init=0.1, samples=200, lr=0.05, steps=50, out=tmp_path / "mixed")
    shown = Saved(tmp_path).show(0)
    assert len(shown.seeds) == 1
    assert shown.detail is None
    assert "ok" in shown.words


def test_several_outputs_are_learned_too(tmp_path):
    icl.train(icl.Task(dim=2, out_dim=3), icl.Merged(heads=6), init=0.1, out=tmp_path / "three")
    shown = Saved(tmp_path).show(0)
    assert shown.detail.learned[-1] == 2
    np.testing.assert_allclose(shown.detail.gains[-1], 1, atol=0.05)


def test_a_summary_that_names_files_elsewhere_is_refused(place, tmp_path):
    import json
    import shutil

    for number, change in enumerate(({"files": {"../secret": "0"}}, {"config": {"spectrum": "/secret.npy"}})):
        shutil.copytree(place / "one", tmp_path / str(number) / "run")
        file = tmp_path / str(number) / "run" / "summary.json"
        summary = json.loads(file.read_text())
        for key, more in change.items():
            summary[key] |= more
        file.write_text(json.dumps(summary))
        shown = Saved(tmp_path / str(number)).show(0)
        assert shown.seeds == []
        assert "not a file of the run" in shown.words


def test_own_data_are_not_opened_again(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", sequences=rng.standard_normal((50, 5, 3)))
    icl.train(
        data=str(tmp_path / "mine.npz"), model=icl.Merged(heads=2), lr=0.05, steps=20, out=tmp_path / "in" / "own"
    )
    (tmp_path / "mine.npz").unlink()
    shown = Saved(tmp_path / "in").show(0)
    assert len(shown.seeds) == 1
    assert shown.view.loss is not None  # from the moments that the run carries


def test_places_that_may_not_be_read_are_passed_over(place, monkeypatch):
    import os

    plain = os.scandir

    def scandir(path):
        if str(path).endswith("notes"):
            raise PermissionError
        return plain(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert Saved(place).names == ["grid: rank=1", "grid: rank=2", "one"]
