"""Samples of any size have the moments of `train`."""

import numpy as np

import iclflow as icl
from iclflow.sweeps.workers import sharing


def test_a_run_on_more_than_a_million_sequences_has_the_bits_of_train(tmp_path):
    base = {"dim": 2, "context": 3, "heads": 2, "lr": 0.1, "steps": 30, "samples": 2**20 + 1000, "init": 0.1}
    sharing.KEPT.things.clear()
    sweep = icl.sweep({"base": base}, tmp_path / "s", workers=0)
    settings = {name: base[name] for name in ("samples", "lr", "steps", "init")}
    run = icl.train(icl.Task(dim=2, context=3), icl.Separate(heads=2), **settings)
    np.testing.assert_array_equal(sweep.data["loss"].values[0, :31], run.loss.values)
