"""What the reliability tests share: tiny sweeps, processes to disturb, and a strict look at what they left.

Counts are small under `make test` and those of the issue under `make reliability` (`ICLFLOW_RELIABILITY=full`).
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iclflow.errors import DamagedStore
from iclflow.sweeps.store.check import check
from iclflow.sweeps.store.protocol import Store, is_sweep, open_store

FULL = os.environ.get("ICLFLOW_RELIABILITY") == "full"
PROGRAM = [sys.executable, "-m", "iclflow"]

TINY = """\
seeds = {seeds}
points = 20
[base]
model = "merged"
heads = 2
dim = 2
context = 4
lr = 0.05
steps = {steps}
records = 4
[axes]
init = [0.1, 0.2]
samples = [40, 50]
"""


def count(full: int, short: int) -> int:
    return full if FULL else short


only_full = pytest.mark.skipif(not FULL, reason="part of `make reliability`")


def tiny(directory: Path, seeds: int, name: str = "tiny.toml", steps: int = 20) -> Path:
    """A sweep file of 4 x `seeds` runs, each a few hundredths of a second unless there are many steps."""
    path = directory / name
    path.write_text(TINY.format(seeds=seeds, steps=steps))
    return path


def start(*arguments: object, **options: object) -> subprocess.Popen:
    """The program in a process group of its own."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options,
    )  # fmt: skip


def run(*arguments: object, timeout: float = 120, **options: object) -> tuple[int, str, str]:
    """The program to its end: exit code and what it printed."""
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        kill_group(process)
    return process.returncode, out, err


def kill_group(process: subprocess.Popen) -> None:
    if process.returncode is not None:  # its number may be somebody else's by now; only orphans of ours are left
        for pid in workers_of(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def alive(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(pgrp) == group and state != "Z":
                    found.append(int(entry.name))
    return found


def workers_of(process: subprocess.Popen) -> list[int]:
    """The worker processes of a session: children that multiprocessing has spawned."""
    found = []
    for pid in alive(process.pid):
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def gone(group: int, within: float) -> bool:
    """Whether every process of a group ends in time."""
    end = time.monotonic() + within
    while alive(group) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(group)


def until(true: object, within: float, every: float = 0.02) -> bool:
    end = time.monotonic() + within
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def finished(path: Path) -> dict[int, str]:
    """Every run that the store calls finished, with a digest of its numbers and of how it ended (not of how long)."""
    if not is_sweep(path):
        return {}
    store = open_store(path)
    return {run: fingerprint(store, run) for run in store.listed()}


def fingerprint(store: Store, run: int) -> str:
    record, wrong = store.damage(run)
    if wrong is not None or record is None:
        raise DamagedStore(wrong or f"run {run} has no manifest")
    content = hashlib.sha256(repr((record["status"], record["why"], record["config"])).encode())
    for name in store.names:
        content.update(store.chunk(name, run).read_bytes())
    return content.hexdigest()


def whole(path: Path) -> bool:
    """Nothing in the store is damaged; runs may be missing."""
    if not is_sweep(path):
        return True
    report = check(path)
    return not report.damaged and not report.broken


@contextlib.contextmanager
def disturbed(process: subprocess.Popen) -> Iterator[subprocess.Popen]:
    """Whatever the test does to a process, it does not outlive the test."""
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate()
