"""What all studies do with runs: train each once, shift seeds, time drops, and put curves into tables."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.comparison.comparing import Comparison, Drop, compare_one, crossing
from iclflow.config import Task
from iclflow.figures.style import WIDTH
from iclflow.models import Model
from iclflow.results.run import Run
from iclflow.system.lru_cache import LRUCache
from iclflow.system.thinning import even_places

__all__ = [
    "compare_seeds",
    "drop_errors",
    "drop_times",
    "each_seed",
    "few",
    "loss_table",
    "panels",
    "shifted",
    "stacked",
    "train",
]


RUNS = LRUCache(most=64, most_bytes=2**40)  # a run is small


def train(task: Task, model: Model, **settings: Any) -> Run:
    """`icl.train`, which trains a run once in a process, however many studies ask for it."""
    key = tuple((name, contents(value)) for name, value in sorted(settings.items()))
    return RUNS.get((task, model, key), partial(icl.train, task, model, **settings))


def contents(value: Any) -> Any:
    """A setting, or the bytes of arrays by their names."""
    if not isinstance(value, dict):
        return value
    return tuple((name, np.shape(array), np.asarray(array).tobytes()) for name, array in value.items())


def shifted(task: Task, offset: int) -> Task:
    """The task with `offset` added to the seed of its random basis and in-weight task."""
    return task.replace(task_seed=task.task_seed + offset)


def each_seed(run: Run) -> Iterator[Run]:
    """The runs of single seeds."""
    return map(run.select, run.seeds)


def drop_times(run: Run, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels-1"]:
    """When the loss of a single seed is halfway between neighbouring levels; infinite where it never gets there."""
    found = [crossing(run.time.values, run.loss.values, float(middle)) for middle in (levels[:-1] + levels[1:]) / 2]
    return np.array([np.inf if time is None else time for time in found])


def compare_seeds(runs: Run, source: str | None = None) -> list[Comparison]:
    """Every seed beside theory."""
    return [compare_one(run, source) for run in each_seed(runs)]


def drop_errors(drops: Iterable[Drop]) -> list[float]:
    """The relative errors of predicted drop times; infinite where a drop has not come."""
    return [np.inf if drop.error is None else drop.error for drop in drops]


def panels(height: float, rows: int, columns: int, **settings: Any) -> tuple[Figure, Any]:
    """A figure as wide as the text, and its axes."""
    figure = Figure(figsize=(WIDTH, height))
    return figure, figure.subplots(rows, columns, **settings)


def few(length: int, count: int = 500) -> Int[np.ndarray, " k"]:
    """Indices that are enough to draw a curve on a linear or a logarithmic axis."""
    return np.union1d(even_places(length, count), (np.geomspace(1, length, count) - 1).round().astype(int))


def stacked(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables one below the other, with their names in the first column."""
    return pd.concat(parts, names=["curve"]).reset_index(level="curve").reset_index(drop=True)


def loss_table(run: Run, theory: Float[np.ndarray, " T"] | None = None) -> pd.DataFrame:
    """Times and losses of one seed at a few hundred steps, with theory beside them."""
    kept = few(len(run.time))
    columns = {"step": run.curves["step"].values[kept], "time": run.time.values[kept]}
    columns |= {str(name): array.values[kept] for name, array in run.curves.items()}
    if theory is not None:
        columns["theory"] = theory[kept]
    return pd.DataFrame(columns)
