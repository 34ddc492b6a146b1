"""Waiting for the workers of a cluster: it is said for how long, and dead jobs are asked for again."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from iclflow.errors import IclflowError
from iclflow.sweeps.workers import cluster
from iclflow.sweeps.workers.cluster import LONGEST_ABSENCE, MISSING_JOB, MOST_DEAD_JOBS, RECOUNT, Absence, known_jobs


class Jobs:
    """A cluster of dask-jobqueue, as far as it is asked."""

    job_name = "dask-worker"

    def __init__(self, *names: int):
        self.workers = {name: SimpleNamespace(job_id=str(name)) for name in names}
        self.observed: set[int] = set()
        self.scaled: list[int] = []
        self.made = max(names)

    @property
    def plan(self) -> set[int]:
        return {1, 2}

    def sync(self, function):
        asyncio.run(function())

    def scale(self, count: int) -> None:
        self.scaled.append(count)
        for name in self.plan - set(self.workers):
            self.made += 1
            self.workers[name] = SimpleNamespace(job_id=str(self.made))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.time)
    return now


@pytest.fixture
def slurm(monkeypatch):
    known: set[str] = set()
    monkeypatch.setattr(cluster, "known_jobs", lambda: known)
    return known


def client(**threads: int) -> SimpleNamespace:
    return SimpleNamespace(nthreads=lambda: threads)


def look(absence: Absence, clock: SimpleNamespace, seconds: float) -> None:
    end = clock.time + seconds
    while clock.time < end:
        clock.time += RECOUNT + 0.1
        absence.look()


def test_it_is_said_for_how_long_there_has_been_no_worker(clock, slurm):
    absence = Absence(client(), Jobs(1, 2))
    slurm |= {"1", "2"}  # they wait in the queue
    assert str(absence) == ""
    look(absence, clock, 600)
    assert str(absence) == ", no worker for 10 min"
    look(absence, clock, 20 * LONGEST_ABSENCE)  # as long as the queue is
    absence.client = client(one=1)
    look(absence, clock, RECOUNT)
    assert str(absence) == ""


def test_a_job_that_slurm_has_forgotten_is_asked_for_again_and_one_that_works_is_not(clock, slurm):
    jobs = Jobs(1, 2)
    jobs.observed = {2}
    absence = Absence(client(two=1), jobs)
    look(absence, clock, MISSING_JOB - 10)
    assert jobs.scaled == []
    look(absence, clock, 20)
    assert jobs.scaled == [2]
    assert {name: job.job_id for name, job in jobs.workers.items()} == {1: "3", 2: "2"}
    slurm.add("3")
    look(absence, clock, 10 * MISSING_JOB)
    assert jobs.scaled == [2]


def test_many_dead_jobs_and_no_worker_end_the_session(clock, slurm):
    absence = Absence(client(), Jobs(1, 2))
    with pytest.raises(IclflowError, match=f"{MOST_DEAD_JOBS + 1} jobs in a row ended before their worker connected"):
        look(absence, clock, 20 * MISSING_JOB)
    beside = Absence(client(other=1), Jobs(1, 2))
    look(beside, clock, 20 * MISSING_JOB)  # others work


def test_a_session_that_cannot_ask_for_jobs_ends_after_an_hour(clock, monkeypatch):
    absence = Absence(client(), "tcp://127.0.0.1:8786")
    look(absence, clock, LONGEST_ABSENCE - 10)
    with pytest.raises(IclflowError, match="no worker for 60 min; resume once there is one"):
        look(absence, clock, 20)


def test_where_slurm_does_not_answer_nothing_is_known_of_jobs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert known_jobs() is None
