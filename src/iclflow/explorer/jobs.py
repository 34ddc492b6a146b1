"""Theory and simulation behind the page: two tasks in the background, both dropped when their state is left.

A page has one job at a time, that of the state which its controls show. Finished seeds are kept in a cache that all
pages share, so going back to a state shows it at once. The number of pages, the number of workers and the seconds per
job are limited.
"""

import threading
import time
import warnings
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from iclflow.errors import IclflowError
from iclflow.explorer.detail import Detail, SeedCurve, curve_of, cut_down, detail_of, probed
from iclflow.explorer.notes import TOO_LONG
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import TheoryView, outline, theory_view
from iclflow.results.run import Run
from iclflow.theory.solve import EVERY_STEP
from iclflow.training.cost import draw_seconds

__all__ = ["Forecast", "Job", "Jobs"]

PAGES, KEPT, WORKERS = 64, 200, 2
LONGEST = 90.0  # seconds for one job
PAUSE = 0.05  # seconds before a simulation begins: a slider that is dragged sends the next state by then
ABANDONED = 10.0  # seconds without a request from the page: it was closed or left


class Dropped(Exception):
    """The job is no longer needed, or it has reached its time limit."""


class Forecast:
    """The theory of a state, computed in a thread of its own that stops where it is when the forecast is dropped."""

    def __init__(self, state: State) -> None:
        self.state, self.future, self.dropped = state, Future[TheoryView](), threading.Event()
        self.thread = threading.Thread(target=self.compute, daemon=True, name="theory")
        self.thread.start()

    def compute(self) -> None:
        """Make the view; whatever goes wrong is a note on the page."""
        EVERY_STEP.set(self.stop_if_dropped)
        with suppress(Dropped):
            try:
                view = theory_view(self.state)
            except Exception as error:
                if isinstance(error, Dropped):
                    raise
                view = replace(outline(self.state), note=f"Theory failed: {error}"[:200], complete=True)
            self.future.set_result(view)

    def drop(self) -> None:
        """Let the thread stop at the next step of its solver."""
        self.dropped.set()

    def stop_if_dropped(self) -> None:
        if self.dropped.is_set():
            raise Dropped

    def view(self, patience: float = 0.0) -> TheoryView:
        """The theory if it is there within some seconds, else what is known without it."""
        try:
            return self.future.result(patience)
        except TimeoutError:
            return outline(self.state)


@dataclass
class Job:
    """One state: its forecast, and its simulation, whose `seeds` grow; `detail` describes the first of them."""

    state: State
    forecast: Forecast
    seeds: list[SeedCurve] = field(default_factory=list)
    detail: Detail | None = None
    words: str = "waiting"
    share: float = 0.0
    done: bool = False
    dropped: bool = False
    begun: float = field(default_factory=time.monotonic)
    asked: float = field(default_factory=time.monotonic)

    @property
    def token(self) -> str:
        """What tells jobs of different states apart."""
        return self.state.to_query() or "?"

    def drop(self) -> None:
        """Stop both tasks."""
        self.dropped = True
        self.forecast.drop()

    def check(self) -> None:
        """Stop a simulation that nobody waits for, or that takes too long."""
        now = time.monotonic()
        if self.dropped or now - self.begun > LONGEST or now - self.asked > ABANDONED:
            self.words = f"stopped after {now - self.begun:.0f} s: the page no longer waits"
            raise Dropped


class Jobs:
    """The jobs of all pages, their workers and their cache."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="simulate")
        self.lock = threading.Lock()
        self.pages: OrderedDict[str, Job] = OrderedDict()
        self.cache: OrderedDict[tuple[State, int], Any] = OrderedDict()
        self.closed = False

    def show(self, page: str, state: State) -> Job:
        """The job of a page for a state, begun now unless the page has it; that of its former state is dropped."""
        with self.lock:
            job = self.pages.get(page)
            if job is None or job.state != state or job.dropped:
                if job is not None:
                    job.drop()
                self.pages[page] = job = Job(state, Forecast(state))
                self.pool.submit(self.work, job)
            self.pages.move_to_end(page)
            while len(self.pages) > PAGES:
                self.pages.popitem(last=False)[1].drop()
            job.asked = time.monotonic()
            return job

    def leave(self, page: str) -> None:
        """Drop the job of a page."""
        with self.lock:
            job = self.pages.pop(page, None)
        if job is not None:
            job.drop()

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

    def simulate(self, job: Job) -> None:
        """Train all seeds, then probe the first."""
        job.check()
        if draw_seconds(job.state.experiment()) > TOO_LONG:
            job.words = "theory only"
            return
        details: list[Detail] = []
        for number in range(job.state.seeds):
            job.check()
            details.append(self.detail(job, number))
            job.seeds.append(curve_of(details[-1].run))
            job.detail = details[0]
        job.check()
        job.words, job.share = "naming the algorithm", 1.0
        if details[0].algorithms is None:
            job.detail = self.keep(job.state, 0, probed(details[0]))
        said = problems([detail.run for detail in details])
        job.words = "; ".join([f"done in {time.monotonic() - job.begun:.1f} s", *said])

    def detail(self, job: Job, number: int) -> Detail:
        """The detail of one seed, from the cache or trained now."""
        from iclflow.training.start import run_experiment

        state = job.state
        with self.lock:
            found = self.cache.get(key_of(state, number))
        if found is not None:
            return found

        def report(share: float, words: str) -> None:
            job.check()
            job.words, job.share = f"seed {number + 1} of {state.seeds}: {words}", (number + share) / state.seeds

        run = run_experiment(state.experiment(state.seed + number), progress=report, roomy=True)
        return self.keep(state, number, detail_of(cut_down(run)))

    def keep(self, state: State, number: int, detail: Detail) -> Detail:
        """Put a detail into the cache, which loses its oldest."""
        with self.lock:
            self.cache[key_of(state, number)] = detail
            self.cache.move_to_end(key_of(state, number))
            while len(self.cache) > KEPT:
                self.cache.popitem(last=False)
        return detail

    def warm(self) -> None:
        """Compile the shapes that the page needs, in the background, the default first."""
        threading.Thread(target=self.warm_all, daemon=True, name="warm").start()

    def warm_all(self) -> None:
        """Train small models of all these shapes, one after another, while no page waits."""
        from iclflow.training.start import run_experiment

        for state in shapes():
            while not self.closed and any(not job.done for job in list(self.pages.values())):  # pages first
                time.sleep(0.1)
            if self.closed:
                return
            run_experiment(state.experiment(0), progress=False, roomy=True)

    def close(self) -> None:
        """Drop all jobs and stop the workers."""
        self.closed = True
        for page in list(self.pages):
            self.leave(page)
        self.pool.shutdown(wait=False, cancel_futures=True)


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


def problems(runs: list[Run]) -> list[str]:
    """What is wrong with some of the runs, in words."""
    first = runs[0]
    said = list(first.summary["warnings"])
    why = first.summary["runs"][0].get("why", "")
    if first.status != "ok" and why not in said:
        said.append(f"{first.status}: {why}")
    return [*said, *(f"seed {run.seeds[0]} {run.status}" for run in runs[1:] if run.status != "ok")]


def key_of(state: State, number: int) -> tuple[State, int]:
    """A key that is equal for equal runs, whichever seed is the first on screen."""
    return replace(state, seed=0, seeds=1), state.seed + number
