"""However a program ends, it says so in one line and with the right exit code, and leaves no half-written file."""

import os
import random
import signal
import subprocess
import time

import pytest

from reliability.harness import PROGRAM, count, disturbed, run, start, tiny

SETTINGS = ("train", "--init", "0.001", "--no-figure", "--out")


def test_an_interrupted_train_says_so_at_any_moment(tmp_path, measured):
    """Python itself needs some hundredths of a second before it runs a line of the program."""
    begun = time.monotonic()
    assert run(*SETTINGS, tmp_path / "whole")[0] == 0
    length, dice = time.monotonic() - begun, random.Random(0)
    moments = [dice.uniform(0.15, 0.7 * length) for _ in range(count(100, 8))]
    done = 0
    for number, moment in enumerate(moments):
        name = (signal.SIGINT, signal.SIGTERM)[number % 4 == 3]
        with disturbed(start(*SETTINGS, tmp_path / f"r{number}")) as process:
            time.sleep(moment)
            process.send_signal(name)
            out, err = process.communicate(timeout=30)
        if process.returncode == 0 and out:
            done += 1  # it had ended before the signal came
            continue
        assert (process.returncode, err) == (130, "iclflow: interrupted\n"), (moment, out)
    assert done <= len(moments) / 2
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]
    measured(f"{len(moments) - done} signals at random moments of {length:.1f} s: 130 and one line each, no litter")


def test_a_reader_that_goes_away_is_not_success(tmp_path):
    file = tiny(tmp_path, 2)
    for command in (["sweep", file, "--out", tmp_path / "s"], ["theory"], ["verify", "--list"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([*PROGRAM, *map(str, command)], stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_device_as_output_is_one_line(tmp_path):
    file = tiny(tmp_path, 2)
    for command in (["sweep", file, "--out", tmp_path / "s"], ["theory"], [*SETTINGS, tmp_path / "r"], ["--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*PROGRAM, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 4, done.stderr
        assert done.stderr == "iclflow: output: cannot be written: No space left on device\n"


def test_a_signal_whose_exception_is_lost_still_ends_the_program():
    script = (
        "import signal, sys, os\nfrom iclflow.cli import ending\nending.GRACE = 0.5\n"
        "ending.is_writing = lambda frame: True\n"
        "class Deaf:\n def __del__(self): os.kill(os.getpid(), signal.SIGINT); sum(range(100))\n"
        "def work():\n import time\n Deaf()\n time.sleep(30)\n return 0\n"
        "ending.ended('iclflow', work, program=True)"
    )
    begun = time.monotonic()
    done = subprocess.run([PROGRAM[0], "-c", script], capture_output=True, text=True, timeout=20)
    assert time.monotonic() - begun < 5
    assert done.returncode == 130
    assert done.stderr.endswith("iclflow: interrupted\n")
