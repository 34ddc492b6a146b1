"""Who computes: this process, processes on this machine, or the workers of the user's dask scheduler."""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from iclflow.sweeps.store.protocol import Store
from iclflow.sweeps.workers.tasks import MOST_TRIES, code_of, do_run, lost_run, single_thread
from iclflow.system.processes import ProcessDied, Processes

__all__ = ["Workers", "workers_of"]

MOST_WAITING = 10_000  # runs that are handed out before they can begin


@runtime_checkable
class Workers(Protocol):
    """The workers of a session, which take runs and return how they ended."""

    @property
    def has_room(self) -> bool: ...
    @property
    def absence(self) -> str: ...
    def give(self, run: int, group: list[int]) -> None: ...  # with the runs on the same data
    def next_done(self) -> dict[str, Any] | None: ...


@contextlib.contextmanager
def workers_of(store: Store, session: str, count: int, scheduler: Any) -> Iterator[Workers]:
    """The workers of a session; however the session ends, no process of ours is left behind."""
    task = (str(store.path.absolute()), store.digest, session, code_of(store))
    if scheduler is not None:
        from iclflow.sweeps.workers.cluster import cluster_of

        with cluster_of(scheduler, store.grid, *task) as cluster:
            yield cluster
    elif count == 0:
        os.environ.update(single_thread(dict(os.environ)))
        yield Here(*task)
    else:
        with Processes(count, single_thread(dict(os.environ))) as pool:
            yield Local(pool, *task)


class Here:
    """This process, which computes one run after another."""

    absence = ""

    def __init__(self, path: str, digest: str, session: str, code: Any):
        self.task, self.waiting = (session, code), deque[int]()
        self.store = (path, digest)

    @property
    def has_room(self) -> bool:
        return not self.waiting

    def give(self, run: int, group: list[int]) -> None:
        self.waiting.append(run)  # runs of a group follow one another and share moments through `sharing.KEPT`

    def next_done(self) -> dict[str, Any] | None:
        return do_run(*self.store, self.waiting.popleft(), *self.task)


class Local:
    """Processes on this machine; a run whose process dies is tried again."""

    absence = ""

    def __init__(self, pool: Processes, path: str, digest: str, session: str, code: Any):
        self.pool, self.store, self.task = pool, (path, digest), (session, code)
        self.deaths: Counter[int] = Counter()

    @property
    def has_room(self) -> bool:
        return self.pool.waiting_count < MOST_WAITING

    def give(self, run: int, group: list[int]) -> None:
        self.pool.give((run, group), do_run, *self.store, run, *self.task, group=group[0])

    def next_done(self) -> dict[str, Any] | None:
        """How the next run ended; `None` if none has ended for a moment."""
        ended = self.pool.next_finished(timeout=0.2)
        if ended is None or ended.error is None:
            return None if ended is None else ended.value
        run, group = ended.key
        self.deaths[run] += 1
        if isinstance(ended.error, ProcessDied) and self.deaths[run] <= MOST_TRIES:
            self.give(run, group)  # the store counts the tries, and has given up a run before the last of them
            return None
        return lost_run(run, ended.error)
