"""Reaching a dask scheduler: our own on this machine, listening on 127.0.0.1 only, or one that the user brings."""

import contextlib
import json
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

__all__ = ["GONE", "PATIENCE", "CrewLost", "cluster_client", "place", "scheduler_address"]

LOOPBACK = "127.0.0.1"
GONE = "scheduler: is gone, or has dropped the work"
PATIENCE = 20.0  # seconds to wait for somebody who should be there


class CrewLost(IclflowError):
    """Our own workers could not be started, or all of them are gone; others may do better."""


def place(store: Store) -> str:
    """Where the store is, for processes that may stand elsewhere."""
    return str(store.path.absolute())


def quiet_logs() -> None:
    """Dask reports every lost worker in many lines; what matters is told by the session."""
    import logging

    import dask
    import distributed  # noqa: F401  (makes the loggers)

    dask.config.set({"distributed.scheduler.allowed-failures": 10})  # tries are counted in the store
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio", "bokeh"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def scheduler_address(given: str) -> str:
    """The address in a scheduler file, or as given; somebody must listen there."""
    address = given
    if Path(given).is_file():
        try:
            address = str(json.loads(Path(given).read_text())["address"])
        except (OSError, ValueError, KeyError, TypeError):
            raise BadInput(f"scheduler: {given!r} must be a scheduler file that dask has written") from None
    protocol, slashes, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"scheduler: {given!r} must be an address such as tcp://127.0.0.1:8786, or a scheduler file")
    if protocol in ("", "tcp", "tls"):  # others are for dask to reach
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BadInput(f"scheduler: nobody answers at {address!r} ({reason})") from None
    return address if slashes else f"tcp://{address}"


@contextlib.contextmanager
def cluster_client(store: Store, session: str, workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the user's scheduler, or of one that is made for the session and ends with it."""
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
    """Until the first worker has shown that it can do the work; a queue may take its time to start one."""
    asked, told = client.submit(introduce, place(store), store.digest, code_of(store), pure=False), False
    begun = time.monotonic()
    while asked.status == "pending":
        if client.status != "running":
            raise IclflowError(GONE)
        if not told and time.monotonic() - begun > PATIENCE:
            print("waiting for a worker of the cluster", file=sys.stderr, flush=True)
            told = True
        time.sleep(0.05)
    if asked.status == "cancelled":
        raise IclflowError(GONE)
    if asked.status == "error":
        why = " ".join(str(asked.exception()).split())[:200]
        raise BadInput(f"scheduler: its workers cannot do this: {why} (they need iclflow, and must see the directory)")
    theirs, ours = asked.result()["iclflow"], current_versions()["iclflow"]
    if theirs != ours:
        raise BadInput(f"scheduler: its workers have iclflow {theirs}, must be {ours} as here")


@contextlib.contextmanager
def local_cluster(store: Store, session: str, workers: int) -> Iterator[Any]:
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
            for half in set(SpecCluster._instances) - known:  # cut short while it was being made
                SpecCluster._instances.discard(half)  # dask would try to close it at exit, and fail
                end_workers(half)
            if not isinstance(error, Exception) or (isinstance(error, OSError) and error.errno in NO_ROOM):
                raise
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise CrewLost(f"workers: could not be started ({why})") from None
        try:
            yield cluster
        finally:
            end_workers(cluster)
            with contextlib.suppress(Exception):
                cluster.close(timeout=2)


@contextlib.contextmanager
def unseen_main() -> Iterator[None]:
    """Keep the main program to ourselves: a spawned worker would load it, and a script would start its sweep again.

    For the whole session, since a worker that dies is spawned anew. All that workers are given lives in iclflow.
    """
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
    vars(main)["__spec__"] = None
    try:
        yield
    finally:
        vars(main).update(hidden)


@contextlib.contextmanager
def deaf_loop() -> Iterator[Any]:
    """An event loop whose thread, and every process started from it, does not hear Ctrl-C: this process decides."""
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
    """Stop what our own workers are doing at once: whatever is not committed is redone, so nothing is lost."""
    for nanny in list(cluster.workers.values()):
        nanny.auto_restart = False
        pid = getattr(nanny, "pid", None)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
