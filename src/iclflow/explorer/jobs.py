"""Simulation and theory behind the page, in the background and dropped at the next change; simulation seed by seed.

Every client has one job at a time, and waits for one forecast. Theory that is not a formula lets the first curve go
ahead, since both would share one interpreter. Finished seeds are kept in a cache that all clients
share, so going back to a state shows it at once. The number of clients, the number of workers and the seconds per job
are limited.
"""

import secrets
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from iclflow.errors import IclflowError
from iclflow.explorer.detail import Curve, Detail, algorithms, curve_of, cut_down, detail_of
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import TheoryView, is_formula, outline, theory_view
from iclflow.results.run import Run

__all__ = ["Client", "Job", "Jobs"]

CLIENTS, KEPT = 64, 400
WORKERS, THINKERS = 2, 4
T = TypeVar("T")
LONGEST = 90.0  # seconds for one job
PAUSE = 0.05  # seconds before a simulation begins: a slider that is dragged sends the next state by then
AHEAD = 0.8  # seconds that theory waits for the first curve
MISSES = 8  # requests for a dropped job after which the page is taken to wait for it in vain
ABANDONED = 10.0  # seconds without a request from the page: it was closed or left


class Dropped(Exception):
    """The job is no longer needed, or it has reached its time limit."""


@dataclass
class Job:
    """One state being simulated. `seeds` grows; `detail` and `algorithms` describe the first of them."""

    state: State
    forecast: "Future[TheoryView]"
    first: threading.Event  # set when the first curve is there, or none will come
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    seeds: list[Curve] = field(default_factory=list)
    detail: Detail | None = None
    algorithms: list[str] | None = None
    words: str = "waiting"
    share: float = 0.0
    done: bool = False
    dropped: bool = False
    begun: float = field(default_factory=time.monotonic)
    asked: float = field(default_factory=time.monotonic)

    @property
    def view(self) -> TheoryView:
        """What is known of theory by now."""
        return known(self.forecast, self.state)


@dataclass
class Client:
    """One open page. Requests can overtake each other; the one that came last holds the valid ticket."""

    ticket: int = 0
    job: Job | None = None
    forecast: "Future[TheoryView] | None" = None
    first: threading.Event = field(default_factory=threading.Event)  # that of its job
    answered: int = 0  # the last ticket whose request got its answer
    missed: int = 0  # requests in a row for a job that is no longer its own


