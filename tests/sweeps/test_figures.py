"""Figures of a sweep: they show the numbers of the dataset, with theory's beside them."""

import sys

import numpy as np
import pytest

import iclflow as icl
from commands import call
from iclflow.errors import BadInput
from iclflow.figures.along_axis import along_axis
from iclflow.figures.seed_bands import seed_bands
from iclflow.models.base import KNOWN

GRID = {
    "seeds": 3,
    "base": {"dim": 2, "context": 20, "heads": 3},
    "axes": {"init": [0.02, 0.04], "rank": [1, 2], "spectrum": ["linear", "power:1"]},
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return icl.sweep(GRID, tmp_path_factory.mktemp("figures") / "s", workers=0)


def lines(figure) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_xydata()) for line in figure.axes[0].get_lines()}


def test_the_band_is_the_middle_of_the_seeds_and_theory_lies_on_it(sweep):
    figure = seed_bands(sweep, where={"rank": 1, "spectrum": "linear"})
    drawn = lines(figure)
    time, loss = drawn["init = 0.02"].T
    runs = sweep.data.sel(init=0.02, rank=1, spectrum="linear")
    curves = []
    for seed in (0, 1, 2):
        one = runs.sel(seed=seed)
        kept = np.isfinite(one["loss"].values)
        curves.append(np.interp(time, one["curve_time"].values[kept], one["loss"].values[kept]))
    np.testing.assert_allclose(loss, np.median(curves, axis=0))
    dashed = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "--" and len(line.get_xdata()) > 9]
    assert len(dashed) == 2
    gap = np.abs(np.interp(time, *np.asarray(dashed[0].get_xydata()).T) - loss)
    assert np.mean(gap) < 0.02


def test_a_quantity_is_drawn_along_an_axis_beside_theory(sweep):
    figure = along_axis(sweep, "init", "drop_times:1", where={"spectrum": "linear"})
    drawn = lines(figure)
    measured = drawn["rank = 1"]
    expected = np.median(sweep.data["drop_times"].sel(rank=1, spectrum="linear", drop_number=1).values, axis=1)
    np.testing.assert_allclose(measured, np.column_stack([[0.02, 0.04], expected]))
    task, model = icl.Task(dim=2, context=20), icl.Separate(heads=3)
    times = [icl.predict(task, model, init=0.02, seed=seed).drop_times[0] for seed in range(3)]
    dashed = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "--" and len(line.get_xdata())]
    np.testing.assert_allclose(dashed[0].get_ydata()[0], np.median(times))
    assert dashed[0].get_ydata()[0] == pytest.approx(measured[0, 1], rel=0.1)


def test_text_axes_and_the_seed_can_be_drawn_along(sweep):
    figure = along_axis(sweep, "spectrum", "final_loss", where={"rank": "1"})
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["linear", "power:1"]
    figure = along_axis(sweep, "seed", "components", where={"rank": 1, "spectrum": "linear"}, theory=False)
    np.testing.assert_array_equal(lines(figure)["init = 0.02"][:, 1], [2, 2, 2])


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda s: seed_bands(s), "where: init and rank and spectrum are both open"),
        (lambda s: seed_bands(s, where={"rnk": 1}), "rnk: is not an axis of this sweep; did you mean 'rank'?"),
        (lambda s: seed_bands(s, where={"rank": 7}), "rank: 7 must be one of 1, 2"),
        (lambda s: along_axis(s, "heads"), "heads: is not an axis"),
        (lambda s: along_axis(s, "init", where={"init": 0.02}), "where: 'init' is drawn along"),
        (lambda s: along_axis(s, "init", "loss"), "quantity: 'loss' must be one of"),
        (lambda s: along_axis(s, "init", "drop_times"), "quantity: 'drop_times' must be drop_times:1 to drop_times:4"),
        (lambda s: along_axis(s, "init", "drop_times:9"), "quantity: 'drop_times:9' must be"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_line(sweep, draw, words):
    with pytest.raises(BadInput) as refused:
        draw(sweep)
    assert str(refused.value).startswith(words)


OWN = "import iclflow as icl\n\nclass Mine(icl.Separate):\n    loudness: float = 1.0\n"


def test_a_figure_of_an_own_model_needs_no_class_and_has_theory_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_for_figures.py").write_text(OWN)
    kind = "own_for_figures:Mine"
    base = {"model": kind, "dim": 2, "context": 20, "heads": 3}
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    icl.sweep({"base": base, "axes": {"loudness": [1.0, 2.0]}, "seeds": 2}, "s", workers=0)
    drawn = []
    along_axis_file = sys.modules["iclflow.figures.along_axis"]
    theory = along_axis_file.draw_theory
    monkeypatch.setattr(along_axis_file, "draw_theory", lambda *a: drawn.append(theory(*a)) or drawn[-1])
    for flags, dashed in ([], False), (["--model", kind], True):
        KNOWN.pop(kind, None)
        sys.modules.pop("own_for_figures", None)
        code, _, err = call(capsys, "sweep", "figure", "s", "--out", "f.png", "--along", "loudness", *flags)
        assert code == 0, err
        assert drawn.pop() is dashed
    KNOWN.pop(kind, None)
    code, _, err = call(capsys, "sweep", "figure", "s", "--out", "g.png", "--where", "loudness=2.0")
    assert code == 0, err
