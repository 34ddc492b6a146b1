"""The check of every figure's looks notices what it is there for."""

import numpy as np
import pytest

from iclflow.figures.style import THEORY, WIDTH, Figure, apart, letters, shades, styled
from looks import complaints


def good() -> Figure:
    """A figure of two panels with nothing to complain about."""
    with styled():
        figure = Figure(figsize=(WIDTH, 2.7))
        panels = figure.subplots(1, 2)
        for ax in panels:
            ax.plot([0, 1, 2], [0, 1, 4], label="simulation")
            ax.plot([0, 1, 2], [0, 1, 4], label="theory", **THEORY)
            ax.set(xlabel="time", ylabel="loss", title="title")
            ax.legend(loc="upper left")
        letters(*panels)
    return figure


SPOILT = {
    "panel letters": lambda ax: ax.set_title("c", loc="left"),
    "not in its legend": lambda ax: ax.get_legend().texts[1].set_text("dashes"),
    "x axis has fewer than two numbers": lambda ax: ax.set_xticks([1.0]),
    "y axis has no name": lambda ax: ax.set_ylabel(""),
    "numbers of the x axis overlap": lambda ax: ax.set_xticks(np.linspace(0, 2, 40)),
    "the legend lies on a curve": lambda ax: ax.legend(loc="center"),
    "the title runs into the letter": lambda ax: ax.set_title("a title that is much too long to stand above the panel"),
    "is smaller than": lambda ax: ax.text(1, 1, "small", fontsize=5),
    "wider than two columns": lambda ax: ax.get_figure().set_figwidth(WIDTH + 1),
}


def test_a_good_figure_has_no_complaint():
    assert complaints(good()) == []


@pytest.mark.parametrize("what", SPOILT)
def test_every_fault_is_noticed(what):
    figure = good()
    SPOILT[what](figure.axes[0])
    assert any(what in complaint for complaint in complaints(figure)), complaints(figure)


def test_dashes_without_any_legend_are_noticed():
    figure = good()
    for ax in figure.axes:
        ax.get_legend().remove()
    assert complaints(figure) == ["no legend says what dashed lines are"]


def test_names_move_apart_and_no_further_than_they_must():
    np.testing.assert_allclose(apart(np.array([0.0, 10.0, 30.0]), 5.0), [0, 10, 30])
    np.testing.assert_allclose(apart(np.array([10.0, 11.0, 30.0]), 5.0), [8, 13, 30])
    moved = apart(np.array([3.0, 1.0, 2.0, 2.0]), 4.0)
    np.testing.assert_allclose(np.diff(np.sort(moved)), 4.0)
    assert moved.argmax() == 0
    assert moved.argmin() == 1


def test_shades_are_as_many_colours_as_asked_for():
    assert len(set(shades(6))) == 6
    assert len(shades(1)) == 1
