"""The pool of processes: tasks are done once, a death costs one task, and nothing outlives the pool."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pool_tasks
from iclflow.errors import BadInput, IclflowError
from iclflow.system import processes
from iclflow.system.processes import ProcessDied, Processes


def test_every_task_is_done_once_and_says_how_it_ended():
    with Processes(2) as pool:
        for number in range(10):
            pool.give(number, abs, -number)
        pool.give("bad", int, "five")
        pool.give("silent", pool_tasks.refuse_to_travel)
        ends = {task.key: task for task in pool.finished()}
    assert [ends[number].value for number in range(10)] == list(range(10))
    assert isinstance(ends["bad"].error, ValueError)
    assert str(ends["silent"].error) == "Untransferable: two and three"
    assert len(ends) == 12


def test_a_process_that_dies_costs_its_own_task_alone():
    with Processes(2) as pool:
        for number in range(6):
            pool.give(number, pool_tasks.slow_square, number)
        pool.give("dead", os._exit, 7)
        ends = {task.key: task for task in pool.finished()}
    assert isinstance(ends["dead"].error, ProcessDied)
    assert "exit code 7" in str(ends["dead"].error)
    assert [ends[number].value for number in range(6)] == [0, 1, 4, 9, 16, 25]


def test_tasks_of_a_group_go_to_the_same_process():
    with Processes(2) as pool:
        for group in ("a", "b"):
            for number in range(5):
                pool.give((group, number), pool_tasks.process_number, group=group)
        ends = list(pool.finished())
    for group in ("a", "b"):
        assert len({task.value for task in ends if task.key[0] == group}) == 1
    assert len({task.value for task in ends}) == 2


def test_a_free_process_helps_with_the_last_group():
    with Processes(2) as pool:
        for number in range(8):
            pool.give(number, pool_tasks.process_number, group="only")
        assert len({task.value for task in pool.finished()}) == 2


def test_variables_are_set_before_a_task_is_read():
    with Processes(1, {"COLOUR": "green"}) as pool:
        pool.give(0, os.getenv, "COLOUR")
        [task] = pool.finished()
    assert task.value == "green"


def test_processes_that_never_begin_are_not_started_for_ever(monkeypatch):
    monkeypatch.setattr(processes, "serve", os._exit)  # whose arguments are wrong
    with Processes(2) as pool:
        pool.give(0, abs, 1)
        with pytest.raises(IclflowError, match="5 in a row could not be started"):
            list(pool.finished())


def test_no_process_outlives_the_pool_or_ignores_its_end():
    with Processes(2) as pool:
        for _ in range(2):
            pool.give(0, time.sleep, 60)
        while sum(worker.task is not None for worker in pool.workers) < 2:
            pool.next_finished(timeout=0.1)
        numbers = [worker.process.pid for worker in pool.workers]
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


KILLED = """
import os, signal, time
from iclflow.system.processes import Processes
pool = Processes(1)
pool.give(0, time.sleep, 60)
while not (pool.workers and pool.workers[0].task):
    pool.next_finished(timeout=0.1)
print(pool.workers[0].process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_when_their_parent_is_killed():
    parent = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60)
    assert parent.returncode == -signal.SIGKILL
    number = int(parent.stdout)
    end = time.monotonic() + 5
    while running(number) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running(number)


def running(number: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_errors_of_ours_keep_their_kind():
    with Processes(1) as pool:
        pool.give(0, pool_tasks.complain)
        [task] = pool.finished()
    assert isinstance(task.error, BadInput)
    assert str(task.error) == "field: must be more"
