"""Every figure can be drawn with its fast preset, and theory is as close as that preset allows."""

import tomllib

import numpy as np
import pytest

from iclflow.cli.flags import read_toml
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.studies import BEYOND, CHAPTER, NAMES, figure_named, figures_named
from iclflow.studies.handout import as_toml
from looks import complaints

FAST_BOUNDS = {  # of the first gap; the report shows those of the full preset
    "abrupt-drop": 5e-4,
    "white-time-course": 1e-9,
    "saddle-to-saddle": 0.1,
    "value-weights": 1e-8,
    "weight-maps": 0.02,
    "ranks": 0.03,
    "rank-weights": 2e-3,
    "softmax": 0,
    "init-scale": 5e-3,
    "in-context-algorithm": 0,
    "fixed-points": 0.01,
    "conservation": 1e-9,
    "context-length": 1e-4,
    "icl-iwl": 0.1,
    "noise-and-task-covariance": 0.15,
    "decay": 0,
    "drop-time-distribution": 0.9,
    "scaling-laws": 5e-3,
    "spectra-from-curves": 1e-3,
    "task-diversity": 1e-3,
    "edge": 0.05,
    "optimisers": 0.03,
    "depth": 0.02,
    "depth-context": 0.05,
    "depth-weights": 0.05,
    "minibatches": 0.1,
}


@pytest.mark.parametrize("name", [*NAMES, *BEYOND])
def test_a_figure_draws_and_its_theory_is_near(name, quiet, tmp_path):
    found = figure_named(name).measure(fast=True)
    assert found.measured[0].number <= FAST_BOUNDS[name], found.measured[0]
    for table in found.tables.values():
        assert len(table) > 2
        numbers = table.select_dtypes("number").to_numpy()
        assert np.isfinite(numbers).any(axis=0).all()
    assert complaints(found.picture) == []
    for label, experiment in found.runs.items():
        (tmp_path / "a.toml").write_text(as_toml(name, label, experiment))
        assert Experiment.from_flat(read_toml(tmp_path / "a.toml")) == experiment


@pytest.mark.parametrize("name", [*NAMES, *BEYOND])
def test_a_figure_says_what_to_see(name):
    figure = figure_named(name)
    assert len(figure.title.split()) > 2
    assert len(figure.text.split()) > 30
    assert name in NAMES or figure.source == "beyond the paper"


def test_settings_written_are_toml():
    text = as_toml("x", "y", Experiment.from_flat({"spectrum": "0.5,0.3", "samples": 10, "init": 1e-6}))
    assert tomllib.loads(text)["init"] == 1e-6


def test_no_name_is_the_paper_and_beyond_is_its_chapter():
    assert figures_named([]) == NAMES
    assert figures_named([CHAPTER]) == BEYOND
    assert figures_named(["ranks", CHAPTER, "decay"])[0] == "ranks"
    assert len(figures_named([CHAPTER, "decay"])) == len(BEYOND)
    assert not set(BEYOND) & {*NAMES, CHAPTER}
    with pytest.raises(BadInput, match="name: 'decays' must be one of .*, beyond, "):
        figures_named(["decays"])
