"""A real dask scheduler and two workers on loopback: workers, scheduler and a poisonous run die; nothing is lost."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import iclflow as icl
from iclflow.sweeps.store.protocol import WORK
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from iclflow.sweeps.workers.tasks import MOST_TRIES
from reliability.harness import (
    count,
    disturbed,
    finished,
    kill_group,
    only_full,
    run,
    start,
    tiny,
    until,
    whole,
    workers_of,
)

LOOPBACK = "127.0.0.1"
POISON = str(Path(__file__).with_name("poison.py"))  # only for workers: it changes whoever loads it


class Cluster:
    """A scheduler and two workers, each under a nanny that starts it again when it dies."""

    def __init__(self, directory: Path, *preload: str):
        self.directory, self.preload = directory, preload
        self.file = directory / "scheduler.json"
        self.processes: list[subprocess.Popen] = []

    def start(self) -> None:
        self.file.unlink(missing_ok=True)
        self.spawn("dask_scheduler", "--host", LOOPBACK, "--port", "0", "--no-dashboard", "--scheduler-file", self.file)
        assert until(self.file.exists, 30)
        for _ in range(2):
            self.spawn(
                "dask_worker", "--scheduler-file", self.file, "--nthreads", "1", "--host", LOOPBACK, "--no-dashboard",
                "--local-directory", self.directory, "--death-timeout", "20", *self.preload,
            )  # fmt: skip

    def spawn(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *map(str, arguments)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(command, start_new_session=True, cwd=self.directory, **quiet))

    def workers(self) -> list[int]:
        return [pid for process in self.processes[1:] for pid in workers_of(process)]

    def kill_scheduler(self) -> None:
        self.processes[0].kill()

    def stop(self) -> None:
        for process in self.processes:
            kill_group(process)
            process.wait()
        self.processes.clear()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.stop()


def undisturbed(tmp_path, file: Path) -> dict[int, str]:
    run_grid(read_grid(file), tmp_path / "local", workers=count(1, 0))
    return finished(tmp_path / "local")


def one_death_from_the_end(path: Path) -> bool:
    """Whether some run has lost so many workers that one more would have it given up, as the session promises."""
    tries = [file for file in (path / WORK).glob("*/*") if file.is_file() and file.name.isdigit()]
    done = {file.stem for file in (path / "runs").glob("*.json")}
    with contextlib.suppress(FileNotFoundError):  # the session has ended
        return any(file.stat().st_size >= MOST_TRIES and f"{int(file.name):06d}" not in done for file in tries)
    return False


def test_workers_that_die_cost_nothing(tmp_path, cluster, measured):
    """No run may lose its worker three times, and runs must be long beside a look at them: luck has no say here."""
    seeds, every = count(50, 3), 5
    file, path = tiny(tmp_path, seeds, steps=count(40_000, 20)), tmp_path / "s"
    deaths, killed_at = 0, 0
    with disturbed(start("sweep", file, "--out", path, "--scheduler", cluster.file)) as process:
        while process.poll() is None:
            done = len(list((path / "runs").glob("*.json"))) if path.exists() else 0
            due = done >= killed_at + every and not one_death_from_the_end(path)
            if due and (alive := cluster.workers()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(min(alive), signal.SIGKILL)  # the one that has been at work for longest
                    deaths, killed_at = deaths + 1, done
            until(lambda: process.poll() is not None, 0.02)
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert whole(path)
    assert finished(path) == undisturbed(tmp_path, file)
    measured(f"{deaths} deaths of workers in {4 * seeds} runs: 0 lost, bit-identical to local processes")
    assert deaths >= count(30, 1)


@only_full
def test_a_poison_run_is_given_up_and_the_rest_finish(tmp_path, measured):
    cluster = Cluster(tmp_path, "--preload", POISON)
    cluster.start()
    try:
        file, path = tiny(tmp_path, 2), tmp_path / "s"
        code, out, err = run("sweep", file, "--out", path, "--scheduler", cluster.file, timeout=200)
        assert code == 1, err
        assert "8 of 8 runs are done (1 failed, 7 ok)" in out, run("sweep", "status", path)
        sweep = icl.load(path)
        bad = sweep.data.sel(init=0.2, samples=40, seed=1)
        assert bad["status"] == "failed"
        assert bad["why"] == "its worker died 3 times"
        sound = Cluster(tmp_path)
        cluster.stop()
        sound.start()
        cluster = sound
        assert run("sweep", file, "--out", path, "--scheduler", cluster.file, "--resume", timeout=200)[0] == 0
        assert finished(path) == undisturbed(tmp_path, file)
        measured("given up after 3 tries, 7 others finished, redone by --resume once it is harmless")
    finally:
        cluster.stop()


@only_full
def test_a_scheduler_that_dies_costs_nothing(tmp_path, cluster, measured):
    file, path = tiny(tmp_path, count(20, 5)), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--scheduler", cluster.file)) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 3, 60)
        cluster.kill_scheduler()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        lines = [line for line in err.splitlines() if "runs done" not in line]
        assert len(lines) == 1, err
        assert lines[0].startswith("iclflow: scheduler: is gone")
        assert lines[0].endswith("--resume")
    before = finished(path)
    cluster.stop()
    cluster.start()
    assert run("sweep", file, "--out", path, "--scheduler", cluster.file, "--resume", timeout=200)[0] == 0
    assert before.items() <= finished(path).items()
    assert finished(path) == undisturbed(tmp_path, file)
    measured(f"scheduler killed after {len(before)} runs; after a restart resumed, bit-identical")


@pytest.mark.parametrize("where", ["nowhere.json", "tcp://127.0.0.1:9", "127.0.0.1:port", "tcp://", ""][: count(5, 2)])
def test_a_scheduler_that_is_not_there_is_one_line_and_nothing_is_written(tmp_path, where):
    code, _, err = run("sweep", tiny(tmp_path, 1), "--out", tmp_path / "s", "--scheduler", where)
    assert code == 2
    assert err.startswith("iclflow: scheduler: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "s").exists()
