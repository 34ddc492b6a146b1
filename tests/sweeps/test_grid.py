"""What a sweep file means: which runs, in which order, under which names."""

import json

import numpy as np
import pytest

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.sweeps.grid import Grid, difference
from iclflow.sweeps.sweep_file import grid_from

FULL = {
    "seeds": {"from": 3, "to": 5, "step": 1},
    "base": {"dim": 2, "lr": 0.1, "steps": 5},
    "axes": {"rank": [1, 2], "samples": [40, float("inf")]},
    "zip": [{"context": {"from": 10, "to": 1000, "count": 3, "log": True}, "heads": [2, 3, 4]}],
}


def test_every_combination_is_there_once_with_the_seed_fastest():
    grid = grid_from(FULL)
    assert grid.dimensions == ("rank", "samples", "context", "seed")
    assert grid.shape == (2, 2, 3, 3)
    runs = [grid.experiment(i) for i in range(grid.count)]
    assert len({json.dumps(e.flat(), sort_keys=True) for e in runs}) == 36
    assert [e.training.seed for e in runs[:4]] == [3, 4, 5, 3]
    assert [e.model.rank for e in runs] == [1] * 18 + [2] * 18
    assert all(e.training.seeds == 1 and e.training.lr == 0.1 for e in runs)


def test_zipped_settings_move_together():
    grid = grid_from(FULL)
    pairs = {(e.task.context, e.model.heads) for e in (grid.experiment(i) for i in range(grid.count))}
    assert pairs == {(10, 2), (100, 3), (1000, 4)}


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"from": 1, "to": 4, "step": 1}, [1, 2, 3, 4]),
        ({"from": 1, "to": 4, "step": 2}, [1, 3]),
        ({"from": 10, "to": 50, "count": 5}, [10, 20, 30, 40, 50]),
        ({"from": 1, "to": 1000, "count": 4, "log": True}, [1, 10, 100, 1000]),
    ],
)
def test_ranges_of_whole_numbers_stay_whole(given, values):
    grid = grid_from({"axes": {"context": given}})
    assert [e.task.context for e in grid.points_of_grid] == values


def test_ranges_of_fractions_hit_both_ends():
    steps = grid_from({"axes": {"init": {"from": 0.1, "to": 0.3, "step": 0.1}}})
    np.testing.assert_allclose(steps.axes[0].coordinate("init"), [0.1, 0.2, 0.3])
    logs = grid_from({"axes": {"init": {"from": 1e-4, "to": 1e-1, "count": 4, "log": True}}})
    np.testing.assert_allclose(logs.axes[0].coordinate("init"), [1e-4, 1e-3, 1e-2, 1e-1], rtol=1e-12)
    assert logs.axes[0].values[-1] == (0.1,)


@pytest.mark.parametrize("more", [{"step": 0.1}, {"count": 3}])
def test_ranges_have_no_dust_of_binary_fractions(more):
    grid = grid_from({"axes": {"init": {"from": 0.1, "to": 0.3, **more}}})
    assert grid.axes[0].values == ((0.1,), (0.2,), (0.3,))
    assert grid_from({"axes": {"init": {"from": 0.1, "to": 0.35, "step": 0.1}}}).axes[0].values[-1] == (0.3,)


def test_a_zipped_setting_may_repeat_itself_but_not_the_one_that_names_the_axis():
    grid = grid_from({"zip": [{"context": [10, 20, 30], "heads": [2, 2, 3]}]})
    assert [e.model.heads for e in grid.points_of_grid] == [2, 2, 3]
    with pytest.raises(BadInput, match=r"zip\[1\].heads: 2 is listed twice"):
        grid_from({"zip": [{"heads": [2, 2, 3], "context": [10, 20, 30]}]})


def test_coordinates_are_numbers_where_they_can_be_and_text_elsewhere():
    grid = grid_from(
        {"axes": {"spectrum": ["linear", [0.5, 0.25]], "softmax": [False], "samples": [9, "inf"]}, "base": {"dim": 2}}
    )
    assert grid.axes[0].coordinate("spectrum").tolist() == ["linear", "0.5,0.25"]
    assert grid.axes[1].coordinate("softmax").tolist() == ["false"]
    assert grid.axes[2].coordinate("samples").tolist() == [9.0, np.inf]


def test_a_grid_comes_back_from_json():
    grid = grid_from(FULL)
    again = Grid.from_json(json.loads(json.dumps(grid.to_json())))
    assert again == grid
    assert again.digest == grid.digest


def test_a_covariance_file_is_read_at_once_and_a_run_comes_back_from_its_record(tmp_path):
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.save(tmp_path / "m.npy", matrix)
    grid = grid_from({"base": {"dim": 2, "spectrum": str(tmp_path / "m.npy")}})
    (tmp_path / "m.npy").unlink()
    experiment = grid.experiment(0)
    np.testing.assert_array_equal(experiment.task.spectrum, matrix)
    assert Experiment.from_flat(json.loads(json.dumps(experiment.flat()))).flat() == experiment.flat()


def test_the_first_difference_between_two_grids_is_named():
    old = grid_from(FULL).to_json()
    for change, words in (
        ({"base": {"dim": 2, "lr": 0.2, "steps": 5}}, "base.lr: was 0.1, is now 0.2"),
        ({"base": {"dim": 2, "steps": 5}}, "base.lr: was 0.1, is now not given"),
        ({"seeds": 3}, "seeds: was [3, 4, 5], is now [0, 1, 2]"),
        ({"points": 9}, "points: was 200, is now 9"),
        ({"axes": {"samples": [40, float("inf")], "rank": [1, 2]}}, "the order of the axes"),
        ({"axes": {"rank": [1], "samples": [40, float("inf")]}}, "axes.rank: was [[1], [2]], is now [[1]]"),
    ):
        assert difference(old, grid_from({**FULL, **change}).to_json()).startswith(words)
    assert difference(old, grid_from(FULL).to_json()) is None


def test_a_refused_point_says_where_it_stands():
    with pytest.raises(BadInput, match=r"rank: 5 must be at most dim = 4 \(at rank = 5\)"):
        grid_from({"axes": {"rank": [1, 5]}})
