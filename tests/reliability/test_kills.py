"""kill -9 at random moments: no finished run is lost, no store is corrupt, nobody has to unlock anything."""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iclflow.errors import DamagedStore
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability import naive_writer
from reliability.harness import count, finished, gone, kill_group, start, tiny, whole, workers_of

SEEDS = count(15, 3)
LONGEST = count(6, 3)  # seconds before a strike


@dataclass
class Audit:
    """What a series of kills did to what was finished before them."""

    finished: Callable[[Path], dict[int, str]]
    whole: Callable[[Path], bool]
    before: dict[int, str] = field(default_factory=dict)
    kills: int = 0
    lost: int = 0
    corrupt: int = 0

    def look(self, path: Path) -> None:
        try:
            now = self.finished(path)
            corrupt = not self.whole(path)
        except Exception:  # whatever a reader may raise on rubbish
            now, corrupt = {}, True
        self.corrupt += corrupt
        self.lost += sum(now.get(number) != print_ for number, print_ in self.before.items())
        self.before = now

    def __str__(self) -> str:
        return f"{self.kills} kills: {self.lost} finished runs lost, {self.corrupt} corrupt stores"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[int, str]:
    directory = tmp_path_factory.mktemp("undisturbed")
    run_grid(read_grid(tiny(directory, SEEDS)), directory / "s", workers=count(1, 0))
    return finished(directory / "s")


def strike(process: subprocess.Popen, how: str) -> bool:
    """Kill the session, the whole group, or one worker; whether somebody was there to be killed."""
    if process.poll() is not None:
        return False
    if how == "worker":
        victims = workers_of(process)
        if not victims:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(victims[0], signal.SIGKILL)
        return True
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if how == "group" else os.kill)(process.pid, signal.SIGKILL)
    return True


def test_nothing_is_lost_by_kills_at_random_moments(tmp_path, undisturbed, measured):
    dice = random.Random(0)
    audit, stores, wanted = Audit(finished, whole), 0, count(200, 3)
    file = tiny(tmp_path, SEEDS)
    while audit.kills < wanted:
        path, audit.before = tmp_path / f"s{stores}", {}
        stores += 1
        workers = dice.choice([0, 1, 2])
        while True:
            process = start("sweep", file, "--out", path, "--workers", workers, "--resume")
            try:
                ended = harass(process, dice, audit, path, wanted)
            finally:
                kill_group(process)
                _, err = process.communicate()
            audit.look(path)
            if ended is not None:
                assert ended == 0, err
                break
        assert finished(path) == undisturbed
    measured(f"{audit}, every resume accepted, {stores} stores, all bit-identical to an undisturbed sweep")
    assert (audit.lost, audit.corrupt) == (0, 0)


def harass(process: subprocess.Popen, dice: random.Random, audit: Audit, path: Path, wanted: int) -> int | None:
    """Strike a session after a while; its exit code if it got through, None if it was killed."""
    while True:
        if audit.kills >= wanted:
            return process.wait(timeout=120)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=dice.uniform(0.2, LONGEST))
        how = dice.choice(["parent", "group", "worker"] if workers_of(process) else ["parent", "group"])
        if not strike(process, how):
            continue
        audit.kills += 1
        if how != "worker":
            process.wait(timeout=10)
            if how == "parent" and not gone(process.pid, 5.0):
                raise AssertionError("workers outlive their killed parent")
            return None
        audit.look(path)


def test_the_harness_sees_the_losses_of_a_naive_writer(tmp_path, measured):
    dice = random.Random(1)

    def naive_finished(path: Path) -> dict[int, str]:
        found = naive_writer.results(path)
        return {int(name[3:]): hashlib.sha256(array.tobytes()).hexdigest() for name, array in found.items()}

    audit = Audit(naive_finished, lambda path: True)
    for number in range(count(20, 2)):
        path = tmp_path / f"n{number}"
        command = [sys.executable, naive_writer.__file__, str(path), "100"]
        for _ in range(3):
            with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:
                time.sleep(dice.uniform(0.4, 1.0))
                kill_group(process)
                claimed = [int(line) for line in process.stdout.read().split()]
            audit.kills += 1
            audit.before |= {run: naive_writer.digest(run) for run in claimed}
            audit.look(path)
        audit.before = {}
    measured(f"naive writer, {audit}")
    assert audit.lost > 0
    assert audit.corrupt > 0


def test_the_audit_calls_a_changed_number_a_loss(tmp_path):
    run_grid(read_grid(tiny(tmp_path, 1)), tmp_path / "s", workers=0)
    audit = Audit(finished, whole)
    audit.look(tmp_path / "s")
    assert (audit.lost, audit.corrupt) == (0, 0)
    chunk = next((tmp_path / "s" / "arrays.zarr" / "curves").glob("c.*"))
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    with pytest.raises(DamagedStore):
        finished(tmp_path / "s")
    audit.look(tmp_path / "s")
    assert audit.lost == 4
    assert audit.corrupt == 1
