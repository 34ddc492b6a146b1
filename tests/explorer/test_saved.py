"""Saved runs and sweeps are shown read only, by number, and nothing outside the directory is."""

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
    assert len(shown.detail["time"]) == len(shown.detail["algorithms"])


@pytest.mark.parametrize("number", [-1, 3, 10**9, "0", None, True, 0.0, [0], "../outside"])
def test_numbers_that_name_nothing_show_nothing(place, number):
    assert Saved(place).show(number) is None


def test_a_damaged_run_is_told_not_shown(place, tmp_path):
    import shutil

    shutil.copytree(place / "one", tmp_path / "bad")
    (tmp_path / "bad" / "weights.safetensors").write_bytes(b"x")
    shown = Saved(tmp_path).show(0)
    assert shown.seeds == []
    assert "damaged" in shown.words
