"""Simulation behind the page: seed by seed in the background, dropped when the next change comes.

Every client has one job at a time. Finished seeds are kept in a cache that all clients share, so going back to a state
shows it at once. Work is bounded: so many clients, so many workers, so many seconds a job.
"""

import secrets
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iclflow.errors import IclflowError
from iclflow.explorer.state import State
from iclflow.run import Run

__all__ = ["Job", "Jobs"]

CLIENTS, KEPT = 64, 400
WORKERS = 2
LONGEST = 90.0  # seconds of one job
PAUSE = 0.05  # seconds before a simulation begins: a slider that is dragged sends the next state by then
ABANDONED = 10.0  # seconds without a question from the page: it was closed or left


class Dropped(Exception):
    """The state has changed; nobody waits for this any more."""


@dataclass
class Job:
    """One state being simulated. `seeds` grows; `detail` and `algorithms` follow for the first."""

    state: State
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    seeds: list[dict[str, Any]] = field(default_factory=list)
    detail: dict[str, Any] | None = None
    algorithms: list[str] | None = None
    words: str = "waiting"
    share: float = 0.0
    done: bool = False
    dropped: bool = False
    begun: float = field(default_factory=time.monotonic)
    asked: float = field(default_factory=time.monotonic)


class Jobs:
    def __init__(self, workers: int = WORKERS):
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="simulate")
        self.lock = threading.Lock()
        self.clients: OrderedDict[str, Job] = OrderedDict()
        self.cache: OrderedDict[Any, Any] = OrderedDict()
        self.closed = False

    def drop(self, client: str) -> None:
        """The client has moved on; what it waited for stops."""
        with self.lock:
            former = self.clients.pop(client, None)
        if former is not None:
            former.dropped = True

    def start(self, client: str, state: State) -> Job:
        """Begin with a state."""
        job = Job(state)
        self.drop(client)
        with self.lock:
            self.clients[client] = job
            while len(self.clients) > CLIENTS:
                self.clients.popitem(last=False)[1].dropped = True
        self.pool.submit(self.work, job)
        return job

    def get(self, client: str, token: str) -> Job | None:
        with self.lock:
            job = self.clients.get(client)
        if job is None or not secrets.compare_digest(job.token.encode(), token.encode()):
            return None
        job.asked = time.monotonic()
        return job

    def work(self, job: Job) -> None:
        try:
            time.sleep(max(0.0, job.begun + PAUSE - time.monotonic()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.simulate(job)
        except Dropped:
            job.words = "stopped" if not job.dropped else "dropped"
        except IclflowError as error:
            job.words = str(error)
        except Exception as error:  # a page that stands still without a word is worse
            job.words = f"failed: {type(error).__name__}: {error}".splitlines()[0][:200]
        finally:
            job.done = True

    def simulate(self, job: Job) -> None:
        from iclflow.explorer.detail import algorithms, detail_of, thinned
        from iclflow.explorer.theory_view import theory_view

        state, first = job.state, None
        for number in range(state.seeds):
            self.check(job)
            run = self.run_of(job, number)
            curve = thinned(run)
            job.seeds.append({"time": curve[0], "loss": curve[1], "status": run.status})
            if number == 0:
                first = run
                job.detail = detail_of(run, theory_view(state).drops).payload()
        self.check(job)
        job.words, job.share = "naming the algorithm", 1.0
        assert first is not None
        key = ("algorithms", state.with_(seeds=1))
        job.algorithms = self.cached(key, lambda: algorithms(first))
        last = "" if first.status == "ok" else f" ({first.status})"
        job.words = f"done in {time.monotonic() - job.begun:.1f} s{last}"

    def run_of(self, job: Job, number: int) -> Run:
        from iclflow.training.start import run_experiment

        state = job.state

        def tell(share: float, words: str) -> None:
            self.check(job)
            job.words, job.share = f"seed {number + 1} of {state.seeds}: {words}", (number + share) / state.seeds

        experiment = state.experiment(state.seed + number)
        key = ("run", state.with_(seed=state.seed + number, seeds=1))
        return self.cached(key, lambda: run_experiment(experiment, progress=tell, roomy=True))

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        with self.lock:
            if key in self.cache:
                self.cache.move_to_end(key)
                return self.cache[key]
        made = make()
        with self.lock:
            self.cache[key] = made
            while len(self.cache) > KEPT:
                self.cache.popitem(last=False)
        return made

    def check(self, job: Job) -> None:
        now = time.monotonic()
        if job.dropped or now - job.begun > LONGEST or now - job.asked > ABANDONED:
            raise Dropped

    def warm(self) -> None:
        """Compile the shapes that the page needs, in the background, the default first."""
        threading.Thread(target=self.warm_all, daemon=True, name="warm").start()

    def at_work(self) -> bool:
        with self.lock:
            return any(not job.done and not job.dropped for job in self.clients.values())

    def warm_all(self) -> None:
        from iclflow.training.start import run_experiment

        small = {"log_init": -0.3, "seeds": 1, "heads": 2}
        states = [
            State.read({**small, "model": model, "dim": dim, "rank": rank, "rule": rule})
            for dim in (4, 12)
            for model, rank in (("separate", 1), ("merged", 1), ("separate", 2))
            for rule in ("flow", "descent")
        ]
        for state in states:
            while self.at_work() and not self.closed:  # people first
                time.sleep(0.1)
            if self.closed:
                return
            run_experiment(state.experiment(0), progress=False, roomy=True)

    def close(self) -> None:
        self.closed = True
        with self.lock:
            for job in self.clients.values():
                job.dropped = True
        self.pool.shutdown(wait=False, cancel_futures=True)


def seconds_needed(state: State) -> float:
    """A rough estimate of sampling a finite sample: numbers drawn, and their products."""
    if state.data != "sample":
        return 0.0
    width = state.dim + 1
    side = state.dim * width * (width + 1) / 2
    return float(state.samples * (2e-8 * (state.context + 1) * width + 1e-10 * np.square(side)))
