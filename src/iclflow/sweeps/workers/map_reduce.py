r"""Moments of huge samples, in fixed blocks that any number of workers may share.

A sample is defined chunk by chunk (`data.sequences`). Fixed blocks of `BLOCK` chunks are summed one by one, in two
rounds, and the sums are added up in a fixed tree, `FAN` at a time, in the order of the blocks. Neither blocks nor tree
depend on who computes what, so the result has the same bits for one worker and for a thousand.

First round: $\sum x$ by position, and $\sum w$, $\sum w w'$ of the standard task vectors, from which tokens are centred
and task vectors whitened. Second round: the sums of `data.sampled`.

Samples of up to `HUGE` sequences are summed chunk by chunk instead, exactly as `train` does.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.sampled import chunk_sums
from iclflow.data.sequences import Sample, chunk_count
from iclflow.data.spectrum import root
from iclflow.experiment import Experiment
from iclflow.sweeps.workers.blocks import BLOCK, FAN, MANY, block_count

__all__ = ["Submit", "huge_moments", "moments_here"]

Submit = Callable[..., Any]  # (function, *arguments) -> its value, or a promise of it that others accept as argument


class First(NamedTuple):
    tokens: np.ndarray
    tasks: np.ndarray
    squares: np.ndarray


def huge_moments(submit: Submit, experiment: Experiment, blocks: Blocks, which: int = 0) -> Any:
    """The moments of sample number `which` of a run (training, then tests), as what `submit` returns."""
    count = block_count(sample_of(experiment, which).count)
    shared = summed(submit, count, first_round, experiment, which)
    total = summed(submit, count, second_round, experiment, which, shared, blocks)
    return submit(averaged, experiment, total, blocks)


def moments_here(experiment: Experiment, blocks: Blocks, which: int = 0) -> Moments:
    """The same, in this process."""
    return huge_moments(lambda function, *arguments: function(*arguments), experiment, blocks, which)


def summed(submit: Submit, count: int, one_block: Callable[..., Any], *arguments: Any) -> Any:
    """The sum over all blocks by a fixed tree.

    Asked for branch by branch, so that whoever computes in this order holds a few sums at a time, not one a block.
    Where there are many blocks, a branch of `FAN` of them is a single piece of work; the additions stay the same.
    """
    fused = FAN if count > MANY else 1

    def branch(first: int, width: int) -> Any:
        if width == fused:
            return submit(added_blocks, range(first, min(first + width, count)), one_block, *arguments)
        step = width // FAN
        return submit(added, *(branch(i, step) for i in range(first, min(first + width, count), step)))

    whole = fused
    while whole < count:
        whole *= FAN
    return branch(0, whole)


def added_blocks(numbers: range, one_block: Callable[..., Any], *arguments: Any) -> Any:
    """The sum over neighbouring blocks, held one at a time."""
    total = None
    for number in numbers:
        part = one_block(number, *arguments)
        total = part if total is None else added(total, part)
    return total


def added(*parts: Any) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = type(total)(*(a + b for a, b in zip(total, part, strict=True)))
    return total


def first_round(block: int, experiment: Experiment, which: int) -> First:
    sample = sample_of(experiment, which)
    total: First | None = None
    with threadpool_limits(1, "blas"):
        for index in chunks_of(block, sample):
            tokens = sample.law.tokens(sample.seed, index, sample.size(index)).sum(axis=0)
            tasks = sample.law.standard_tasks(sample.seed, index, sample.size(index))
            part = First(tokens, tasks.sum(axis=0), np.einsum("pod,poe->ode", tasks, tasks))
            total = part if total is None else added(total, part)
    assert total is not None
    return total


def second_round(block: int, experiment: Experiment, which: int, shared: First, blocks: Blocks) -> Any:
    task, sample = experiment.task, sample_of(experiment, which)
    centre(sample, shared)
    total = None
    with threadpool_limits(1, "blas"):
        for index in chunks_of(block, sample):
            rows = sample.chunk(index)
            part = chunk_sums(rows, task.dim, task.normalize or "context", task.prefix_loss, blocks)
            total = part if total is None else added(total, part)
    return total


def centre(sample: Sample, shared: First) -> None:
    """Tell a sample its means and whitener, which it would otherwise walk through all its chunks for."""
    count = sample.count
    sample.token_mean = shared.tokens / count
    mean = shared.tasks / count
    covariance = (shared.squares - count * mean[:, :, None] * mean[:, None, :]) / (count - 1)
    sample.whitener = mean, np.stack([np.linalg.inv(root(c)) for c in covariance])


def averaged(experiment: Experiment, sums: Any, blocks: Blocks) -> Moments:
    seen = sums.seen
    power = np.asarray(sums.power / seen)
    return Moments(sums.left / seen, None, sums.cross / seen, power, dim=experiment.task.dim, blocks=blocks)


def chunks_of(block: int, sample: Sample) -> Iterator[int]:
    return iter(range(block * BLOCK, min((block + 1) * BLOCK, chunk_count(sample))))


def sample_of(experiment: Experiment, which: int) -> Sample:
    """Sample number `which` of the run: walked through block by block, so no draw is worth keeping."""
    from iclflow.training.plan import Plan

    sample = Plan(experiment).samples(experiment.training.seed)[which]
    assert isinstance(sample, Sample)
    return sample
