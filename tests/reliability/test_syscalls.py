"""Strike one commit at every system call of its write path: the run is there as a whole or not at all."""

import collections
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from iclflow.sweeps.results import gather
from iclflow.sweeps.store.protocol import make_store, open_store
from iclflow.sweeps.sweep import grid_of
from iclflow.sweeps.workers.tasks import do_run
from reliability import committer, strikes
from reliability.harness import FULL, whole
from reliability.strikes import calls_of_one, traced

GRID = {"base": {"dim": 2, "heads": 2, "model": "merged", "samples": 40, "lr": 0.1, "steps": 5}, "points": 6}

pytestmark = strikes.needs_strace


@pytest.fixture(scope="module")
def server():
    with strikes.server(committer.__file__) as process:
        yield process


def fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    make_store(path, grid_of(GRID))
    return path


def state(path: Path) -> str:
    """`old` (the run is missing) or `new` (it is there, with its numbers); anything else fails."""
    assert whole(path)
    data = gather(path).data
    if data["status"].values.item() == "missing":
        assert np.isnan(data["loss"].values).all()
        return "old"
    assert (data["loss"].values == 7.0).all()
    return "new"


def recovers(path: Path) -> bool:
    """The next session commits the run whatever was left, and the store is whole."""
    store = open_store(path)
    was = state(path)
    done = do_run(str(path), store.digest, 0, "again")
    return done["status"] == "ok" and whole(path) and (was == "new" or state_after(path))


def state_after(path: Path) -> bool:
    return bool(np.isfinite(gather(path).data["final_loss"].values).all())


def test_a_commit_killed_at_any_call_leaves_the_old_state_or_the_new(server, tmp_path, measured):
    points, seen = calls_of_one(server, fresh(tmp_path / "s")), collections.Counter()
    assert {name for _, name, _ in points} >= {"fsync", "openat", "rename", "write"}
    for thread, name, number in points:
        path = fresh(tmp_path / "s")
        code, _ = traced(server, path, thread, "-e", f"inject={name}:signal=KILL:when={number}")
        seen["killed"] += code == -signal.SIGKILL
        seen[state(path)] += 1
        assert recovers(path), (thread, name, number)
    measured(f"{len(points)} calls of one commit, {dict(seen)}: all recovered to the old or the new state")
    assert seen["killed"] == len(points)
    assert seen["old"] > 0


def test_a_commit_that_finds_the_disk_full_at_any_call_leaves_the_old_state_or_the_new(server, tmp_path, measured):
    points = [p for p in calls_of_one(server, fresh(tmp_path / "s")) if p[1] not in ("close", "unlink", "unlinkat")]
    points = points if FULL else points[::3]
    seen: collections.Counter = collections.Counter()
    for thread, name, number in points:
        path = fresh(tmp_path / "s")
        code, _ = traced(server, path, thread, "-e", f"inject={name}:error=ENOSPC:when={number}")
        seen[f"exit {code}"] += 1
        seen[state(path)] += 1
        assert recovers(path), (thread, name, number)
    measured(f"disk full at {len(points)} calls of one commit, {dict(seen)}: all recovered")
    assert seen["old"] > 0
