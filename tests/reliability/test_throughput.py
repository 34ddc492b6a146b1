"""How many runs per second, and what a second worker adds."""

import time

import numpy as np

import iclflow as icl
from iclflow.sweeps.store.protocol import make_store
from iclflow.sweeps.sweep import grid_of
from iclflow.system.cores import cores
from reliability.harness import only_full, run

FIGURE_1 = """\
seeds = {seeds}
[base]
model = "merged"
heads = 8
samples = 5000
lr = 0.031
steps = 6000
init = 1e-6
"""


def rate(tmp_path, workers: int, seeds: int) -> float:
    """Runs per second once all workers are busy: from the first tenth of the commits to the last."""
    (tmp_path / "f.toml").write_text(FIGURE_1.format(seeds=seeds))
    path = tmp_path / f"s{workers}"
    assert run("sweep", tmp_path / "f.toml", "--out", path, "--workers", workers, timeout=600)[0] == 0
    assert icl.load(path).status == {"ok": seeds}
    ends = sorted(f.stat().st_mtime for f in (path / "runs").glob("*.json"))
    first = max(seeds // 10, 2 * workers)
    return (seeds - first - 1) / (ends[-1] - ends[first])


@only_full
def test_runs_of_the_first_figure(tmp_path, measured):
    one, two = (rate(tmp_path, workers, 150) for workers in (1, 2))
    measured(f"{one:.2f} runs/s with one worker, {two:.2f} with two on {cores()} cores: {two / one:.2f} times as many")
    assert one > 0.2
    assert two > 1.2 * one or cores() < 2


def test_a_commit_costs_little(tmp_path, measured):
    path = tmp_path / "s"
    path.mkdir()
    store = make_store(path, grid_of({"seeds": 60, "base": {"steps": 5, "samples": 50, "lr": 0.1}}))
    rows = {name: np.zeros(store.shape(name)[1:]) for name in store.names}
    spent = []
    for number in range(60):
        begun = time.perf_counter()
        store.commit(number, rows, {"status": "ok", "why": "", "seconds": 0.0})
        spent.append(time.perf_counter() - begun)
    measured(f"a commit takes {1e3 * np.median(spent):.1f} ms")
    assert np.median(spent) < 0.2
