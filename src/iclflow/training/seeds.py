"""From a plan to the outcome of every seed; nothing here needs xarray, which takes as long to import as half of JAX."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from iclflow.engines.outcome import Outcome
from iclflow.models.parts import put_back
from iclflow.system.cores import threads
from iclflow.system.precision import double_precision
from iclflow.system.progress import Report
from iclflow.training import by_descent
from iclflow.training.plan import Plan

__all__ = ["run_seed", "run_seeds"]


def run_seeds(plan: Plan, seeds: list[int], report: Report) -> list[Outcome]:
    """Seed by seed through one compiled program, on all cores: bit for bit the numbers of single runs."""
    shares = dict.fromkeys(seeds, 0.0)

    def run_one(seed: int) -> Outcome:
        def tell(share: float, words: str) -> None:
            shares[seed] = share
            report(sum(shares.values()) / len(seeds), words)

        return run_seed(plan, seed, tell)

    first = run_one(seeds[0])  # compiles for all
    with ThreadPoolExecutor(threads()) as pool:
        return [first, *pool.map(run_one, seeds[1:])]


def walker(flows: bool) -> Callable[..., Outcome]:
    """The way down, imported when it is needed."""
    if not flows:
        return by_descent.walk
    from iclflow.training import by_flow

    return by_flow.walk


def run_seed(plan: Plan, seed: int, report: Report) -> Outcome:
    """One seed from its initial weights to its end."""
    begun = time.perf_counter()
    with double_precision():
        initial = plan.initial(seed)
        now = initial if plan.earlier is None else plan.earlier.final_weights
        blocks = plan.blocks(initial)
        loss = plan.loss(seed, now, blocks, report)
        outcome = walker(plan.flows)(plan, seed, loss, plan.trained_part(now, blocks), report)
        return replace(
            outcome,
            seed=seed,
            initial=initial,
            snapshots=[put_back(plan.model, now, trained, plan.task, blocks) for trained in outcome.snapshots],
            seconds=time.perf_counter() - begun,
            moments=plan.label_moments(seed, loss),
        )
