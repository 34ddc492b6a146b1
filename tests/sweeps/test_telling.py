"""What a sweep reports: its needs before it starts, rate and remaining time while it runs, nothing if not asked."""

import time
from collections import Counter

import pytest

from iclflow.errors import NoRoom
from iclflow.sweeps.estimate import disk_bytes, estimate, refuse_if_full, size
from iclflow.sweeps.sweep import Tally, reporting
from iclflow.sweeps.sweep_file import grid_from
from iclflow.system import progress
from iclflow.system.progress import duration

BASE = {"model": "merged", "samples": 5000, "lr": 0.03, "steps": 6000}


@pytest.fixture(autouse=True)
def no_notebook(monkeypatch):
    """Other tests of the same process may have begun a kernel."""
    monkeypatch.setattr(progress, "in_notebook", lambda: False)


def test_lines_give_runs_failures_rate_and_time_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    tally, begun = Tally(100, Counter(ok=40)), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: begun)
    with reporting(tally, None) as tell:
        monkeypatch.setattr(time, "monotonic", lambda: begun + 10.0)
        tally.ends.update(ok=17, failed=3)
        tell()
    line = capsys.readouterr().err
    assert line == "60 of 100 runs done, 3 failed, 2.00 runs/s, 20 s left\n"


def test_no_rate_is_shown_before_the_first_run_is_done(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with reporting(Tally(100, Counter(ok=40)), None) as tell:
        tell(", no worker for 3 min")
    assert capsys.readouterr().err == "40 of 100 runs done, 0 failed, no worker for 3 min\n"


def test_lines_are_few_and_the_last_run_has_one(capsys):
    tally = Tally(1000)
    with reporting(tally, None) as tell:
        for _ in range(1000):
            tally.ends.update(ok=1)
            tell()
    assert capsys.readouterr().err.count("\n") == 1


def test_silence_when_not_asked(capsys):
    with reporting(Tally(10, Counter(ok=10)), False) as tell:
        tell()
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with reporting(Tally(10, Counter(ok=4, failed=1)), None) as tell:
        tell()
    assert "5 of 10 runs done, 1 failed" in capsys.readouterr().err


def test_the_estimate_counts_runs_datasets_and_bytes():
    grid = grid_from({"seeds": 10, "base": BASE, "axes": {"init": [0.1, 0.2, 0.3]}})
    total = estimate(grid, 2)
    assert (total.runs, total.datasets) == (30, 10)
    assert total.disk == 30 * (4096 + 4096 + 8192)
    assert estimate(grid, 1).memory < total.memory
    assert estimate(grid, 2, runs=3).datasets == 1
    assert disk_bytes(grid_from({"seeds": 10, "base": BASE, "summary": True}), 10) == 10 * 8192
    population = grid_from({"seeds": 10, "axes": {"rank": [1, 2]}})
    assert estimate(population, 1).datasets == 1


def test_what_does_not_fit_on_the_disk_is_refused(tmp_path):
    refuse_if_full(tmp_path / "new" / "place", 1024)
    with pytest.raises(NoRoom, match=r"out: the sweep needs 1024.0 TiB"):
        refuse_if_full(tmp_path, 2**50)


def test_sizes_and_durations_read_well():
    assert [size(n) for n in (12, 4096, 5 * 2**20, 3 * 2**30)] == ["12 B", "4.0 KiB", "5.0 MiB", "3.0 GiB"]
    assert [duration(n) for n in (12, 600, 7200, 5 * 86400)] == ["12 s", "10 min", "2.0 h", "5.0 days"]


def test_a_tally_names_every_end():
    tally = Tally(9)
    tally.ends.update(ok=5, diverged=1, failed=1, max_steps=1)
    assert str(tally) == "8 of 9 runs are done (1 diverged, 1 failed, 1 max_steps, 5 ok)"
    assert tally.failed == 2
