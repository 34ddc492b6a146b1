"""Who computes: this process, processes on this machine, or the workers of a cluster.

All of them take runs one by one (`give`) and return how each run ended (`next_done`). Local processes and clusters are
reached through a dask scheduler, which listens on 127.0.0.1 only unless it is the user's own.
"""

import contextlib
import itertools
import os
import queue
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from iclflow.errors import IclflowError
from iclflow.experiment import Experiment
from iclflow.sweeps.store.protocol import Store
from iclflow.sweeps.workers.blocks import is_huge
from iclflow.sweeps.workers.cluster import GONE, PATIENCE, WorkersLost, cluster_client, place
from iclflow.sweeps.workers.tasks import MOST_TRIES, code_of, do_run, make_moments, single_thread

__all__ = ["Workers", "workers_of"]

MOST_HUGE = 2  # groups on huge samples that are computed at a time
AHEAD = 4  # runs that wait per worker
RECOUNT = 5.0  # seconds between counts of the workers of the user's cluster
FEWEST = 16  # workers that the user's cluster is assumed to have at least, so that an adaptive one grows


@runtime_checkable
class Workers(Protocol):
    """The workers of a session, which take runs and return how they ended."""

    def takes(self, group: Any, shared: Experiment | None) -> bool: ...
    def give(self, run: int, group: Any, shared: Experiment | None) -> None: ...
    def next_done(self) -> dict[str, Any] | None: ...


@contextlib.contextmanager
def workers_of(store: Store, session: str, count: int, scheduler: str | None) -> Iterator[Workers]:
    """The workers of a session; however the session ends, no process is left behind."""
    if scheduler is None and count == 0:
        yield Here(store, session)
        return
    with cluster_client(store, session, count, scheduler) as client:
        yield Cluster(client, store, session, count, ours=scheduler is None)


class Here:
    """This process, which computes one run after another."""

    def __init__(self, store: Store, session: str):
        self.store, self.session = store, session
        self.waiting: deque[int] = deque()
        os.environ.update(single_thread(dict(os.environ)))

    def takes(self, group: Any, shared: Experiment | None) -> bool:
        return not self.waiting

    def give(self, run: int, group: Any, shared: Experiment | None) -> None:
        self.waiting.append(run)  # runs of a group follow one another and share moments through `sharing.KEPT`

    def next_done(self) -> dict[str, Any] | None:
        return do_run(place(self.store), self.store.digest, self.waiting.popleft(), self.session)


class Cluster:
    """Workers behind a dask scheduler, ours or the user's."""

    def __init__(self, client: Any, store: Store, session: str, count: int, ours: bool):
        self.client, self.store, self.session, self.ours = client, store, session, ours
        self.without_workers: float | None = None  # since when all of our workers are gone
        self.size, self.counted = max(count, 1), 0.0
        self.done: queue.Queue[Any] = queue.Queue()
        self.given: dict[str, tuple[int, Any, Any]] = {}
        self.rounds: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.moments: dict[Any, list[Any]] = {}
        self.huge: set[Any] = set()

    def takes(self, group: Any, shared: Experiment | None) -> bool:
        """Whether another run can be handed out; only a few groups on huge samples are computed at a time."""
        if shared is not None and is_huge(shared) and group not in self.huge_out():
            return len(self.huge_out()) < MOST_HUGE and self.has_room
        return self.has_room

    def huge_out(self) -> set[Any]:
        """The groups on huge samples that are being computed."""
        return self.huge & {group for _, group, _ in self.given.values()}

    @property
    def has_room(self) -> bool:
        """Whether fewer than `AHEAD` runs wait per worker."""
        if not self.ours and time.monotonic() - self.counted > RECOUNT:  # the user's workers come and go
            self.size, self.counted = max(sum(self.client.nthreads().values()), FEWEST), time.monotonic()
        return len(self.given) < AHEAD * self.size

    def give(self, run: int, group: Any, shared: Experiment | None) -> None:
        """Hand out a run; the moments of its group are computed with the first run that needs them."""
        if shared is not None and group not in self.moments:
            running = [group for _, group, _ in self.given.values()]
            self.moments = {g: m for g, m in self.moments.items() if g in running}
            self.moments[group] = self.promise(shared)
            if is_huge(shared):
                self.huge.add(group)
        self.rounds[run] = self.rounds.get(run, 0) + 1
        key = f"run-{run}-{self.session}-{self.rounds[run]}"
        arguments = (place(self.store), self.store.digest, run, self.session, self.moments.get(group))
        future = self.client.submit(do_run, *arguments, code_of(self.store), key=key, pure=False)
        self.given[key] = (run, group, future)
        future.add_done_callback(self.done.put)

    def promise(self, experiment: Experiment) -> Any:
        """Futures of the moments that a group shares."""
        if not is_huge(experiment):
            return self.client.submit(make_moments, experiment, pure=False)
        from iclflow.sweeps.workers.sharing import promised_moments

        order = itertools.count()  # sums are added before the next ones are computed, so that few are in memory

        def submit(function: Any, *arguments: Any) -> Any:
            return self.client.submit(function, *arguments, pure=False, priority=-next(order))

        return promised_moments(submit, experiment)

    def next_done(self) -> dict[str, Any] | None:
        """How the next run ended; `None` if none has ended for a moment."""
        try:
            future = self.done.get(timeout=0.2)
        except queue.Empty:
            self.refuse_if_gone()
            return None
        run, group, _ = self.given.pop(future.key, (None, None, None))
        if run is None:
            return None
        if future.status == "error":
            return self.after_error(run, group, future.exception())
        if future.status == "cancelled":
            raise self.gone()
        if future.status == "finished":
            with contextlib.suppress(Exception):  # its worker may die before the result is fetched
                return future.result(timeout=PATIENCE)
        self.give(run, group, None)  # a run that has been committed is not computed again
        return None

    def after_error(self, run: int, group: Any, error: BaseException) -> dict[str, Any] | None:
        """Hand out a run again if its workers died, up to `MOST_TRIES` times; any other error is final."""
        self.errors[run] = self.errors.get(run, 0) + 1
        if type(error).__name__ == "KilledWorker" and self.errors[run] < MOST_TRIES:
            self.give(run, group, None)
            return None
        why = " ".join(str(error).split()) or type(error).__name__
        return {"run": run, "status": "lost", "why": why[:300], "seconds": 0.0}

    def gone(self) -> IclflowError:
        return WorkersLost(GONE) if self.ours else IclflowError(GONE)

    def refuse_if_gone(self) -> None:
        """Raise an error if the scheduler, or all of our own workers, are gone."""
        if self.client.status != "running" or any(f.status == "cancelled" for _, _, f in self.given.values()):
            raise self.gone()
        if self.ours and self.client.cluster.scheduler.workers:
            self.without_workers = None
        elif self.ours:
            self.without_workers = self.without_workers or time.monotonic()
            if time.monotonic() - self.without_workers > PATIENCE:
                raise WorkersLost("workers: all of them are gone and have not come back")
