"""Who computes: this process, processes on this machine, or the workers of a cluster.

Each crew takes runs one by one (`give`) and hands back how they ended (`next_done`). The last two speak to a dask
scheduler; the first needs none. Everything that listens does so on 127.0.0.1, unless the user brings a cluster.
"""

import contextlib
import itertools
import os
import queue
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from iclflow.errors import IclflowError
from iclflow.experiment import Experiment
from iclflow.sweeps.store.protocol import Store
from iclflow.sweeps.workers.blocks import is_huge
from iclflow.sweeps.workers.cluster import GONE, PATIENCE, CrewLost, cluster_client, place
from iclflow.sweeps.workers.tasks import MOST_TRIES, code_of, do_run, make_moments, single_thread

__all__ = ["Crew", "assembled"]

MOST_HUGE = 2  # groups whose huge samples are being summed, or waited for, at a time
AHEAD = 4  # runs a worker has waiting
RECOUNT = 5.0  # seconds between looks at the size of the user's cluster
FEWEST = 16  # workers it is taken to have at least, so that one that grows with the work sees some


class Crew(Protocol):
    """Takes runs and says how they ended."""

    size: int

    def takes(self, group: Any, shared: Experiment | None) -> bool: ...
    def give(self, run: int, group: Any, shared: Experiment | None) -> None: ...
    def next_done(self) -> dict[str, Any] | None: ...


@contextlib.contextmanager
def assembled(store: Store, session: str, workers: int, scheduler: str | None) -> Iterator[Crew]:
    """A crew for the time of a session; leaves no process behind, however the session ends."""
    if scheduler is None and workers == 0:
        yield Here(store, session)
        return
    with cluster_client(store, session, workers, scheduler) as client:
        yield Cluster(client, store, session, workers, ours=scheduler is None)


class Here:
    """This process, one run after another."""

    size = 1

    def __init__(self, store: Store, session: str):
        self.store, self.session = store, session
        self.waiting: deque[int] = deque()
        os.environ.update(single_thread(dict(os.environ)))

    def takes(self, group: Any, shared: Experiment | None) -> bool:
        return not self.waiting

    def give(self, run: int, group: Any, shared: Experiment | None) -> None:
        self.waiting.append(run)  # runs of a group come one after another and find their moments kept

    def next_done(self) -> dict[str, Any] | None:
        return do_run(place(self.store), self.store.digest, self.waiting.popleft(), self.session)


class Cluster:
    """Workers behind a dask scheduler, ours or the user's."""

    def __init__(self, client: Any, store: Store, session: str, workers: int, ours: bool):
        self.client, self.store, self.session, self.ours = client, store, session, ours
        self.lonely: float | None = None  # since when no worker of ours is there
        self.size, self.counted = max(workers, 1), 0.0
        self.done: queue.Queue[Any] = queue.Queue()
        self.given: dict[str, tuple[int, Any, Any]] = {}
        self.rounds: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.moments: dict[Any, list[Any]] = {}
        self.huge: set[Any] = set()

    def takes(self, group: Any, shared: Experiment | None) -> bool:
        """Whether there is room for one more run; huge samples are made for a few groups at a time."""
        if shared is not None and is_huge(shared) and group not in self.huge_out():
            return len(self.huge_out()) < MOST_HUGE and self.has_room
        return self.has_room

    def huge_out(self) -> set[Any]:
        """The groups on huge samples that are at work."""
        return self.huge & {group for _, group, _ in self.given.values()}

    @property
    def has_room(self) -> bool:
        if not self.ours and time.monotonic() - self.counted > RECOUNT:  # somebody else's workers come and go
            self.size, self.counted = max(sum(self.client.nthreads().values()), FEWEST), time.monotonic()
        return len(self.given) < AHEAD * self.size

    def give(self, run: int, group: Any, shared: Experiment | None) -> None:
        """Hand out a run; the first of a group that shares moments has them made."""
        if shared is not None and group not in self.moments:
            self.moments = {g: m for g, m in self.moments.items() if any(g == held[1] for held in self.given.values())}
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
        if not is_huge(experiment):
            return self.client.submit(make_moments, experiment, pure=False)
        from iclflow.sweeps.workers.sharing import promised_moments

        order = itertools.count()  # sums are added up before the next ones are made, and few are held

        def submit(function: Any, *arguments: Any) -> Any:
            return self.client.submit(function, *arguments, pure=False, priority=-next(order))

        return promised_moments(submit, experiment)

    def next_done(self) -> dict[str, Any] | None:
        """How the next run ended; `None` after a moment without news."""
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
            with contextlib.suppress(Exception):  # its worker may die between the message and this line
                return future.result(timeout=PATIENCE)
        self.give(run, group, None)  # a run that is committed already is not computed again
        return None

    def after_error(self, run: int, group: Any, error: Exception) -> dict[str, Any] | None:
        """Give a run another chance if it was only near a worker that died, too often for the scheduler's taste."""
        self.errors[run] = self.errors.get(run, 0) + 1
        if type(error).__name__ == "KilledWorker" and self.errors[run] < MOST_TRIES:
            self.give(run, group, None)
            return None
        why = " ".join(str(error).split()) or type(error).__name__
        return {"run": run, "status": "lost", "why": why[:300], "seconds": 0.0}

    def gone(self) -> IclflowError:
        return CrewLost(GONE) if self.ours else IclflowError(GONE)

    def refuse_if_gone(self) -> None:
        if self.client.status != "running" or any(f.status == "cancelled" for _, _, f in self.given.values()):
            raise self.gone()
        if self.ours and self.client.cluster.scheduler.workers:
            self.lonely = None
        elif self.ours:
            self.lonely = self.lonely or time.monotonic()
            if time.monotonic() - self.lonely > PATIENCE:
                raise CrewLost("workers: all of them are gone, and do not come back")
