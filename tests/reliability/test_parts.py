"""`--part i/n`: eight parts write to one store at once, two of them are killed and run again; nothing is lost."""

import json
import os
import signal
import time

import pytest

import iclflow as icl
from iclflow.sweeps.parts import Part
from iclflow.sweeps.store.protocol import WORK
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability.harness import count, disturbed, finished, kill_group, run, start, tiny, until, whole

PARTS = 8


def test_eight_parts_at_once_of_which_two_are_killed(tmp_path, measured):
    file, path = tiny(tmp_path, count(40, 6), steps=count(4000, 200)), tmp_path / "s"
    grid = read_grid(file)
    command = ("sweep", file, "--out", path, "--workers", 0)
    parts = [start(*command, "--part", f"{i}/{PARTS}") for i in range(1, PARTS + 1)]
    try:
        assert until(lambda: path.exists() and len(list((path / "runs").glob("*.json"))) > 0, 120)
        killed = []
        for number in (3, 6):
            kill_group(parts[number - 1])
            killed.append(parts[number - 1].wait())
        ends = [process.communicate(timeout=300) for process in parts]
    finally:
        for process in parts:
            kill_group(process)
    codes = [process.returncode for process in parts]
    assert codes == [-signal.SIGKILL if i in (3, 6) else 0 for i in range(1, PARTS + 1)], ends
    assert whole(path)
    missing = grid.count - len(finished(path))
    survivors = [run for i in range(1, PARTS + 1) if i not in (3, 6) for run in Part(i, PARTS).runs(grid)]
    assert set(survivors) <= set(finished(path))
    for number in (3, 6):
        code, out, err = run(*command, "--part", f"{number}/{PARTS}")
        assert code == 0, err
    if missing:
        assert out.splitlines()[-1] == f"{path}: all {grid.count} runs are there"
    assert json.loads(run("sweep", "status", path, "--json")[1]) == {
        "runs": grid.count, "status": {"ok": grid.count}, "writer": None,
    }  # fmt: skip
    assert not (path / WORK).exists()
    run_grid(grid, tmp_path / "whole", workers=0)
    assert finished(path) == finished(tmp_path / "whole")
    measured(f"{grid.count} runs in {PARTS} parts at once, 2 killed with {missing} runs missing: 0 lost, identical")


def test_status_names_the_parts_at_work_and_a_whole_session_waits_for_them(tmp_path):
    file, path = tiny(tmp_path, 40), tmp_path / "s"
    with disturbed(start("sweep", file, "--out", path, "--workers", 0, "--part", "2/3")) as process:
        assert until(lambda: path.exists() and len(finished(path)) > 1, 60)
        os.killpg(process.pid, signal.SIGSTOP)
        _, out, _ = run("sweep", "status", path)
        assert f"at work: part 2 of 3, process {process.pid} on " in out
        for flags in (["--resume"], ["--part", "2/3"]):
            code, _, err = run("sweep", file, "--out", path, "--workers", 0, *flags)
            assert code == 2
            assert "is being written by" in err
        code, out, err = run("sweep", file, "--out", path, "--workers", 0, "--part", "1/3")
        assert code == 0, err
        assert "part 1 of 3: 54 of 54 runs are done (54 ok)" in out
        assert " of 160 runs are missing" in out
        os.killpg(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert err.splitlines()[-1].endswith(f"go on with: iclflow sweep {file} --out {path} --part 2/3")
    assert "nobody is at work on it" in run("sweep", "status", path)[1]


def test_every_run_is_in_one_part_and_data_are_shared_as_far_as_may_be(tmp_path):
    base = {"dim": 2, "samples": 50, "steps": 5, "lr": 0.1}
    grid = icl.sweep({"base": base, "axes": {"init": [0.1, 0.2]}, "seeds": 6}, tmp_path / "s", workers=0).grid
    for parts in (1, 3, 4, 5, 12, 17):
        shares = [Part(i, parts).runs(grid) for i in range(1, parts + 1)]
        assert sorted(run for share in shares for run in share) == list(range(12))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert [{grid.seed(run) for run in Part(i, 3).runs(grid)} for i in (1, 2, 3)] == [{0, 1}, {2, 3}, {4, 5}]


@pytest.mark.parametrize("part", ["0/3", "4/3", "2", "a/b", "1/0", "-1/3", "1/1000000", "1/3/4", ""])
def test_what_is_no_part_is_refused_in_a_line_and_nothing_is_written(tmp_path, part):
    with pytest.raises(icl.BadInput, match="part: .* must be i/n, such as 3/8"):
        icl.sweep({"base": {"dim": 2, "samples": 50, "steps": 5, "lr": 0.1}}, tmp_path / "s", part=part)
    assert not (tmp_path / "s").exists()


def test_another_grid_cannot_join_and_a_scheduler_has_no_parts(tmp_path):
    grid = {"base": {"dim": 2, "samples": 50, "steps": 5, "lr": 0.1}, "seeds": 4}
    assert icl.sweep(grid, tmp_path / "s", workers=0, part="1/2").status == {"missing": 2, "ok": 2}
    with pytest.raises(icl.BadInput, match=r"seeds: was \[0, 1, 2, 3\], is now \[0, 1\]"):
        icl.sweep({**grid, "seeds": 2}, tmp_path / "s", workers=0, part="2/2")
    with pytest.raises(icl.BadInput, match="part: is for jobs that need no scheduler"):
        icl.sweep(grid, tmp_path / "s", part="2/2", scheduler="tcp://127.0.0.1:9")
    begun = time.monotonic()
    assert icl.sweep(grid, tmp_path / "s", workers=0, part="2/2").status == {"ok": 4}
    assert time.monotonic() - begun < 20
