"""Worker processes that take one task at a time; one that dies costs only its own task and is replaced.

Every worker has a pipe of its own, so a killed one leaves no lock held and no queue half read. Workers are spawned,
because a forked JAX can hang. They never load the main program, ignore Ctrl-C, and end when their parent does.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from iclflow.errors import IclflowError

__all__ = ["Finished", "ProcessDied", "Processes"]

MOST_FAILED_STARTS = 5  # workers in a row that end before they are ready
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ProcessDied(IclflowError):
    """The process that did a task was killed or has crashed."""


class Finished(NamedTuple):
    """How a task has ended: with a value, or with an error."""

    key: Any
    value: Any
    error: Exception | None


class Call(NamedTuple):
    """What a worker does, and the group of tasks to which it belongs."""

    key: Any
    group: Any
    message: bytes  # function and arguments


@dataclass
class Worker:
    """A process, our end of its pipe, and what it is doing."""

    process: Any
    pipe: Connection
    ready: bool = False
    task: Call | None = None
    group: Any = None  # of its last task


@dataclass
class Processes:
    """At most `count` worker processes, with tasks that wait for them.

    Tasks of one group go to the same worker as far as possible, because they share what it keeps in memory.

    >>> with Processes(2) as pool:
    ...     for number in (1, 2):
    ...         pool.give(number, abs, -number)
    ...     sorted(task.value for task in pool.finished())
    [1, 2]
    """

    count: int
    environment: Mapping[str, str] = field(default_factory=dict)  # set in a worker before anything is imported
    waiting: dict[Any, deque[Call]] = field(default_factory=dict)  # by group, in the order in which they were given
    workers: list[Worker] = field(default_factory=list)
    failed_starts: int = 0

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def give(self, key: Any, function: Callable[..., Any], *arguments: Any, group: Any = None) -> None:
        """Let a worker call a function that it can import; the key says which task has finished."""
        task = Call(key, group, pickle.dumps((function, arguments)))
        self.waiting.setdefault(group, deque()).append(task)

    @property
    def waiting_count(self) -> int:
        return sum(len(tasks) for tasks in self.waiting.values())

    @property
    def unfinished(self) -> int:
        """The number of tasks that wait or are being done."""
        return self.waiting_count + sum(worker.task is not None for worker in self.workers)

    def finished(self) -> Iterator[Finished]:
        """All tasks, as they finish."""
        while self.unfinished:
            task = self.next_finished()
            if task is not None:
                yield task

    def next_finished(self, timeout: float | None = None) -> Finished | None:
        """The next task that has finished; `None` if none has within a time, or if only a worker has come or gone."""
        self.hand_out()
        busy = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(busy), timeout):
            worker = busy[pipe]  # type: ignore[index]
            try:
                message = worker.pipe.recv_bytes()
            except (EOFError, OSError):
                return self.bury(worker)
            if not worker.ready:
                worker.ready, self.failed_starts = True, 0
                return None
            task, worker.task = worker.task, None
            assert task is not None
            return Finished(task.key, *pickle.loads(message))
        return None

    def hand_out(self) -> None:
        """Start the workers that are missing, and give every idle one a task."""
        for _ in range(len(self.workers), min(self.count, self.unfinished)):
            self.workers.append(start_worker(self.environment))
        for worker in self.workers:
            if worker.ready and worker.task is None and self.waiting:
                worker.task = self.next_task(worker)
                worker.group = worker.task.group
                with contextlib.suppress(OSError):  # it has just died, which is noticed next
                    worker.pipe.send_bytes(worker.task.message)

    def next_task(self, worker: Worker) -> Call:
        """A task of the worker's last group, or else of a group that no other worker is at, or else the first one."""
        taken = {other.group for other in self.workers}
        free = (group for group in self.waiting if group not in taken)
        group = worker.group if worker.group in self.waiting else next(free, next(iter(self.waiting)))
        task = self.waiting[group].popleft()
        if not self.waiting[group]:
            del self.waiting[group]
        return task

    def bury(self, worker: Worker) -> Finished | None:
        """Forget a worker that has died; its task, if it had one, has ended with an error."""
        self.workers.remove(worker)
        worker.pipe.close()
        worker.process.join(timeout=5)
        why = f"its process ended with exit code {worker.process.exitcode}"
        if not worker.ready:
            self.failed_starts += 1
            if self.failed_starts >= MOST_FAILED_STARTS:
                raise IclflowError(f"workers: {self.failed_starts} in a row could not be started; the last one: {why}")
        return None if worker.task is None else Finished(worker.task.key, None, ProcessDied(why))

    def stop(self) -> None:
        """Kill all workers at once; unfinished tasks are lost."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join(timeout=5)
            worker.pipe.close()
        self.workers.clear()
        self.waiting.clear()


def start_worker(environment: Mapping[str, str]) -> Worker:
    """A new process; signals wait until it ignores Ctrl-C, and until this process knows of it."""
    fresh = multiprocessing.get_context("spawn")
    ours, theirs = fresh.Pipe()
    process = fresh.Process(target=serve, args=(theirs, dict(environment)), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with hidden_main():
            process.start()
    except OSError as error:
        raise IclflowError(f"workers: could not be started ({error.strerror})") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return Worker(process, ours)


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the main program from a process that is being spawned, which would load it and start its work again."""
    main, names = sys.modules["__main__"], ["__spec__", "__file__"]
    hidden = {name: vars(main).pop(name) for name in names if name in vars(main)}
    vars(main)["__spec__"] = None
    try:
        yield
    finally:
        vars(main).update(hidden)


# --- in the worker ----------------------------------------------------------------------------------------------------


def serve(pipe: Connection, environment: dict[str, str]) -> None:
    """Say that this process is ready, then do one task after another until the other end of the pipe is closed."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        pipe.send_bytes(b"ready")
        while True:
            pipe.send_bytes(result_of(pipe.recv_bytes()))


def end_with_parent() -> None:
    """End this process when its parent has ended, whatever it is doing."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def result_of(message: bytes) -> bytes:
    """The value of a call, or the error that it raised, as bytes; an error that cannot be sent is sent as text."""
    try:
        function, arguments = pickle.loads(message)
        return pickle.dumps((function(*arguments), None))
    except Exception as error:
        try:
            result = pickle.dumps((None, error))
            pickle.loads(result)
        except Exception:
            result = pickle.dumps((None, IclflowError(f"{type(error).__name__}: {error}")))
        return result
