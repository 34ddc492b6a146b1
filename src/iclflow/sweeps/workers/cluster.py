"""The user's dask scheduler: runs are handed to it, and jobs of Slurm that die before they connect are asked for again.

A batch queue may take long to start a worker, so a session waits, and says so. Given the cluster object of
dask-jobqueue it knows which of its jobs Slurm still has; given an address alone it cannot, and ends in the end.
"""

import contextlib
import getpass
import queue
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iclflow.engines.choose import choose
from iclflow.errors import BadInput, IclflowError
from iclflow.experiment import Experiment
from iclflow.sweeps.grid import Grid
from iclflow.sweeps.workers.tasks import MOST_TRIES, Code, current_versions, do_run, handshake, lost_run, make_moments
from iclflow.system.files import read_json
from iclflow.system.progress import duration

__all__ = ["Cluster", "cluster_of", "scheduler_address"]

GONE = "scheduler: is gone, or has dropped the work"
PATIENCE = 20.0  # seconds to wait for an answer, and without a worker before this is said
AHEAD = 4  # runs that wait per worker
FEWEST = 16  # workers that a cluster is assumed to have at least, so that an adaptive one grows
RECOUNT = 5.0  # seconds between looks at workers and jobs
LONGEST_ABSENCE = 3600.0  # seconds without a worker after which a session ends that cannot ask for jobs
MISSING_JOB = 30.0  # seconds for which Slurm has not known a job without a worker; dask itself needs half of it
MOST_DEAD_JOBS = 5  # jobs that may die before they connect while there is no worker at all


def scheduler_address(given: Any) -> str:
    """The address of a cluster object, in a scheduler file, or as given; a process must be listening there."""
    if not isinstance(given, str):
        if not isinstance(address := getattr(given, "scheduler_address", None), str) or "://" not in address:
            raise BadInput(f"scheduler: {given!r:.80} must be an address, a scheduler file or a running dask cluster")
        return address
    address = given
    if "://" not in given and Path(given).exists():
        try:
            address = str(read_json(given, "scheduler")["address"])
        except (KeyError, TypeError):
            raise BadInput(f"scheduler: {given!r} must be a scheduler file that dask has written") from None
    protocol, slashes, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"scheduler: {given!r} must be an address such as tcp://127.0.0.1:8786, or a scheduler file")
    if protocol in ("", "tcp", "tls"):  # dask checks the others
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BadInput(f"scheduler: no process answers at {address!r} ({reason})") from None
    return address if slashes else f"tcp://{address}"


@contextlib.contextmanager
def cluster_of(scheduler: Any, grid: Grid, path: str, digest: str, session: str, code: Code) -> Iterator["Cluster"]:
    """A connection to the user's scheduler, which ends with the session."""
    quiet_logs()
    from distributed import Client

    at = scheduler_address(scheduler) if isinstance(scheduler, str) else scheduler
    try:
        client = Client(at, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise BadInput(f"scheduler: cannot reach {scheduler!r:.80} ({type(error).__name__})") from None
    try:
        yield Cluster(client, Absence(client, scheduler), grid, path, digest, session, code)
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=2)


def quiet_logs() -> None:
    """Silence dask, which reports every lost worker in many lines; the session reports what matters."""
    import logging

    import dask
    import distributed  # noqa: F401  (creates the loggers)

    dask.config.set({"distributed.scheduler.allowed-failures": 10})  # tries are counted in the store
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio", "bokeh"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class Absence:
    """For how long there has been no worker; asks again for jobs of Slurm that died before their worker connected."""

    def __init__(self, client: Any, scheduler: Any):
        self.client = client
        self.cluster: Any = None if isinstance(scheduler, str) else scheduler
        self.since = self.looked = time.monotonic()
        self.workers, self.dead_count = 0, 0
        self.missing: dict[str, float] = {}  # since when Slurm has not known a job

    def __str__(self) -> str:
        for_long = time.monotonic() - self.since
        return f", no worker for {duration(for_long)}" if not self.workers and for_long > PATIENCE else ""

    def look(self) -> None:
        """Count the workers and replace dead jobs; raises an error if waiting longer is of no use."""
        now = time.monotonic()
        if now - self.looked < RECOUNT:
            return
        self.looked = now
        self.workers = sum(self.client.nthreads().values())
        if self.workers:
            self.since, self.dead_count = now, 0
        known = known_jobs() if hasattr(self.cluster, "job_name") else None
        if known is None and now - self.since > LONGEST_ABSENCE:
            raise IclflowError(f"scheduler: no worker for {duration(now - self.since)}; resume once there is one")
        if known is not None and (dead := self.dead_jobs(known, now)):
            self.dead_count += len(dead)
            if self.dead_count > MOST_DEAD_JOBS and not self.workers:
                why = "jobs in a row ended before their worker connected; resume once their logs show no error"
                raise IclflowError(f"scheduler: {self.dead_count} {why}")
            self.ask_again(dead)

    def dead_jobs(self, known: set[str], now: float) -> list[Any]:
        """The names of the jobs without a worker that Slurm has not known for a while."""
        present, dead = {str(name) for name in self.cluster.observed}, []
        for name, job in list(self.cluster.workers.items()):
            connected = any(one == str(name) or one.startswith(f"{name}-") for one in present)
            if job.job_id is None or job.job_id in known or connected:
                self.missing.pop(job.job_id, None)
            elif now - self.missing.setdefault(job.job_id, now) > MISSING_JOB:
                dead.append(name)
        return dead

    def ask_again(self, dead: list[Any]) -> None:
        """Let the cluster forget jobs; it then has fewer than it was told to have, and makes new ones."""

        async def forget() -> None:
            for name in dead:
                self.cluster.workers.pop(name, None)

        self.cluster.sync(forget)
        self.cluster.scale(len(self.cluster.plan))


