"""Runs on the same data share what is computed from them: moments, sequences and the lowest loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.own import read_own_data
from iclflow.experiment import Experiment
from iclflow.system.lru_cache import LRUCache
from iclflow.system.progress import Report, silent
from iclflow.training.plan import Plan

__all__ = ["SharingPlan", "moments_of", "plan_of"]

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


def plan_of(experiment: Experiment, ready: list[Moments] | None = None) -> SharingPlan:
    """The plan of a run in a sweep, whose outcome carries no moments."""
    own = None if experiment.data is None else read_own_data(experiment.data, experiment.task)[0]
    return SharingPlan(experiment, own, ready=ready, with_moments=False)


def moments_of(experiment: Experiment) -> list[Moments]:
    """The moments that a run needs."""
    plan, seed = plan_of(experiment), experiment.training.seed
    return plan.moments(seed, plan.blocks(plan.initial(seed)), silent)
