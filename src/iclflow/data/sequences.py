r"""Sequences of the task: $N$ labelled tokens and a query, with one task vector per sequence.

$$x_n \sim N(0, \Lambda),\quad w_o \sim N(0, \Omega),\quad y_{n,o} = w_o' x_n + \text{noise}$$

A sequence is stored as rows `[x, y]`, the query last with its true label; models never see that label. A sample of
$P$ sequences is defined chunk by chunk, every chunk from its own random stream, so that it can be processed in
bounded memory and does not depend on which process computes which chunk. As published, tokens are centred position by
position over the sample, and task vectors are centred and whitened when every sequence has its own. With K fixed task
vectors each sequence draws one of them.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.config import Task
from iclflow.data.spectrum import covariances, in_weight_task, root, task_vectors
from iclflow.errors import BadInput
from iclflow.system.cores import one_blas_thread, threads
from iclflow.system.digest import digest

__all__ = ["CHUNK", "Given", "Law", "Sample", "Sequences", "fresh", "sample"]

T = TypeVar("T")
Whiten = Callable[[Float[np.ndarray, "P O D"]], Float[np.ndarray, "P O D"]]
ONE_WALK = threading.Lock()

CHUNK = 8192  # sequences; part of the definition of a sample, so it cannot be tuned
AHEAD = 4  # chunks per thread that wait or are done before they are asked for
KEEP_BYTES = 256 * 2**20  # draws up to this size are kept between the two passes instead of being drawn again
TOKENS, TASKS, NOISE, LABELS = range(4)  # random streams of one chunk
TRAIN, TEST_ICL, TEST_IWL = 1, 2, 3  # samples drawn from the same seed


@runtime_checkable
class Sequences(Protocol):
    """A set of sequences that is computed in chunks of (at most) `CHUNK` sequences."""

    @property
    def count(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def out_dim(self) -> int: ...
    @property
    def identity(self) -> str: ...
    def prepare(self) -> None: ...
    def chunk(self, index: int) -> Float[np.ndarray, "P tokens E"]: ...


@dataclass(frozen=True)
class Law:
    """The distribution from which a sequence is drawn."""

    context: int
    token_root: Float[np.ndarray, "D D"]
    task_root: Float[np.ndarray, "D D"]
    in_weight: Float[np.ndarray, "O D"]
    icl_fraction: float
    label_noise: float
    query_noise: bool
    task_set: Float[np.ndarray, "K O D"] | None = None  # the fixed task vectors, where there are any

    @staticmethod
    def of(task: Task, icl_fraction: float | None = None) -> "Law":
        """The training law of a task, or the same law with another in-context fraction (1 and 0 are the test laws)."""
        fraction = task.icl_fraction if icl_fraction is None else icl_fraction
        cov = covariances(task)
        return Law(
            task.context, root(cov.token), root(cov.task), in_weight_task(task), fraction,
            task.label_noise, task.query_noise, None if task.tasks is None else task_vectors(task),
        )  # fmt: skip

    @property
    def dim(self) -> int:
        return len(self.token_root)

    @property
    def out_dim(self) -> int:
        return len(self.in_weight)

    def has_own_task(self, index: Int[np.ndarray, " P"]) -> Bool[np.ndarray, " P"]:
        """Which sequences draw their own task vector: a fraction p of them, spread evenly over the sample."""
        return np.floor((index + 1) * self.icl_fraction) > np.floor(index * self.icl_fraction)

    def normals(
        self, stream: int, seed: tuple[int, ...], chunk: int, shape: tuple[int, ...]
    ) -> Float[np.ndarray, "..."]:
        """Standard normal numbers from one random stream of a chunk."""
        return np.random.default_rng([*seed, stream, chunk]).standard_normal(shape)

    def tokens(self, seed: tuple[int, ...], chunk: int, size: int) -> Float[np.ndarray, "P tokens D"]:
        """The tokens of a chunk, not yet centred."""
        return self.normals(TOKENS, seed, chunk, (size, self.context + 1, self.dim)) @ self.token_root

    def standard_tasks(self, seed: tuple[int, ...], chunk: int, size: int) -> Float[np.ndarray, "P O D"]:
        """Standard normal vectors, from which `tasks` makes the task vectors."""
        return self.normals(TASKS, seed, chunk, (size, self.out_dim, self.dim))

    def tasks(
        self, index: Int[np.ndarray, " P"], seed: tuple[int, ...], chunk: int, whiten: Whiten = lambda tasks: tasks
    ) -> Float[np.ndarray, "P O D"]:
        """The task vectors of the sequences of a chunk, which have the numbers `index` in the sample."""
        if self.task_set is not None:
            return self.task_set[
                np.random.default_rng([*seed, TASKS, chunk]).integers(len(self.task_set), size=len(index))
            ]
        standard = whiten(self.standard_tasks(seed, chunk, len(index)))
        return np.where(self.has_own_task(index)[:, None, None], standard @ self.task_root, self.in_weight)

    def label(
        self,
        tokens: Float[np.ndarray, "P tokens D"],
        w: Float[np.ndarray, "P O D"],
        seed: tuple[int, ...],
        chunk: int,
    ) -> Float[np.ndarray, "P tokens E"]:
        """The tokens with their labels, as rows `[x, y]`."""
        y = tokens @ w.transpose(0, 2, 1)
        if self.icl_fraction == 0:  # the context holds no information about the task
            y[:, :-1] = self.normals(LABELS, seed, chunk, y[:, :-1].shape)
        if self.label_noise > 0:
            noise = np.sqrt(self.label_noise) * self.normals(NOISE, seed, chunk, y.shape)
            y[:, :-1] += noise[:, :-1]
            if self.query_noise:
                y[:, -1] += noise[:, -1]
        return np.concatenate([tokens, y], axis=2)


def fresh(law: Law, seed: tuple[int, ...], index: int, size: int) -> Float[np.ndarray, "P tokens E"]:
    """Batch `index` of an endless supply of sequences, neither centred nor whitened."""
    tasks = law.tasks(np.arange(index * size, (index + 1) * size), seed, index)
    return law.label(law.tokens(seed, index, size), tasks, seed, index)


class Sample:
    """A fixed sample of `count` sequences, defined by its law and seed alone."""

    def __init__(self, law: Law, count: int, seed: tuple[int, ...], whiten: bool = True):
        self.law, self.count, self.seed = law, count, seed
        self.context, self.dim, self.out_dim = law.context, law.dim, law.out_dim
        self.whiten = whiten and law.icl_fraction == 1 and law.task_set is None
        if self.whiten and count <= law.dim:
            raise BadInput(f"samples: {count} must exceed dim = {law.dim} to whiten the task vectors")
        self._kept: dict[int, np.ndarray] = {}

    @cached_property
    def identity(self) -> str:
        """Equal for samples of the same sequences."""
        law = vars(self.law).values()
        arrays = [np.ascontiguousarray(part).data.cast("B") for part in law if isinstance(part, np.ndarray)]
        settings = [part for part in law if not isinstance(part, np.ndarray)]
        return digest(repr((settings, self.count, self.seed, self.whiten)), *arrays)

    def size(self, index: int) -> int:
        """The number of sequences in a chunk."""
        return min(CHUNK, self.count - index * CHUNK)

    def raw_tokens(self, index: int) -> Float[np.ndarray, "P tokens D"]:
        """The tokens of a chunk before centring, kept in memory if the tokens of all chunks are few."""
        if index in self._kept:
            return self._kept[index]
        tokens = self.law.tokens(self.seed, index, self.size(index))
        if self.count * tokens[0].nbytes <= KEEP_BYTES:
            self._kept[index] = tokens
        return tokens

    @cached_property
    def token_mean(self) -> Float[np.ndarray, "tokens D"]:
        """The mean of every position over the sample (the first of two passes)."""
        return sum(over_chunks(lambda i: self.raw_tokens(i).sum(axis=0), self)) / self.count

    @cached_property
    def whitener(self) -> tuple[Float[np.ndarray, "O D"], Float[np.ndarray, "O D D"]]:
        r"""Mean and inverse root covariance of the standard task vectors, output by output."""
        parts = [self.law.standard_tasks(self.seed, i, self.size(i)) for i in range(chunk_count(self))]
        w = np.concatenate(parts)
        mean = w.mean(axis=0)
        covariance = np.einsum("pod,poe->ode", w - mean, w - mean) / (self.count - 1)
        return mean, np.stack([np.linalg.inv(root(c)) for c in covariance])

    def prepare(self) -> None:
        """Compute what all chunks share, before they are computed in parallel."""
        _ = self.token_mean
        if self.whiten:
            _ = self.whitener

    def chunk(self, index: int) -> Float[np.ndarray, "P tokens E"]:
        """The sequences of one chunk, centred and whitened."""
        size = self.size(index)
        tokens = self.raw_tokens(index) - self.token_mean
        tasks = self.law.tasks(index * CHUNK + np.arange(size), self.seed, index, self.whitened)
        return self.law.label(tokens, tasks, self.seed, index)

    def whitened(self, tasks: Float[np.ndarray, "P O D"]) -> Float[np.ndarray, "P O D"]:
        """Standard task vectors, centred and whitened if they are to be."""
        if not self.whiten:
            return tasks
        mean, inverse_root = self.whitener
        return np.einsum("pod,ode->poe", tasks - mean, inverse_root)


class Given:
    """The user's own sequences."""

    def __init__(self, sequences: Float[np.ndarray, "P tokens E"], out_dim: int):
        self.sequences = sequences
        self.count, tokens, width = sequences.shape
        self.context, self.out_dim, self.dim = tokens - 1, out_dim, width - out_dim

    @cached_property
    def identity(self) -> str:
        """Equal for the same sequences."""
        return digest(repr((self.sequences.shape, self.out_dim)), np.ascontiguousarray(self.sequences).data.cast("B"))

    def prepare(self) -> None:
        """There is nothing to compute."""

    def chunk(self, index: int) -> Float[np.ndarray, "P tokens E"]:
        """The rows of one chunk."""
        return self.sequences[index * CHUNK : (index + 1) * CHUNK]


