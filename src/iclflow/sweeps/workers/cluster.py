"""Connects to a dask scheduler: our own on this machine, listening on 127.0.0.1 only, or the user's."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, IclflowError
from iclflow.sweeps.store.protocol import WORK, Store
from iclflow.sweeps.workers.signals import tidying_when_stopped
from iclflow.sweeps.workers.tasks import code_of, current_versions, introduce, single_thread
from iclflow.system.atomic import NO_ROOM
from iclflow.system.files import read_json

__all__ = ["GONE", "PATIENCE", "WorkersLost", "cluster_client", "place", "scheduler_address"]

LOOPBACK = "127.0.0.1"
GONE = "scheduler: is gone, or has dropped the work"
PATIENCE = 20.0  # seconds to wait for a scheduler or worker that should answer


class WorkersLost(IclflowError):
    """Our own workers could not be started, or all of them are gone; new ones may succeed."""


def place(store: Store) -> str:
    """The absolute path of the store, for processes with another working directory."""
    return str(store.path.absolute())


def quiet_logs() -> None:
    """Silence dask, which reports every lost worker in many lines; the session reports what matters."""
    import logging

    import dask
    import distributed  # noqa: F401  (creates the loggers)

    dask.config.set({"distributed.scheduler.allowed-failures": 10})  # tries are counted in the store
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio", "bokeh"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def scheduler_address(given: str) -> str:
    """The address in a scheduler file, or as given; a process must be listening there."""
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
def cluster_client(store: Store, session: str, workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the user's scheduler, or of one that is started for the session and ends with it."""
    quiet_logs()
    from distributed import Client

    if scheduler is not None:
        try:
            client = Client(scheduler_address(scheduler), timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise BadInput(f"scheduler: cannot reach {scheduler!r} ({type(error).__name__})") from None
        try:
            wait_for_a_worker(client, store)
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.close(timeout=2)
        return
    with local_cluster(store, session, workers) as cluster:
        client = Client(cluster, timeout=PATIENCE, set_as_default=False)
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.close(timeout=1)


def wait_for_a_worker(client: Any, store: Store) -> None:
    """Wait until a worker has shown that it can open the store; a batch queue may take long to start one."""
    answer, announced = client.submit(introduce, place(store), store.digest, code_of(store), pure=False), False
    begun = time.monotonic()
    while answer.status == "pending":
        if client.status != "running":
            raise IclflowError(GONE)
        if not announced and time.monotonic() - begun > PATIENCE:
            print("waiting for a worker of the cluster", file=sys.stderr, flush=True)
            announced = True
        time.sleep(0.05)
    if answer.status == "cancelled":
        raise IclflowError(GONE)
    if answer.status == "error":
        why = " ".join(str(answer.exception()).split())[:200]
        raise BadInput(f"scheduler: its workers cannot do this: {why} (they need iclflow, and must see the directory)")
    theirs, ours = answer.result()["iclflow"], current_versions()["iclflow"]
    if theirs != ours:
        raise BadInput(f"scheduler: its workers have iclflow {theirs}, must be {ours} as here")


@contextlib.contextmanager
def local_cluster(store: Store, session: str, workers: int) -> Iterator[Any]:
    """A scheduler and worker processes on this machine, which end with the session."""
    from distributed import LocalCluster
    from distributed.deploy.spec import SpecCluster

    known = set(SpecCluster._instances)
    with unseen_main(), deaf_loop() as loop:
        try:
            with tidying_when_stopped():
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    host=LOOPBACK,
                    dashboard_address=f"{LOOPBACK}:0",  # None would still take a fixed port
                    memory_limit=0,
                    silence_logs=50,
                    local_directory=str(store.path / WORK / session),
                    env=single_thread(dict(os.environ)),
                    loop=loop,
                )
        except BaseException as error:
            for unfinished in set(SpecCluster._instances) - known:
                SpecCluster._instances.discard(unfinished)  # dask would try to close it at exit, and fail
                end_workers(unfinished)
            if not isinstance(error, Exception) or (isinstance(error, OSError) and error.errno in NO_ROOM):
                raise
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise WorkersLost(f"workers: could not be started ({why})") from None
        try:
            yield cluster
        finally:
            end_workers(cluster)
            with contextlib.suppress(Exception):
                cluster.close(timeout=2)


@contextlib.contextmanager
def unseen_main() -> Iterator[None]:
    """Hide the main program from workers: a spawned worker would load it, and a script would start its sweep again.

    It stays hidden for the whole session, because a worker that dies is spawned again. Workers need only iclflow.
    """
    main = sys.modules["__main__"]
    names: tuple[str, ...] = ("__spec__", "__file__")
    hidden = {name: vars(main).pop(name) for name in names if name in vars(main)}
    vars(main)["__spec__"] = None
    try:
        yield
    finally:
        vars(main).update(hidden)


@contextlib.contextmanager
def deaf_loop() -> Iterator[Any]:
    """An event loop whose thread, and every process started from it, ignores Ctrl-C, which this process handles."""
    from distributed.utils import LoopRunner

    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        with contextlib.suppress(Exception):
            runner.stop(timeout=1)


def end_workers(cluster: Any) -> None:
    """Kill our own workers at once: runs that are not committed are computed again, so nothing is lost."""
    for nanny in list(cluster.workers.values()):
        nanny.auto_restart = False
        pid = getattr(nanny, "pid", None)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
