"""Runs that share data share what is made of them: moments, sequences and the lowest loss."""

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
from iclflow.sweeps.workers.map_reduce import Submit, huge_moments
from iclflow.system.progress import Report
from iclflow.training.plan import Plan

__all__ = ["SharingPlan", "plan_of", "promised_moments"]

MOST, MOST_BYTES = 8, 2**29  # things kept at a time in a worker, beside the newest one


class Kept:
    """The last few things made, by name; made once even when several threads ask."""

    def __init__(self) -> None:
        self.things: OrderedDict[Any, Any] = OrderedDict()
        self.made = 0
        self.lock = threading.RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        with self.lock:
            if key not in self.things:
                self.things[key] = make()
                self.made += 1
            self.things.move_to_end(key)
            while len(self.things) > 1 and (len(self.things) > MOST or self.weight() > MOST_BYTES):
                self.things.popitem(last=False)
            return self.things[key]

    def weight(self) -> int:
        """Bytes of everything kept."""
        return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(list(self.things.values())))


KEPT = Kept()


@dataclass(frozen=True, eq=False)
class SharingPlan(Plan):
    """A plan whose data outlive it."""

    ready: list[Moments] | None = None  # made by somebody else

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        return KEPT.get((self.key, key), make)

    def moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if self.ready is not None and self.ready[0].blocks == blocks:
            return self.ready
        return super().moments(seed, blocks, report)

    def make_moments(self, seed: int, blocks: Blocks, report: Report) -> list[Moments]:
        if is_huge(self.experiment):
            return huge_sets(self, blocks)
        return super().make_moments(seed, blocks, report)


def plan_of(experiment: Experiment, ready: list[Moments] | None = None) -> SharingPlan:
    """How a run of a sweep is carried out; a sweep keeps no moments."""
    own = None if experiment.data is None else read_own_data(experiment.data, experiment.task)[0]
    return SharingPlan(experiment, own, ready=ready, with_moments=False)


def huge_sets(plan: Plan, blocks: Blocks) -> list[Moments]:
    return promised_sets(lambda function, *arguments: function(*arguments), plan, blocks)


def promised_sets(submit: Submit, plan: Plan, blocks: Blocks) -> list[Any]:
    """Training sample and test samples, each split if it is huge."""
    sets = plan.samples(plan.training.seed)
    return [
        huge_moments(submit, plan.experiment, blocks, i)
        if s.count > HUGE
        else submit(one_set, plan.experiment, blocks, i)
        for i, s in enumerate(sets)
    ]


def one_set(experiment: Experiment, blocks: Blocks, which: int) -> Moments:
    from iclflow.data.sampled import sampled_moments

    plan = Plan(experiment)
    sample = plan.samples(experiment.training.seed)[which]
    return sampled_moments(sample, plan.normalize, experiment.task.prefix_loss, blocks)


def promised_moments(submit: Submit, experiment: Experiment) -> list[Any]:
    """The moments that a run needs, handed to `submit` piece by piece."""
    plan = Plan(experiment)
    return promised_sets(submit, plan, plan.blocks(plan.initial(experiment.training.seed)))
