"""How near a sweep's worker is to `train` in a plain session, as the page on sweeps says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import iclflow as icl
from iclflow.sweeps.workers.tasks import single_thread

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sweep.md").read_text()
[FLAGS] = re.findall(r'XLA_FLAGS="(.*?)"', PAGE)
RUNS = {
    "descent": {"samples": 5000, "lr": 0.1, "steps": 20_000},
    "flow": {"samples": 3000, "init": 0.05},
    "edge": {"samples": 3000, "init": 0.05, "lr": 3.5, "steps": 2000},
}
SCRIPT = """
import json, sys, warnings
import iclflow as icl
warnings.simplefilter("ignore")
runs = {}
for name, settings in json.loads(sys.argv[1]).items():
    run = icl.train(icl.Task(), icl.Separate(heads=5), **settings)
    runs[name] = [run.status, run.loss.values.ravel().tolist(), run.time.values.ravel().tolist()]
print(json.dumps(runs))
"""


def trained(flags: str) -> dict:
    environment = {
        **{k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
        **({"XLA_FLAGS": flags} if flags else {}),
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps(RUNS)]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_the_page_names_the_flags_of_a_worker():
    assert single_thread({})["XLA_FLAGS"] == FLAGS


def test_a_worker_has_the_bits_of_train_with_its_flags_and_nearly_those_without(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # those of the tests, which a worker would inherit
    same, plain = trained(FLAGS), trained("")
    for name, settings in RUNS.items():
        points = "all" if "steps" in settings else 100_000
        sweep = icl.sweep({"points": points, "base": {"heads": 5, **settings}}, tmp_path / name, workers=1)
        mine = sweep.data.isel(seed=0)
        status, losses, times = same[name]
        assert mine["status"].item() == status == plain[name][0]
        np.testing.assert_array_equal(mine["loss"].values[: len(losses)], losses)
        final = plain[name][1][-1]
        if name == "descent":
            np.testing.assert_allclose(mine["loss"].values, plain[name][1], rtol=0, atol=1e-14 * losses[0])
        elif name == "flow":
            np.testing.assert_allclose(np.interp(plain[name][2], times, losses), plain[name][1], rtol=1e-5)
            assert abs(mine["final_loss"].item() - final) < 1e-8 * losses[0]