def known_jobs() -> set[str] | None:
    """The user's jobs that Slurm has, waiting or running; `None` if it does not say."""
    try:
        command = ["squeue", "-h", "-u", getpass.getuser(), "-o", "%A"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(answer.stdout.split())


def shares_moments(experiment: Experiment) -> bool:
    """Whether a run needs moments of a finite sample, which other runs may share."""
    return experiment.data is None and not experiment.population and choose(experiment).engine in ("moments", "flow")


class Cluster:
    """Workers behind a dask scheduler."""

    def __init__(
        self, client: Any, absence: Absence, grid: Grid, path: str, digest: str, session: str, code: Code
    ) -> None:
        self.client, self.waiting_for, self.grid = client, absence, grid
        self.store, self.session, self.code = (path, digest), session, code
        self.first_answer = client.submit(handshake, path, digest, code, pure=False)
        self.checked = False
        self.done: queue.Queue[Any] = queue.Queue()
        self.given: dict[str, tuple[int, list[int], Any]] = {}
        self.rounds: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.moments: dict[int, Any] = {}  # by the first run of a group

    @property
    def absence(self) -> str:
        """What a line of progress says when there is no worker."""
        return str(self.waiting_for)

    @property
    def has_room(self) -> bool:
        """Whether a worker can do the work, and fewer than `AHEAD` runs wait per worker."""
        return self.checked and len(self.given) < AHEAD * max(self.waiting_for.workers, FEWEST)

    def give(self, run: int, group: list[int]) -> None:
        """Hand out a run; the moments of its group are computed once, before the first run that needs them."""
        first = group[0]
        if first not in self.moments and len(group) > 1 and shares_moments(shared := self.grid.experiment(first)):
            running = {other[0] for _, other, _ in self.given.values()}
            self.moments = {number: moments for number, moments in self.moments.items() if number in running}
            self.moments[first] = self.client.submit(make_moments, shared, pure=False)
        self.rounds[run] += 1
        key = f"run-{run}-{self.session}-{self.rounds[run]}"
        arguments = (*self.store, run, self.session, self.code, self.moments.get(first))
        future = self.client.submit(do_run, *arguments, key=key, pure=False)
        self.given[key] = (run, group, future)
        future.add_done_callback(self.done.put)

    def next_done(self) -> dict[str, Any] | None:
        """How the next run ended; `None` if none has ended for a moment."""
        try:
            future = self.done.get(timeout=0.2)
        except queue.Empty:
            self.check_cluster()
            return None
        if future.key not in self.given:
            return None
        run, group, _ = self.given.pop(future.key)
        if future.status == "error":
            return self.after_error(run, group, future.exception())
        if future.status == "cancelled":
            raise IclflowError(GONE)
        if future.status == "finished":
            with contextlib.suppress(Exception):  # its worker may die before the result is fetched
                return future.result(timeout=PATIENCE)
        self.give(run, group)  # a run that has been committed is not computed again
        return None

    def after_error(self, run: int, group: list[int], error: BaseException) -> dict[str, Any] | None:
        """Hand out a run again if its workers died, up to `MOST_TRIES` times; any other error is final."""
        self.errors[run] += 1
        if type(error).__name__ == "KilledWorker" and self.errors[run] < MOST_TRIES:
            self.give(run, group)
            return None
        return lost_run(run, error)

    def check_cluster(self) -> None:
        """Raise an error if the scheduler is gone, its workers cannot do the work, or none will ever come."""
        futures = [self.first_answer, *(future for _, _, future in self.given.values())]
        if self.client.status != "running" or any(future.status == "cancelled" for future in futures):
            raise IclflowError(GONE)
        if not self.checked and self.first_answer.status in ("finished", "error"):
            self.check_first_answer()
        try:
            self.waiting_for.look()
        except OSError:
            raise IclflowError(GONE) from None

    def check_first_answer(self) -> None:
        """Refuse workers that cannot open the store, or have another version."""
        if self.first_answer.status == "error":
            why = " ".join(str(self.first_answer.exception()).split())[:200]
            must = "they need iclflow, and must see the directory"
            raise BadInput(f"scheduler: its workers cannot do this: {why} ({must})")
        theirs, ours = self.first_answer.result(timeout=PATIENCE)["iclflow"], current_versions()["iclflow"]
        if theirs != ours:
            raise BadInput(f"scheduler: its workers have iclflow {theirs}, must be {ours} as here")
        self.checked = True
