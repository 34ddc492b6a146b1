"""Runs on the same data share what is computed from them: moments, sequences and the lowest loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.own import read_own_data
from iclflow.experiment import Experiment
from iclflow.sweeps.workers.blocks import HUGE, is_huge
from iclflow.sweeps.workers.map_reduce import Submit, at_once, huge_moments
from iclflow.system.lru_cache import LRUCache
from iclflow.system.progress import Report
from iclflow.training.plan import Plan

__all__ = ["SharingPlan", "plan_of", "promised_moments"]

KEPT = LRUCache(8, 2**29, least=1)  # what a worker keeps


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