def chunk_count(sequences: Sequences) -> int:
    """The number of chunks."""
    return -(-sequences.count // CHUNK)


def over_chunks(function: Callable[[int], T], sequences: Sequences) -> Iterator[T]:
    """`function(index)` of every chunk, in order, computed on all cores with one BLAS thread each.

    The numbers then do not depend on the number of cores, and small products do not compete for them. Only one pass
    runs at a time, because the limit on BLAS threads holds for the whole process.
    """
    coming: deque[Future[T]] = deque()  # no more than can be at work soon: what waits takes memory
    with ONE_WALK, one_blas_thread(), ThreadPoolExecutor(threads()) as pool:
        for index in range(chunk_count(sequences)):
            coming.append(pool.submit(function, index))
            if len(coming) > AHEAD * threads():
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def as_array(sequences: Sequences) -> Float[np.ndarray, "P tokens E"]:
    """All sequences in one array."""
    sequences.prepare()
    return np.concatenate(list(over_chunks(sequences.chunk, sequences)))


def sample(task: Task, samples: int, seed: int = 0, *, whiten: bool = True) -> Float[np.ndarray, "P tokens E"]:
    """The sequences that `train(task, .., samples=samples, seed=seed)` trains on.

    Args:
        task: what the sequences are drawn from.
        samples: the number of sequences, at least 2; with whitening it must exceed `task.dim`.
        seed: the seed of the run.
        whiten: centre and whiten the task vectors over the sample, where every sequence has its own.

    Returns:
        An array (samples, N+1, D+O) of rows `[x, y]`, the query last with its true labels.

    Raises:
        BadInput: there are too few samples.

    >>> from iclflow.config import Task
    >>> sample(Task(dim=2, context=5), 100).shape
    (100, 6, 3)
    """
    if samples < 2:
        raise BadInput(f"samples: {samples} must be at least 2")
    return as_array(Sample(Law.of(task), samples, (seed, TRAIN), whiten))
