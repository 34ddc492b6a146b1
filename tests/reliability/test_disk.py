"""A full disk and a read-only directory: exit code 4, one line, earlier runs readable, resume works."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability.harness import FULL, count, disturbed, finished, run, start, tiny, until, whole

SEEDS = count(12, 5)


@pytest.fixture
def small_disk(tmp_path):
    """Three megabytes of disk, which only root can make."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    yield path
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["umount", "-l", str(path)], timeout=10)


def remount(path: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True, timeout=10)


def fill(path: Path) -> Path:
    filler = path / "filler"
    handle = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(handle, bytes(4096)):
            pass
    os.close(handle)
    return filler


def ends_in_one_line(code: int, err: str, words: str) -> None:
    lines = [line for line in err.splitlines() if "runs done" not in line]  # progress aside
    assert code == 4, err
    assert len(lines) == 1, err
    assert words in lines[0]


@pytest.mark.parametrize("workers", [0, 2] if FULL else [0])
def test_a_disk_that_fills_up_ends_the_session_and_nothing_else(tmp_path, small_disk, workers, measured):
    file, path = tiny(tmp_path, SEEDS), small_disk / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", workers)) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 3, 60)
        before, filler = finished(path), fill(small_disk)
        _, err = process.communicate(timeout=60)
        ends_in_one_line(process.returncode, err, "No space left on device")
        assert "--resume" in err
    assert whole(path)
    assert before.items() <= finished(path).items()
    assert icl.load(path).status["ok"] >= len(before)
    if FULL:
        code, _, err = run("sweep", file, "--out", path, "--workers", workers, "--resume")
        ends_in_one_line(code, err, "No space left on device")
    filler.unlink()
    assert run("sweep", file, "--out", path, "--workers", workers, "--resume")[0] == 0
    run_grid(read_grid(file), tmp_path / "undisturbed", workers=0)
    assert finished(path) == finished(tmp_path / "undisturbed")
    measured(f"full after {len(before)} of {4 * SEEDS} runs: exit 4, one line, resumed bit-identically")


def test_a_sweep_that_cannot_fit_is_refused_before_it_starts(tmp_path, small_disk):
    code, _, err = run("sweep", tiny(tmp_path, 2000), "--out", small_disk / "s", "--workers", 0)
    ends_in_one_line(code, err, "needs 94 MiB")
    assert not (small_disk / "s" / "sweep.json").exists()


def test_a_read_only_directory_can_be_read_and_resumed_later(tmp_path, small_disk, measured):
    file, path = tiny(tmp_path, 2), small_disk / "s"
    run_grid(read_grid(file), path, workers=0)
    (path / "runs" / "000003.json").unlink()
    before = finished(path)
    remount(small_disk, "ro")
    code, _, err = run("sweep", file, "--out", path, "--workers", 0, "--resume")
    ends_in_one_line(code, err, "Read-only file system")
    code, _, err = run("sweep", file, "--out", small_disk / "new", "--workers", 0)
    ends_in_one_line(code, err, "Read-only file system")
    assert finished(path) == before
    assert icl.load(path).status == {"missing": 1, "ok": 7}
    remount(small_disk, "rw")
    assert run("sweep", file, "--out", path, "--workers", 0, "--resume")[0] == 0
    assert before.items() <= finished(path).items()
    assert np.isfinite(icl.load(path).data["final_loss"].values).all()
    measured("exit 4, one line, 7 earlier runs readable, resumed")


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path):
    file, path = tiny(tmp_path, 1), tmp_path / "s"
    arguments = ["sweep", str(file), "--out", str(path), "--workers", "0"]
    limited = (
        "import resource, sys; from iclflow.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "main(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", limited, *arguments], capture_output=True, text=True, timeout=60)
    ends_in_one_line(done.returncode, done.stderr, "File too large")
    assert run(*arguments, "--resume")[0] == 0
    assert len(finished(path)) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_exit_code_four(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    code, _, err = run("sweep", tiny(tmp_path, 1), "--out", tmp_path / "closed" / "s", "--workers", 0)
    ends_in_one_line(code, err, "Permission denied")
