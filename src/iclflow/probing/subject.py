"""The subject of a probe: weights, at one time or along training, or any function from sequences to predictions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from iclflow.config import Task
from iclflow.data.own import read_own_data
from iclflow.data.sequences import Given
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.models.parts import check_weights
from iclflow.prediction.sample import sample_landscape
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.results.weights import TO_PROBE, GivenWeights, checkpoint_files, read_weights, with_sizes
from iclflow.system.arrays import is_torch_module, torch_function
from iclflow.theory.separate import SampleLandscape

__all__ = ["Predictor", "Subject", "from_run", "read_subject"]

FALLING = 0.05  # of the first loss, while time grows by a factor of e

Predictor = Callable[[Float[np.ndarray, "P tokens E"]], Float[np.ndarray, "P O"]]


@dataclass(frozen=True)
class Subject:
    """Snapshots of one model, or a function; `data` are sequences to probe on instead of those of the task."""

    name: str
    task: Task
    model: Model | None
    snapshots: tuple[Weights, ...]
    time: Float[np.ndarray, " T"] | None = None  # t/tau, if it is known
    steps: Float[np.ndarray, " T"] | None = None
    function: Predictor | None = None
    data: Given | None = None
    falling: Bool[np.ndarray, " T"] | None = None  # of a run: whether its loss is falling at the snapshot
    sample: SampleLandscape | None = None  # of a run on a finite sample

    @property
    def count(self) -> int:
        """The number of snapshots; a function counts as one."""
        return len(self.snapshots) if self.function is None else 1

    @property
    def normalize(self) -> str:
        """The normaliser of attention, as in training."""
        return self.task.normalize or "context" if self.model is None else self.model.normalize(self.task)

    @property
    def linear(self) -> bool:
        """Whether the predictions are linear in coefficients that follow from the weights."""
        return self.model is not None and self.model.linear


def read_subject(source: Any, task: Task | None, model: Model | None, data: Any) -> Subject:
    """The subject for any source of `icl.probe` other than a run."""
    if callable(source):
        given, task = sequences(data, task)
        source = torch_function(source) if is_torch_module(source) else source
        return Subject(getattr(source, "__name__", "a function"), task, None, (), function=source, data=given)
    if isinstance(source, Mapping):
        return from_files("weights", [read_weights(source)], None, task, model, data)
    if not isinstance(source, str | Path):
        raise BadInput(f"weights: {type(source).__name__} must be a run, a path, named arrays or a function")
    path = Path(source)
    if path.is_dir():
        files, steps = checkpoint_files(path)
        return from_files(str(source), [read_weights(f, TO_PROBE) for f in files], steps, task, model, data)
    return from_files(str(source), [read_weights(source, TO_PROBE)], None, task, model, data)


def from_run(run: Run, task: Task | None, model: Model | None, data: Any, name: str) -> Subject:
    """All snapshots of a run of one seed, on the task and sequences of the run unless others are given."""
    if model is not None and model != run.model:
        raise BadInput("model: a run brings its own")
    given = None
    if data is not None:
        given, task = sequences(data, task)
        task = task.replace(prefix_loss=task.prefix_loss or run.task.prefix_loss)
    elif task is None and run.experiment.data is not None:
        own = same_data(run)
        given = None if own is None else own.training
    task = run.task if task is None else task.replace(normalize=task.normalize or run.task.normalize)
    names = [str(name) for name in run.weights.data_vars]
    arrays = {name: run.weights[name].values for name in names}
    snapshots = tuple(
        check_weights(run.model, task, {name: arrays[name][i] for name in names})
        for i in range(run.weights.sizes["record"])
    )
    time, steps = (np.asarray(run.weights[name].values, dtype=float) for name in ("time", "step"))
    own_task = data is None and task == run.task and run.model.linear
    sample = sample_landscape(run) if own_task and run.moments is not None else None
    return Subject(name, task, run.model, snapshots, time, steps, data=given, falling=is_falling(run), sample=sample)


def is_falling(run: Run) -> Bool[np.ndarray, " T"] | None:
    """Whether the loss is falling at the snapshots of a run; batches are too noisy to tell."""
    time, loss = run.time.values, run.loss.values
    if run.training.batch is not None or len(time) < 3 or time[-1] <= 0:
        return None
    log_time = np.log(np.maximum(time, time[time > 0].min() / 2))
    keep = np.concatenate([[True], np.diff(log_time) > 0])
    slope = np.gradient(loss[keep], log_time[keep]) / loss[0]
    return np.interp(run.weights["time"].values, time[keep], slope) < -FALLING


def from_files(
    name: str, files: list[GivenWeights], steps: list[int] | None, task: Task | None, model: Model | None, data: Any
) -> Subject:
    """Weights from memory or disk; sequences in the same file are used unless the task describes its own data."""
    described = task is not None and bool(
        task.model_fields_set & {"spectrum", "basis", "task_spectrum", "icl_fraction"}
    )
    if data is None and files[0].data is not None and not described:
        data = files[0].data
    given = None
    if data is not None:
        given, task = sequences(data, task)
    model, task = with_sizes(files[0], model, task)
    for complaint in model.complaints(task):
        raise BadInput(complaint)
    snapshots = tuple(check_weights(model, task, file.weights) for file in files)
    return Subject(name, task, model, snapshots, None, None if steps is None else np.array(steps, float), data=given)


def sequences(data: Any, task: Task | None) -> tuple[Given | None, Task]:
    """The user's own sequences, if there are any, and a task of their sizes."""
    if data is None:
        return None, task or Task()
    own, task = read_own_data(data, task)
    return own.training, task
