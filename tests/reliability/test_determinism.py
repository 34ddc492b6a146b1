"""The same sweep has the same bits however it was computed: again, resumed, by one worker, by two, by a cluster."""

import os
import signal

import pytest

from reliability.harness import FULL, count, disturbed, finished, only_full, run, start, tiny, until
from reliability.test_cluster import Cluster

SEEDS = count(25, 3)
FLOW = """\
seeds = 2
[base]
dim = 2
context = 5
heads = 2
[axes]
init = [0.1, 0.2]
rank = [1, 2]
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> dict[int, str]:
    directory = tmp_path_factory.mktemp("reference")
    assert run("sweep", tiny(directory, SEEDS), "--out", directory / "s", "--workers", 2)[0] == 0
    return finished(directory / "s")


@pytest.mark.parametrize("workers", [0, 1, 2] if FULL else [0])
def test_the_number_of_workers_changes_no_bit(tmp_path, reference, workers, measured):
    assert run("sweep", tiny(tmp_path, SEEDS), "--out", tmp_path / "s", "--workers", workers)[0] == 0
    assert finished(tmp_path / "s") == reference
    measured(f"{len(reference)} runs, identical to those of 2 workers")


@only_full
def test_stopping_and_resuming_changes_no_bit(tmp_path, reference, measured):
    file, path = tiny(tmp_path, SEEDS), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", 1)) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 1, 60)
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=10)
    stopped = len(finished(path))
    assert stopped < len(reference)
    assert run("sweep", file, "--out", path, "--workers", 2, "--resume")[0] == 0
    assert finished(path) == reference
    measured(f"stopped after {stopped} of {len(reference)} runs, resumed with 2 workers: identical")


@only_full
def test_a_cluster_changes_no_bit(tmp_path, reference, measured):
    cluster = Cluster(tmp_path)
    cluster.start()
    try:
        file = tiny(tmp_path, SEEDS)
        assert run("sweep", file, "--out", tmp_path / "s", "--scheduler", cluster.file)[0] == 0
    finally:
        cluster.stop()
    assert finished(tmp_path / "s") == reference
    measured(f"{len(reference)} runs on a dask scheduler with 2 workers: identical to local processes")


@only_full
def test_the_flow_has_the_same_bits_too(tmp_path):
    (tmp_path / "flow.toml").write_text(FLOW)
    for name, workers in (("a", 0), ("b", 2)):
        assert run("sweep", tmp_path / "flow.toml", "--out", tmp_path / name, "--workers", workers)[0] == 0
    assert finished(tmp_path / "a") == finished(tmp_path / "b")
