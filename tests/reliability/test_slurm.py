"""The recipe of docs/how-to/sweep.md on a real Slurm: jobs die at any time, the node and the controller go away."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability.harness import FULL, count, disturbed, finished, only_full, tiny, until, whole
from reliability.slurm import Slurm, missing
from reliability.test_cluster import one_death_from_the_end

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sweep.md"
[RECIPE] = [block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "SLURMCluster" in block]
[ARRAY] = [block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) if "--array" in block]
HERE = {  # what a reader adapts
    'interface="ib0"': 'interface="lo"',
    'memory="4GB"': 'memory="1GB"',
    '"ranks.toml"': '"tiny.toml"',
    '"/shared/me/ranks"': '"s"',
}


def recipe(directory: Path, jobs: int) -> list[str]:
    """The command of the page's script, for the sweep and the Slurm of a test."""
    script = RECIPE
    for theirs, ours in {**HERE, "maximum_jobs=200": f"maximum_jobs={jobs}"}.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    (directory / "recipe.py").write_text(script)
    return [sys.executable, "recipe.py"]


def begun(directory: Path, slurm: Slurm, jobs: int) -> subprocess.Popen:
    return subprocess.Popen(
        recipe(directory, jobs), cwd=directory, env=slurm.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def slurm():
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue (the extra slurm)")
    if why := missing():
        pytest.skip(why)
    made = Slurm()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_jobs_that_are_cancelled_and_requeued_cost_nothing(tmp_path, slurm, measured):
    """200 runs in full; every few of them a job is cancelled or requeued, and once the controller is restarted."""
    seeds, every = count(50, 4), count(8, 5)
    file = tiny(tmp_path, seeds, steps=count(20_000, 200))
    path, disturbed_by = tmp_path / "s", {"scancel": 0, "requeue": 0, "controller": 0}
    with disturbed(begun(tmp_path, slurm, jobs=2)) as process:
        last = 0
        while process.poll() is None:
            done = len(list((path / "runs").glob("*.json"))) if path.exists() else 0
            jobs = slurm.jobs() if done >= last + every and not one_death_from_the_end(path) else []
            if jobs:
                last = done
                if disturbed_by["requeue"] < disturbed_by["scancel"]:
                    slurm.command("scontrol", "requeue", min(jobs, key=int))
                    disturbed_by["requeue"] += 1
                else:
                    slurm.command("scancel", min(jobs, key=int))
                    disturbed_by["scancel"] += 1
                if disturbed_by["controller"] == 0 and sum(disturbed_by.values()) >= 2:
                    slurm.restart_controller()
                    disturbed_by["controller"] = 1
            until(lambda: process.poll() is not None, 0.1)
        _, err = process.communicate()
    assert process.returncode == 0, err + slurm.log()
    assert whole(path)
    run_grid(read_grid(file), tmp_path / "local", workers=0)
    assert finished(path) == finished(tmp_path / "local")
    assert min(disturbed_by.values()) >= 1
    measured(
        f"{4 * seeds} runs on Slurm; {disturbed_by['scancel']} jobs cancelled, {disturbed_by['requeue']} requeued,"
        f" controller restarted {disturbed_by['controller']} time: 0 lost, bit-identical to local"
    )


def undisturbed(tmp_path: Path, file: Path) -> dict[int, str]:
    run_grid(read_grid(file), tmp_path / "local", workers=0)
    return finished(tmp_path / "local")


def runs_in(path: Path) -> int:
    return len(list((path / "runs").glob("*.json"))) if path.exists() else 0


@pytest.mark.parametrize("jobs", [1, 2] if FULL else [1])
def test_jobs_that_are_cancelled_while_their_workers_start_are_asked_for_again(tmp_path, slurm, jobs, measured):
    """All jobs that the sweep asks for first are cancelled before a worker can have connected."""
    file, path, cancelled = tiny(tmp_path, 2), tmp_path / "s", set()
    with disturbed(begun(tmp_path, slurm, jobs)) as process:
        while len(cancelled) < jobs:
            assert process.poll() is None, process.communicate()
            for job in {*slurm.jobs(), *slurm.jobs("PENDING")} - cancelled:
                assert runs_in(path) == 0
                slurm.command("scancel", job)
                cancelled.add(job)
            until(lambda: False, 0.05)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err + slurm.log()
    assert ", no worker for " in err
    assert finished(path) == undisturbed(tmp_path, file)
    measured(f"maximum_jobs={jobs}: {len(cancelled)} cancelled while starting, asked for again, 0 runs lost")


@only_full
def test_half_of_the_jobs_cancelled_while_starting_come_back_beside_the_others(tmp_path, slurm, measured):
    file, path, seen = tiny(tmp_path, 60, steps=20_000), tmp_path / "s", set()
    with disturbed(begun(tmp_path, slurm, jobs=2)) as process:
        assert until(lambda: len({*slurm.jobs(), *slurm.jobs("PENDING")}) == 2, 120, 0.05)
        first = min(slurm.jobs() + slurm.jobs("PENDING"), key=int)
        slurm.command("scancel", first)
        assert until(lambda: runs_in(path) > 0, 120)
        assert until(lambda: seen.update(slurm.jobs()) or len(seen - {first}) == 2, 120, 0.2), slurm.log()
        _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err + slurm.log()
    assert finished(path) == undisturbed(tmp_path, file)
    measured("maximum_jobs=2, one cancelled while starting: back at two workers, 0 runs lost")


@only_full
def test_a_drained_node_and_a_requeued_job_cost_time_alone(tmp_path, slurm, measured):
    file, path = tiny(tmp_path, 8, steps=5000), tmp_path / "s"
    with disturbed(begun(tmp_path, slurm, jobs=1)) as process:
        assert until(lambda: runs_in(path) > 3, 120)
        slurm.command("scontrol", "update", f"nodename={slurm.host}", "state=drain", "reason=test")
        [job] = slurm.jobs()
        slurm.command("scontrol", "requeue", job)
        assert until(lambda: not slurm.jobs(), 60, 0.2)
        before = runs_in(path)
        until(lambda: False, 60)  # longer than Slurm would have to forget a job that is dead
        assert process.poll() is None
        assert runs_in(path) <= before + 1
        assert len(slurm.command("squeue", "-h", "-o", "%i").split()) == 1  # as many as before wait for the node
        slurm.command("scontrol", "update", f"nodename={slurm.host}", "state=resume")
        _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err + slurm.log()
    assert ", no worker for " in err
    assert finished(path) == undisturbed(tmp_path, file)
    measured("node drained and its job requeued: the sweep waits, says so, and goes on; 0 runs lost")


@only_full
def test_jobs_that_can_never_start_end_the_sweep(tmp_path, slurm, measured):
    tiny(tmp_path, 1)
    with disturbed(begun(tmp_path, slurm, jobs=2)) as process:
        while process.poll() is None:
            for job in {*slurm.jobs(), *slurm.jobs("PENDING")}:
                slurm.command("scancel", job)
            until(lambda: process.poll() is not None, 0.1)
        _, err = process.communicate()
    assert process.returncode == 1, err
    assert "IclflowError: scheduler: 6 jobs in a row ended before their worker connected" in err.splitlines()[-1]
    measured("every job cancelled while starting: the sweep ends with exit code 1")


@only_full
def test_the_script_for_an_array_of_jobs_fills_the_store_although_two_are_requeued(tmp_path, slurm, measured):
    file, path = tiny(tmp_path, 8, steps=5000), tmp_path / "s"
    script = ARRAY
    for theirs, ours in {
        "1-100": "1-8", "/100": "/8", "--mem=2G": "--mem=500M", "iclflow sweep": f"{sys.executable} -m iclflow sweep",
        "ranks.toml": file.name, "/shared/me/ranks": str(path),
    }.items():  # fmt: skip
        assert theirs in script
        script = script.replace(theirs, ours)
    (tmp_path / "array.sh").write_text(script)
    slurm.command("sbatch", f"--chdir={tmp_path}", str(tmp_path / "array.sh"))
    assert until(lambda: runs_in(path) > 2, 200, 0.2), slurm.log()
    requeued = sorted(slurm.jobs())[:2]
    for job in requeued:
        slurm.command("scontrol", "requeue", job)
    waiting = lambda: [*slurm.jobs("PENDING"), *slurm.jobs(), *slurm.jobs("COMPLETING")]
    assert until(lambda: not waiting(), 500, 1), waiting()
    assert finished(path) == undisturbed(tmp_path, file), [out.read_text()[-300:] for out in tmp_path.glob("*.out")]
    last = max(tmp_path.glob("slurm-*.out"), key=lambda out: out.stat().st_mtime).read_text().splitlines()[-1]
    assert last == f"{path}: all 32 runs are there"
    measured(f"32 runs in an array of 8 jobs, of which {len(requeued)} were requeued: all there, 0 lost")
