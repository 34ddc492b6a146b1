"""A sweep at the top level of a plain script: workers do not run the script again."""

import multiprocessing
import subprocess
import sys

import pytest

import iclflow as icl

SCRIPT = """\
import iclflow as icl

with open("loads", "a") as file:
    file.write(f"{__name__} ")
base = {"model": "merged", "heads": 2, "dim": 2, "context": 4, "lr": 0.05, "steps": 20, "samples": 40}
print(icl.sweep({"base": base, "seeds": 3}, "s", workers=2).status, __file__ is not None)
"""


def test_a_script_without_a_guard_runs_its_sweep_once(tmp_path):
    (tmp_path / "plain.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "{'ok': 3} True\n", done.stderr
    assert (tmp_path / "loads").read_text() == "__main__ "


def test_a_process_that_is_being_spawned_is_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(icl.BadInput, match="__main__"):
        icl.sweep({"base": {"dim": 2}}, tmp_path / "s", workers=0)
    assert not (tmp_path / "s").exists()