class Jobs:
    """The jobs of all clients, their workers and their cache."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="simulate")
        self.thinkers = ThreadPoolExecutor(THINKERS, thread_name_prefix="theory")
        self.lock = threading.Lock()
        self.clients: OrderedDict[str, Client] = OrderedDict()
        self.cache: OrderedDict[tuple[str, State, int], Any] = OrderedDict()
        self.closed = False

    def enter(self, name: str) -> tuple[Client, int]:
        """Give a client a new ticket: its current job stops, and its earlier tickets are void."""
        with self.lock:
            client = self.clients.setdefault(name, Client())
            self.clients.move_to_end(name)
            while len(self.clients) > CLIENTS:
                forget(self.clients.popitem(last=False)[1])
            forget(client)
            client.ticket += 1
            client.missed = 0
            client.first = threading.Event()
            return client, client.ticket

    def think(self, client: Client, ticket: int, state: State) -> "Future[TheoryView] | None":
        """Begin to compute the theory of a state, unless the client has a newer ticket."""
        with self.lock:
            if client.ticket != ticket:
                return None
            client.forecast = self.thinkers.submit(self.forecast, client, ticket, state, client.first)
            return client.forecast

    def forecast(self, client: Client, ticket: int, state: State, first: threading.Event) -> TheoryView:
        """The theory of a state, after its first curve unless it is a formula."""
        if not is_formula(state) and first.wait(AHEAD) and client.ticket != ticket:
            raise CancelledError
        return theory_view(state)

    def start(
        self, client: Client, ticket: int, state: State, forecast: "Future[TheoryView] | None" = None
    ) -> Job | None:
        """Begin to simulate a state, unless the client has a newer ticket."""
        with self.lock:
            if client.ticket != ticket:
                return None
            client.job = job = Job(state, forecast or self.thinkers.submit(theory_view, state), client.first)
        self.pool.submit(self.work, job)
        return job

    def get(self, name: str, token: str) -> Job | None:
        """The current job of a client, if it is the one with this token."""
        with self.lock:
            client = self.clients.get(name)
            job = None if client is None else client.job
        if job is None or not secrets.compare_digest(job.token.encode(), token.encode()):
            return None
        job.asked = time.monotonic()
        return job

    def answer(self, client: Client, ticket: int) -> bool:
        """Whether a ticket is still valid; from now on the page that holds it is expected to know its job."""
        with self.lock:
            if client.ticket != ticket:
                return False
            client.answered = ticket
            return True

    def lost(self, name: str) -> bool:
        """Whether a page keeps asking for a job that an older request of its own, coming in late, has dropped.

        While the answer to its last request is still being made, it is not lost.
        """
        with self.lock:
            client = self.clients.get(name)
            if client is None or client.answered != client.ticket:
                return False
            client.missed += 1
            return client.missed > MISSES

    def work(self, job: Job) -> None:
        """Simulate a job; whatever goes wrong is shown on the page."""
        try:
            time.sleep(max(0.0, job.begun + PAUSE - time.monotonic()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.simulate(job)
        except Dropped:
            pass
        except IclflowError as error:
            job.words = str(error)
        except Exception as error:  # otherwise the page would stand still without an explanation
            job.words = f"failed: {type(error).__name__}: {error}".splitlines()[0][:200]
        finally:
            job.done = True
            job.first.set()

    def simulate(self, job: Job) -> None:
        """Train all seeds, then name the algorithm of the first."""
        state, runs = job.state, []
        for number in range(state.seeds):
            self.check(job)
            runs.append(self.run_of(job, number))
            job.seeds.append(curve_of(runs[-1]))
            if number == 0:
                job.detail = detail_of(runs[0])
                job.first.set()
        self.check(job)
        job.words, job.share = "naming the algorithm", 1.0
        first = runs[0]
        job.algorithms = self.cached(("algorithms", *key_of(state, 0)), lambda: algorithms(first))
        job.words = "; ".join([f"done in {time.monotonic() - job.begun:.1f} s", *problems(runs)])

    def run_of(self, job: Job, number: int) -> Run:
        """The run of one seed, cut down to what the page shows."""
        from iclflow.training.start import run_experiment

        state = job.state

        def report(share: float, words: str) -> None:
            self.check(job)
            job.words, job.share = f"seed {number + 1} of {state.seeds}: {words}", (number + share) / state.seeds

        experiment = state.experiment(state.seed + number)
        run = lambda: cut_down(run_experiment(experiment, progress=report, roomy=True))
        return self.cached(("run", *key_of(state, number)), run)

    def cached(self, key: tuple[str, State, int], make: Callable[[], T]) -> T:
        """What is in the cache, made now if it is not there."""
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
        """Stop a job that nobody waits for, or that takes too long."""
        now = time.monotonic()
        if job.dropped or now - job.begun > LONGEST or now - job.asked > ABANDONED:
            job.words = f"stopped after {now - job.begun:.0f} s: the page no longer waits"
            raise Dropped

    def warm(self) -> None:
        """Compile the shapes that the page needs, in the background, the default first."""
        threading.Thread(target=self.warm_all, daemon=True, name="warm").start()

    def at_work(self) -> bool:
        """Whether any client waits for a simulation."""
        with self.lock:
            jobs = [client.job for client in self.clients.values() if client.job is not None]
            return any(not job.done and not job.dropped for job in jobs)

    def warm_all(self) -> None:
        """Train small models of all these shapes, one after another, while no client waits."""
        from iclflow.training.start import run_experiment

        for state in shapes():
            while self.at_work() and not self.closed:  # clients first
                time.sleep(0.1)
            if self.closed:
                return
            run_experiment(state.experiment(0), progress=False, roomy=True)

    def close(self) -> None:
        """Drop all jobs and stop the workers."""
        self.closed = True
        with self.lock:
            for client in self.clients.values():
                forget(client)
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.thinkers.shutdown(wait=False, cancel_futures=True)


def shapes() -> list[State]:
    """States whose training compiles what the page needs: the flow on all shapes, descent, samples and optimisers."""
    small = {"log_init": -0.3, "seeds": 1, "heads": 2}
    kinds = [("separate", 1), ("merged", 1), ("separate", 2)]
    padded = [
        State.read({**small, "model": model, "dim": dim, "rank": rank, "rule": rule})
        for dim in (4, 12)
        for model, rank in kinds
        for rule in ("flow", "descent")
    ]
    sample = [State.read({**small, "heads": 5, "data": "sample", "log_samples": 3})]
    rules = [State.read({**small, "optimizer": rule, "log_length": 2}) for rule in ("momentum", "adam", "muon")]
    deep = [State.read({**small, "heads": 4, "dim": 2, "layers": 2, "log_length": 2})]
    return [*padded[:6], *sample, *rules, *padded[6:], *deep]


def forget(client: Client) -> None:
    """Drop the job of a client, and its forecast if that has not begun."""
    client.first.set()
    if client.job is not None:
        client.job.dropped = True
    if client.forecast is not None:
        client.forecast.cancel()
    client.job = client.forecast = None


def known(forecast: "Future[TheoryView]", state: State, patience: float = 0.0) -> TheoryView:
    """The theory of a state if it is there within some seconds, else what is known without it."""
    try:
        return forecast.result(patience)
    except (TimeoutError, CancelledError):
        return outline(state)


def problems(runs: list[Run]) -> list[str]:
    """What is wrong with some of the runs, in words."""
    first = runs[0]
    said = list(first.summary["warnings"])
    if first.status != "ok":
        why = first.summary["runs"][0].get("why", "")
        said = [*said, *([f"{first.status}: {why}"] if why not in said else [])]
    others = [f"seed {run.seeds[0]} {run.status}" for run in runs[1:] if run.status != "ok"]
    return [*said, *others]


def key_of(state: State, number: int) -> tuple[State, int]:
    """A key that is equal for equal runs, whichever seed is the first on screen."""
    return replace(state, seed=0, seeds=1), state.seed + number
