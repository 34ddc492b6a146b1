"""Ctrl-C and SIGTERM: stop within 5 s, say what is done and how to go on, leave no process behind."""

import os
import signal
import time
from pathlib import Path

import pytest

from reliability.harness import FULL, alive, count, disturbed, finished, gone, only_full, run, start, tiny, until, whole

CASES = [(s, w) for s in ("SIGINT", "SIGTERM") for w in (0, 2)] if FULL else [("SIGINT", 2), ("SIGTERM", 0)]


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_a_session_stops_at_once_and_says_how_to_go_on(tmp_path, name, workers, measured):
    file, path = tiny(tmp_path, 60), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", workers)) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 2, 60)
        addresses = [address for pid in alive(process.pid) for address in listening(pid)]
        begun = time.monotonic()
        os.killpg(process.pid, getattr(signal, name))  # as a terminal does
        _, err = process.communicate(timeout=20)
        seconds = time.monotonic() - begun
        assert gone(process.pid, 2.0)
    assert process.returncode == 130
    assert seconds < 5
    assert addresses == []  # nothing listens
    lines = [line for line in err.splitlines() if "runs done" not in line]
    assert len(lines) == 1, err
    [line] = lines
    committed = len(finished(path))  # one may be committed and not yet counted when the signal comes
    assert any(f"{count} of 240 runs are done" in line for count in (committed, committed - 1)) or workers == 2
    assert line.endswith(f"go on with: iclflow sweep {file} --out {path} --resume")
    assert whole(path)
    measured(f"stopped in {seconds:.2f} s with {len(finished(path))} of 240 runs done")


@pytest.mark.parametrize("after", [0.3, 0.8, 1.5, 2.2, 3.0][: count(5, 1)])
def test_a_signal_while_the_session_is_starting_stops_it_too(tmp_path, after):
    file, path = tiny(tmp_path, 60), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", 2)) as process:
        time.sleep(after)
        os.kill(process.pid, signal.SIGTERM)
        begun = time.monotonic()
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - begun < 5
        assert gone(process.pid, 3.0)
    too_early = process.returncode == -signal.SIGTERM and out == "" and not path.exists()  # Python was still loading it
    assert process.returncode == 130 or (after < 2 and too_early), err
    assert "Traceback" not in err


def test_a_second_writer_is_refused_and_told_who_is_at_work(tmp_path):
    file, path = tiny(tmp_path, 60), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", 0)) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 2, 60)
        code, _, err = run("sweep", file, "--out", path, "--workers", 0, "--resume")
        assert code == 2
        assert f"is being written by process {process.pid} " in err
        assert ".lock" in err
        code, out, _ = run("sweep", "status", path)
        assert code == 0
        assert f"at work: process {process.pid} " in out


@only_full
def test_two_that_start_together_never_both_write(tmp_path):
    file, path = tiny(tmp_path, 10), tmp_path / "s"
    both = [start("sweep", file, "--out", path, "--workers", 0) for _ in range(2)]
    ends = []
    for process in both:
        with disturbed(process):
            process.communicate(timeout=60)
            ends.append(process.returncode)
    assert sorted(ends) in ([0, 2], [2, 0])
    assert len(finished(path)) == 40


def listening(pid: int) -> list[str]:
    """The addresses on which a process listens, as the kernel writes them."""
    inodes = set()
    for handle in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(handle.path)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].split(":")[0])
    return found
