"""Strike one commit at every system call of its write path: the run is there as a whole or not at all."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from iclflow.sweeps.results import gather
from iclflow.sweeps.store.protocol import make_store, open_store
from iclflow.sweeps.sweep import grid_of
from iclflow.sweeps.workers.tasks import do_run
from reliability import committer
from reliability.harness import FULL, until, whole

CALLS = (
    "openat", "write", "pwrite64", "writev", "close", "fsync", "fdatasync", "ftruncate", "fallocate", "rename",
    "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat",
)  # fmt: skip
GRID = {"base": {"dim": 2, "heads": 2, "model": "merged", "samples": 40, "lr": 0.1, "steps": 5}, "points": 6}

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, committer.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    make_store(path, grid_of(GRID))
    return path


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def traced_commit(server, path: Path, thread: int | None, *options: str) -> tuple[int, list[str]]:
    """One commit with strace on one of its threads (or on all): exit code, and what each thread did."""
    server.stdin.write(f"{path}\n")
    server.stdin.flush()
    pid = int(server.stdout.readline())
    assert until(lambda: stopped(pid), 10)
    threads = sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())
    log = path.parent / "trace"
    watched = threads if thread is None else [threads[thread]]
    attach = [part for tid in watched for part in ("-p", str(tid))]
    command = ["strace", "-ff", "-qq", "-o", str(log), *attach, *options]
    if thread is not None:
        command.remove("-ff")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        status = Path(f"/proc/{pid}/task/{watched[-1]}/status")
        attached = until(lambda: "TracerPid:\t0" not in status.read_text(), 5, every=0.005)
        os.kill(pid, signal.SIGCONT)
        code = int(server.stdout.readline())
        tracer.wait(timeout=10)
        if not attached:
            pytest.skip(f"strace cannot attach here: {tracer.stderr.read().strip()[:100]}")
    traces = [Path(f"{log}.{tid}") for tid in threads] if thread is None else []
    return code, [trace.read_text() if trace.exists() else "" for trace in traces]


def calls_of_one_commit(server, tmp_path) -> list[tuple[int, str, int]]:
    """Thread, name and number of every call."""
    code, traces = traced_commit(server, fresh(tmp_path / "s"), None, "-e", f"trace={','.join(CALLS)}")
    assert code == 0
    points = []
    for thread, text in enumerate(traces):
        counts = collections.Counter(re.findall(r"^(\w+)\(", text, flags=re.MULTILINE))
        points += [(thread, name, number) for name, many in sorted(counts.items()) for number in range(1, many + 1)]
    return points


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
    points, seen = calls_of_one_commit(server, tmp_path), collections.Counter()
    assert {name for _, name, _ in points} >= {"fsync", "openat", "rename", "write"}
    for thread, name, number in points:
        path = fresh(tmp_path / "s")
        code, _ = traced_commit(server, path, thread, "-e", f"inject={name}:signal=KILL:when={number}")
        seen["killed"] += code == -signal.SIGKILL
        seen[state(path)] += 1
        assert recovers(path), (thread, name, number)
    measured(f"{len(points)} calls of one commit, {dict(seen)}: all recovered to the old or the new state")
    assert seen["killed"] == len(points)
    assert seen["old"] > 0


def test_a_commit_that_finds_the_disk_full_at_any_call_leaves_the_old_state_or_the_new(server, tmp_path, measured):
    points = [p for p in calls_of_one_commit(server, tmp_path) if p[1] not in ("close", "unlink", "unlinkat")]
    points = points if FULL else points[::3]
    seen: collections.Counter = collections.Counter()
    for thread, name, number in points:
        path = fresh(tmp_path / "s")
        code, _ = traced_commit(server, path, thread, "-e", f"inject={name}:error=ENOSPC:when={number}")
        seen[f"exit {code}"] += 1
        seen[state(path)] += 1
        assert recovers(path), (thread, name, number)
    measured(f"disk full at {len(points)} calls of one commit, {dict(seen)}: all recovered")
    assert seen["old"] > 0
