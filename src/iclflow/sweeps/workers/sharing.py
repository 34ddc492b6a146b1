"""Runs on the same data share what is computed from them: moments, sequences and the lowest loss."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.own import read_own_data
from iclflow.experiment import Experiment
from iclflow.sweeps.workers.blocks import HUGE, is_huge
from iclflow.sweeps.workers.map_reduce import Submit, at_once, huge_moments
from iclflow.system.progress import Report
from iclflow.training.plan import Plan

__all__ = ["SharingPlan", "plan_of", "promised_moments"]

MOST, MOST_BYTES = 8, 2**29  # limits of what a worker keeps; the newest value always stays


class Kept:
    """A cache of the last few values; each is computed once, even if several threads need it."""

    def __init__(self) -> None:
        self.things: OrderedDict[Any, Any] = OrderedDict()
        self.made = 0
        self.lock = threading.RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of a key, computed by `make` if it is not in the cache."""
        with self.lock:
            if key not in self.things:
                self.things[key] = make()
                self.made += 1
            self.things.move_to_end(key)
            while len(self.things) > 1 and (len(self.things) > MOST or self.weight() > MOST_BYTES):
                self.things.popitem(last=False)
            return self.things[key]

    def weight(self) -> int:
        """The size of all values in bytes."""
        return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(list(self.things.values())))


KEPT = Kept()


@dataclass(frozen=True, eq=False)
class SharingPlan(Plan):
    """A plan that shares its data with later plans of the same worker."""

    ready: list[Moments] | None = None  # computed by another task

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        return KEPT.get((self.key, key), make)

    def moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if self.ready is not None and self.ready[0].blocks == blocks:
            return self.ready
        return super().moments(seed, blocks, report)

    def make_moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if is_huge(self.experiment):
            return promised_sets(at_once, self, blocks)
        return super().make_moments(seed, blocks, report)


def plan_of(experiment: Experiment, ready: list[Moments] | None = None) -> SharingPlan:
    """The plan of a run in a sweep, which keeps no moments."""
    own = None if experiment.data is None else read_own_data(experiment.data, experiment.task)[0]
    return SharingPlan(experiment, own, ready=ready, with_moments=False)


def promised_sets(submit: Submit, plan: Plan, blocks: Blocks) -> list[Any]:
    """The moments of the training sample and the test samples, each in blocks if it is huge."""
    return [
        huge_moments(submit, plan.experiment, blocks, i)
        if sample.count > HUGE
        else submit(one_set, plan.experiment, blocks, i)
        for i, sample in enumerate(plan.samples(plan.training.seed))
    ]


def one_set(experiment: Experiment, blocks: Blocks, which: int) -> Moments:
    """The moments of one sample, computed at once."""
    from iclflow.data.sampled import sampled_moments

    plan = Plan(experiment)
    sample = plan.samples(experiment.training.seed)[which]
    return sampled_moments(sample, plan.normalize, experiment.task.prefix_loss, blocks)


def promised_moments(submit: Submit, experiment: Experiment) -> list[Any]:
    """The moments that a run needs, as values or futures that `submit` returns."""
    plan = Plan(experiment)
    return promised_sets(submit, plan, plan.blocks(plan.initial(experiment.training.seed)))
