"""Every figure of the paper can be drawn with its fast preset, and theory is as close as that preset allows."""

import tomllib

import numpy as np
import pytest

from iclflow.cli.flags import read_toml
from iclflow.experiment import Experiment
from iclflow.paper import NAMES, figure_module
from iclflow.paper.settings import as_toml
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
}


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_draws_and_its_theory_is_near(name, quiet, tmp_path):
    module = figure_module(name)
    drawn = module.draw(fast=True)
    assert drawn.gaps[0].measured <= FAST_BOUNDS[name], drawn.gaps[0]
    for table in drawn.numbers.values():
        assert len(table) > 2
        numbers = table.select_dtypes("number").to_numpy()
        assert np.isfinite(numbers).any(axis=0).all()
    assert complaints(drawn.figure) == []
    for label, experiment in drawn.experiments.items():
        (tmp_path / "a.toml").write_text(as_toml(name, label, experiment))
        assert Experiment.from_flat(read_toml(tmp_path / "a.toml")) == experiment


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_what_to_see(name):
    title, _, see = figure_module(name).__doc__.partition("\n")
    assert title.endswith(".")
    assert len(see.split()) > 30


def test_settings_written_are_toml():
    text = as_toml("x", "y", Experiment.from_flat({"spectrum": "0.5,0.3", "samples": 10, "init": 1e-6}))
    assert tomllib.loads(text)["init"] == 1e-6
