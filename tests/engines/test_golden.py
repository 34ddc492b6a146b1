"""Every engine repeats the runs of an independent implementation, to rounding."""

import json

import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import main

BOUND = 1e-10


def check(golden, run):
    expected = golden.arrays["loss"]
    start, count = expected[0], len(expected)  # some include the loss after the last step
    assert len(run.loss) in (count, count + 1)
    assert np.abs(run.loss.values[:count] - expected).max() / start <= BOUND
    for name, array in golden.weights("final_weights.").items():
        assert np.abs(run.final_weights[name] - array).max() <= BOUND * max(1, np.abs(array).max())
    for name in ("loss_icl", "loss_iwl"):
        if name in golden.arrays:
            assert np.abs(run.curves[name].values[:-1] - golden.arrays[name]).max() / start <= BOUND


@pytest.mark.parametrize("which", [0, 1], ids=["best", "tokens"])
def test_python_repeats_the_golden_run(golden, which, quiet):
    if which >= len(golden.engines):
        pytest.skip("softmax has no moments")
    engine, meta = golden.engines[which], golden.meta
    task = icl.Task(normalize=meta["normalize"], prefix_loss=meta["prefix_loss"], out_dim=meta["out_dim"])
    run = icl.train(
        task,
        golden.model,
        data=str(golden.path),
        weights=golden.weights(),
        lr=meta["lr"],
        steps=meta["steps"],
        engine=engine,
    )
    assert run.summary["engine"] == engine
    check(golden, run)


def test_command_line_repeats_the_golden_run(golden, tmp_path, capsys):
    meta = golden.meta
    flags = ["--model", meta["model"], "--normalize", meta["normalize"], "--lr", meta["lr"], "--steps", meta["steps"]]
    flags += ["--layers", golden.layers] * (golden.layers > 1) + ["--looped"] * meta.get("looped", False)
    flags += ["--softmax"] * meta["softmax"] + ["--prefix-loss"] * meta["prefix_loss"]
    files = ["--data", golden.path, "--weights", golden.path, "--out", tmp_path / "run", "--json", "--no-figure"]
    with pytest.raises(SystemExit) as left:
        main(["train", *map(str, flags + files)])
    said = capsys.readouterr()
    assert left.value.code == 0, said.err
    assert json.loads(said.out)["status"] == "ok"
    check(golden, icl.load(tmp_path / "run"))


def test_a_wrong_normalisation_would_be_seen(golden, quiet):
    """The yardstick bites: the same run with another scale is far off."""
    meta = golden.meta
    if meta["softmax"]:
        pytest.skip("softmax has scale 1")
    other = "tokens" if meta["normalize"] == "none" else "none"
    task = icl.Task(normalize=other, prefix_loss=meta["prefix_loss"], out_dim=meta["out_dim"])
    settings = {"lr": meta["lr"], "steps": min(50, meta["steps"])}
    run = icl.train(task, golden.model, data=str(golden.path), weights=golden.weights(), **settings)
    expected = golden.arrays["loss"][: settings["steps"]]
    assert not np.abs(run.loss.values[: len(expected)] - expected).max() <= 1e-3
