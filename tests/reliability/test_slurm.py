"""The recipe of docs/how-to/sweep.md on a real Slurm: jobs are cancelled and requeued, the controller is restarted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability.harness import count, disturbed, finished, tiny, until, whole
from reliability.slurm import Slurm, missing
from reliability.test_cluster import one_death_from_the_end

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sweep.md"
[RECIPE] = [block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "SLURMCluster" in block]
HERE = {  # what a reader adapts
    'interface="ib0"': 'interface="lo"',
    'memory="4GB"': 'memory="1GB"',
    "maximum_jobs=200": "maximum_jobs=2",
    '"ranks.toml"': '"tiny.toml"',
    '"/shared/me/ranks"': '"s"',
}


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
    script = RECIPE
    for theirs, ours in HERE.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    (tmp_path / "recipe.py").write_text(script)
    path, disturbed_by = tmp_path / "s", {"scancel": 0, "requeue": 0, "controller": 0}
    command = [sys.executable, "recipe.py"]
    with disturbed(
        subprocess.Popen(command, cwd=tmp_path, env=slurm.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, start_new_session=True)
    ) as process:  # fmt: skip
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
