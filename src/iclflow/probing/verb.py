"""`icl.probe`: from weights, runs or functions to the name of an algorithm."""

from pathlib import Path
from typing import Any

import numpy as np

from iclflow.config import Task
from iclflow.models import Model
from iclflow.models.base import check_order
from iclflow.probing.between import between
from iclflow.probing.candidates import Entry, form, measure
from iclflow.probing.fixed_points import fixed_points
from iclflow.probing.gains import Gains, gains
from iclflow.probing.heads import heads, vector_blocks
from iclflow.probing.layers import by_layer_entries, layers_of
from iclflow.probing.naming import THRESHOLD, Verdict, name
from iclflow.probing.notes import flag_notes, sample_notes
from iclflow.probing.off_distribution import off_distribution
from iclflow.probing.outputs import Outputs, outputs
from iclflow.probing.result import Probe
from iclflow.probing.setting import Setting, setting_of
from iclflow.probing.subject import Subject, from_run, read_subject
from iclflow.results.loading import is_run, load_run
from iclflow.results.run import Run

__all__ = ["probe"]


def probe(
    source: Any, task: Task | None = None, *, model: Model | None = None, data: Any = None, shifts: bool = True
) -> Probe | list[Probe]:
    """Name the algorithm that weights implement in context.

    Args:
        source: a `Run`, a run directory, a weight file `FILE[:PREFIX]` (safetensors or npz, also under the names of
            the public code), a folder of checkpoints, named arrays or tensors (a `state_dict`), or a function or
            PyTorch module from sequences (P, N+1, D+O), the query last with its label 0, to predictions (P, O).
        task: the task to probe on; by default that of the run.
        model: only needed for weights without a run, to set `softmax=True`.
        data: your own sequences to probe on, an array or an `.npz` file.
        shifts: also measure the loss on sequences that differ from the task.

    Returns:
        The probe, or a list with one probe per seed for a run of several seeds.

    Raises:
        BadInput: if the weights cannot be read, do not fit the task, or give predictions that are not finite.

    >>> import iclflow as icl
    >>> task = icl.Task(dim=3, context=20)
    >>> result = icl.probe(lambda sequences: 0 * sequences[:, -1, -1:], task, shifts=False)
    >>> result.algorithm, result.components
    ('zero', ())
    """
    check_order(task, model)
    name = "run" if isinstance(source, Run) else str(source)
    if isinstance(source, str | Path) and is_run(source):
        source = load_run(source)
    if not isinstance(source, Run):
        return probe_one(read_subject(source, task, model, data), shifts)
    if "seed" not in source.curves.dims:
        return probe_one(from_run(source, task, model, data, name), shifts)
    subjects = (from_run(source.select(s), task, model, data, f"{name}, seed {s}") for s in source.seeds)
    return [probe_one(subject, shifts) for subject in subjects]


def probe_one(subject: Subject, shifts: bool) -> Probe:
    """All measurements of one subject."""
    setting, own, components, entries, verdicts = judged(subject)
    last = subject.snapshots[-1] if subject.snapshots else {}
    model, task, d = subject.model, subject.task, setting.directions
    distances = form(setting, own, d.left, d.right)
    notes = (
        *sample_notes(subject, setting, own, verdicts[-1]),
        *flag_notes(subject, verdicts[-1], lambda other: judged(other)[-1][-1]),
    )
    squares = setting.contexts.target**2
    error = squares.std() / squares.mean() / np.sqrt(squares.size)
    return Probe(
        subject=subject.name,
        task=setting.reference,
        model=model,
        time=subject.time,
        steps=subject.steps,
        verdicts=verdicts,
        gains=components,
        entries=entries,
        fixed_points=fixed_points(task, model, d, distances, setting.strength, last),
        heads=heads(task, model, d, last) if model is not None and model.offers("reduced") else None,
        layers=layers_of(subject, setting),
        vector_blocks={} if model is None else vector_blocks(task, model, last),
        off_distribution=off_distribution(subject, setting, own, verdicts[-1], entries) if shifts else (),
        sequences=len(setting.contexts.query),
        sampling_error=float(THRESHOLD * error),
        exact=setting.closed is not None and own.reduced,
        notes=notes,
    )


def judged(subject: Subject) -> tuple[Setting, Outputs, Gains, dict[str, Entry], tuple[Verdict, ...]]:
    """The verdict on every snapshot, and what it rests on."""
    setting = setting_of(subject)
    own = outputs(subject, setting.contexts)
    components = gains(setting, own.matrices)
    entries = {**measure(setting, own, components.sets), **by_layer_entries(subject, setting, own)}
    d, one_by_one = setting.directions, subject.model is None or subject.model.one_by_one
    ways = between(form(setting, own, d.left, d.right), components.gain, setting.strength, d.order)
    falling = np.zeros(subject.count, bool) if subject.falling is None else subject.falling
    verdicts = tuple(
        name(entries, components.sets, t, ways[t], bool(falling[t]), one_by_one) for t in range(subject.count)
    )
    return setting, own, components, entries, verdicts
