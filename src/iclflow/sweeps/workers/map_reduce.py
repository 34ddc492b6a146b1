r"""Moments of huge samples, summed in fixed blocks by any number of workers.

A sample is defined chunk by chunk (`data.sequences`). Fixed blocks of `BLOCK` chunks are summed one by one, in two
rounds, and the sums are added in a fixed tree, `FAN` at a time, in the order of the blocks. Neither the blocks nor the
tree depend on who computes what, so the result is the same, bit for bit, for one worker and for a thousand.

First round: $\sum x$ by position, and $\sum w$, $\sum w w'$ of the standard task vectors, from which tokens are centred
and task vectors whitened. Second round: the sums of `data.sampled`.

Samples of up to `HUGE` sequences are summed chunk by chunk instead, exactly as `train` does.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from iclflow.data.features import Blocks
from iclflow.data.moments import Moments
from iclflow.data.sampled import Sums, chunk_sums
from iclflow.data.sequences import Sample, chunk_count
from iclflow.data.spectrum import root
from iclflow.experiment import Experiment
from iclflow.sweeps.workers.blocks import BLOCK, FAN, MANY, block_count
from iclflow.system.cores import one_blas_thread

__all__ = ["Submit", "at_once", "huge_moments"]

Submit = Callable[..., Any]  # (function, *arguments) -> its value, or a future of it that may be an argument


class First(NamedTuple):
    r"""Sums of the first round: $\sum x$ by position, $\sum w$ and $\sum w w'$."""

    tokens: np.ndarray
    tasks: np.ndarray
    squares: np.ndarray


def huge_moments(submit: Submit, experiment: Experiment, blocks: Blocks, which: int = 0) -> Any:
    """The moments of sample number `which` of a run (training, then tests), as what `submit` returns."""
    count = block_count(sample_of(experiment, which).count)
    shared = summed(submit, count, first_round, experiment, which)
    total = summed(submit, count, second_round, experiment, which, shared, blocks)
    return submit(averaged, experiment, total, blocks)


def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """The `submit` of this process, which returns the value."""
    return function(*arguments)


def summed(submit: Submit, count: int, one_block: Callable[..., Any], *arguments: Any) -> Any:
    """The sum over all blocks, in a fixed tree.

    Tasks are submitted branch by branch; in this order only a few sums are in memory at a time, not one per block. If
    there are many blocks, a branch of `FAN` of them is a single task; the additions stay the same.
    """
    fused = FAN if count > MANY else 1

    def branch(first: int, width: int) -> Any:
        if width == fused:
            return submit(added_blocks, range(first, min(first + width, count)), one_block, *arguments)
        step = width // FAN
        return submit(added, *(branch(i, step) for i in range(first, min(first + width, count), step)))

    width = fused
    while width < count:
        width *= FAN
    return branch(0, width)


def added_blocks(numbers: range, one_block: Callable[..., Any], *arguments: Any) -> Any:
    """The sum over neighbouring blocks, of which one is in memory at a time."""
    return reduce(added, (one_block(number, *arguments) for number in numbers))


def added(*parts: Any) -> Any:
    """The sum of named tuples, field by field and in order."""
    total = parts[0]
    for part in parts[1:]:
        total = type(total)(*(a + b for a, b in zip(total, part, strict=True)))
    return total


def first_round(block: int, experiment: Experiment, which: int) -> First:
    """The sums of the first round over one block."""
    sample = sample_of(experiment, which)

    def one_chunk(index: int) -> First:
        tokens = sample.law.tokens(sample.seed, index, sample.size(index)).sum(axis=0)
        tasks = sample.law.standard_tasks(sample.seed, index, sample.size(index))
        return First(tokens, tasks.sum(axis=0), np.einsum("pod,poe->ode", tasks, tasks))

    with one_blas_thread():
        return reduce(added, map(one_chunk, chunks_of(block, sample)))


def second_round(block: int, experiment: Experiment, which: int, shared: First, blocks: Blocks) -> Sums:
    """The sums of the second round over one block."""
    task, sample = experiment.task, sample_of(experiment, which)
    centre(sample, shared)
    rule = (task.dim, task.normalize or "context", task.prefix_loss, blocks)
    with one_blas_thread():
        return reduce(added, (chunk_sums(sample.chunk(index), *rule) for index in chunks_of(block, sample)))


def centre(sample: Sample, shared: First) -> None:
    """Set the means and the whitener of a sample, which it would otherwise compute from all its chunks."""
    count = sample.count
    sample.token_mean = shared.tokens / count
    mean = shared.tasks / count
    covariance = (shared.squares - count * mean[:, :, None] * mean[:, None, :]) / (count - 1)
    sample.whitener = mean, np.stack([np.linalg.inv(root(c)) for c in covariance])


def averaged(experiment: Experiment, sums: Sums, blocks: Blocks) -> Moments:
    """The moments from the sums of the second round."""
    seen = sums.seen
    power = np.asarray(sums.power / seen)
    return Moments(sums.left / seen, None, sums.cross / seen, power, dim=experiment.task.dim, blocks=blocks)


def chunks_of(block: int, sample: Sample) -> range:
    return range(block * BLOCK, min((block + 1) * BLOCK, chunk_count(sample)))


def sample_of(experiment: Experiment, which: int) -> Sample:
    """Sample number `which` of the run (training, then tests)."""
    from iclflow.training.plan import Plan

    sample = Plan(experiment).samples(experiment.training.seed)[which]
    assert isinstance(sample, Sample)
    return sample
