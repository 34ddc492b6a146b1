r"""What a verdict leaves open, in sentences: a small sample, a forgotten flag.

The optimum of rank $m$ on a sample is not that of the population. A converged run on few sequences can therefore be
"none of these" while it is nothing but the regression on its own sample; a run carries the moments that tell. For
weights without a run only the size of the effect is known: $D^2L_{min}/P$ for $P$ sequences and light tails.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from iclflow.errors import BadInput
from iclflow.models.parts import empty
from iclflow.probing.naming import THRESHOLD, Verdict
from iclflow.probing.outputs import Outputs
from iclflow.probing.setting import Setting, unit
from iclflow.probing.subject import Subject
from iclflow.theory.algorithm import prediction_distance
from iclflow.theory.separate import rank_optimum

__all__ = ["flag_notes", "sample_notes"]

HEAVY = 4.0  # by how much the tails of products of Gaussians raise the error of a small sample, at most


def sample_notes(subject: Subject, setting: Setting, own: Outputs, last: Verdict) -> Iterator[str]:
    """What the size of the sample can explain, beside a verdict of "none"."""
    if last.algorithm != "none" or last.where or setting.closed is None or not subject.linear:
        return
    if subject.sample is not None:
        yield from own_sample_notes(subject, setting, own)
        return
    if subject.time is None and subject.steps is None and last.distance < 1:
        lowest = setting.directions.loss(np.ones(subject.task.dim, dtype=bool))
        count = HEAVY * subject.task.dim**2 * lowest / (last.distance * setting.base)
        yield (
            f"weights that were trained on fewer than about {count:.0f} sequences can be this far from every candidate"
            " for no other reason; probe the run, or give its sequences with --data"
        )


def own_sample_notes(subject: Subject, setting: Setting, own: Outputs) -> Iterator[str]:
    """Whether the snapshot is the optimum of its own sample."""
    assert subject.sample is not None
    assert setting.closed is not None
    scale = unit(subject.normalize, subject.task.context) / (
        subject.task.context if subject.normalize == "none" else 1.0
    )
    for rank in range(subject.task.dim, 0, -1):
        try:
            optimum = scale * rank_optimum(subject.sample, rank)
        except BadInput:
            return
        apart = prediction_distance(setting.closed, own.matrices[-1], optimum) / setting.base
        if apart <= THRESHOLD:
            parts = "least squares" if rank == subject.task.dim else f"regression on {rank} components"
            yield (
                f"this is {parts} on the sample that it was trained on (distance {apart:.2g}), which is too small to"
                " tell it from the population's: the sample is the reason for the distances above"
            )
            return


def flag_notes(subject: Subject, last: Verdict, judge: Callable[[Subject], Verdict]) -> Iterator[str]:
    """Flags of bare weights that may have been forgotten: with them the same weights would have a name."""
    if subject.model is None or subject.time is not None or last.algorithm not in ("none", "zero"):
        return
    if all(np.array_equal(subject.snapshots[-1][n], a) for n, a in empty(subject.model, subject.task).items()):
        return
    one = replace(subject, snapshots=subject.snapshots[-1:], steps=None)
    for flag, other in alternatives(one):
        try:
            verdict = judge(other)
        except BadInput:
            continue
        if verdict.algorithm not in ("none", "zero") and verdict.distance < last.distance + THRESHOLD:
            found = f"{verdict.label} (distance {verdict.distance:.2g})"
            yield f"with {flag} these weights would be {found}: was it forgotten?"


def alternatives(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """The same weights with one flag changed that nobody has given, where the model allows it."""
    model, task = subject.model, subject.task
    assert model is not None
    others = []
    if "softmax" in type(model).model_fields and not getattr(model, "softmax", True):
        plain = task.replace(normalize="none")
        others.append(("--softmax", replace(subject, model=model.replace(softmax=True), task=plain)))
    if not getattr(model, "softmax", False):
        for normalize in ("context", "tokens", "none"):
            if normalize != subject.normalize:
                others.append((f"--normalize {normalize}", replace(subject, task=task.replace(normalize=normalize))))
    for flag, other in others:
        if other.model is not None and not any(other.model.complaints(other.task)):
            yield flag, other
