r"""The loss of the same weights on shifted tasks: other context lengths, tokens, queries, labels.

It is measured on sequences of the shifted task and compared with the loss of the named algorithm [`off-distribution`].
For an algorithm that is a matrix the latter is the population loss of the shifted task,

$$L' = L_0' - 2\operatorname{tr}(A'C_1') + \operatorname{tr}(A'B'A\Lambda'),$$

with the same $A$, times $N'\nu'/N\nu$ if the scale of attention changes with the length. All losses are relative to
that of predicting zero on the shifted task.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.probing.candidates import Entry
from iclflow.probing.contexts import Contexts, draw
from iclflow.probing.naming import Verdict
from iclflow.probing.outputs import Outputs, predictions
from iclflow.probing.setting import Setting, unit
from iclflow.probing.subject import Subject
from iclflow.theory.landscape import landscape

__all__ = ["Shift", "off_distribution"]

SEQUENCES = 4096
LENGTHS = (0.25, 0.5, 2.0, 4.0)  # factors on the context length
NOISE = (0.1, 1.0)  # fractions of the power of the labels
QUERIES = 3.0  # factor on the tokens of the query


@dataclass(frozen=True)
class Shift:
    """One shifted task; losses are relative to predicting zero on it."""

    name: str
    measured: float | None
    standard_error: float | None
    theory: float | None
    note: str = ""


def off_distribution(
    subject: Subject, setting: Setting, outputs: Outputs, verdict: Verdict, entries: dict[str, Entry]
) -> tuple[Shift, ...]:
    """The losses of the last snapshot on every shifted task."""
    last = replace(subject, snapshots=subject.snapshots[-1:])
    return tuple(
        shifted(last, setting, outputs, verdict, entries[verdict.key], name, task, scale)
        for name, task, scale in shifts(setting.reference, subject.task.icl_fraction)
    )


def shifts(reference: Task, icl_fraction: float) -> Iterator[tuple[str, Task, float]]:
    """Name and task of every shift, and the factor on the tokens of the query."""
    task = reference.replace(icl_fraction=icl_fraction, prefix_loss=False, query_noise=False)
    cov, N = covariances(reference), reference.context
    yield "as trained", task, 1.0
    if task.tasks is not None:
        yield "new tasks", task.new_tasks, 1.0
    for length in sorted({max(1, round(factor * N)) for factor in LENGTHS} - {N}):
        yield f"context {length}", task.replace(context=length), 1.0
    for name, values in (("reversed", cov.eigenvalues[::-1]), ("white", np.full(task.dim, cov.eigenvalues.mean()))):
        yield f"{name} covariance", with_covariance(task, (cov.basis * values) @ cov.basis.T), 1.0
    yield f"queries x{QUERIES:g}", task, QUERIES
    power = float(np.trace(cov.token @ cov.task))
    for share in NOISE:
        yield f"label noise {share:g}", task.replace(label_noise=task.label_noise + share * power), 1.0


def with_covariance(task: Task, token: Float[np.ndarray, "D D"]) -> Task:
    """The task with another token covariance and the same task vectors."""
    kept = {name: getattr(task, name) for name in task.model_fields_set if name not in ("basis", "spectrum")}
    return Task(**{**kept, "dim": task.dim, "spectrum": token, "task_spectrum": covariances(task.new_tasks).task})


def shifted(
    last: Subject,
    setting: Setting,
    outputs: Outputs,
    verdict: Verdict,
    entry: Entry,
    name: str,
    task: Task,
    scale: float,
) -> Shift:
    """Measured and predicted loss on one shifted task."""
    contexts = scaled_queries(draw(task, SEQUENCES), scale)
    theory = expected(last, setting, outputs, verdict, entry, task, contexts)
    try:
        errors = np.mean((predictions(last, contexts)[0] - contexts.target) ** 2, axis=1)
    except BadInput:
        raise
    except Exception as error:  # a user's function need not accept every length
        return Shift(name, None, None, theory, f"{type(error).__name__}: {error}".splitlines()[0][:100])
    measured, spread = errors.mean() / contexts.power, errors.std() / np.sqrt(len(errors)) / contexts.power
    return Shift(name, float(measured), float(spread), theory)


def scaled_queries(contexts: Contexts, scale: float) -> Contexts:
    """The same contexts with queries, and so labels, multiplied by a factor."""
    dim, tokens = contexts.query.shape[1], contexts.tokens.copy()
    tokens[:, -1, :dim] *= scale
    return replace(contexts, tokens=tokens, query=scale * contexts.query, target=scale * contexts.target)


def expected(
    last: Subject, setting: Setting, outputs: Outputs, verdict: Verdict, entry: Entry, task: Task, contexts: Contexts
) -> float | None:
    """The relative loss of the named algorithm on the shifted task, or of the effective matrix if none was named."""
    matrix = entry.matrix(-1) if entry.matrix is not None and verdict.algorithm != "none" else None
    if verdict.algorithm == "none" and outputs.reduced:
        matrix = outputs.matrices[-1]
    if matrix is not None:
        if last.linear:
            matrix = matrix * unit(last.normalize, task.context) / unit(last.normalize, setting.contexts.length)
        if task.icl_fraction == 1:
            population = landscape(task.replace(normalize="context"))
            return float(population.loss(matrix) / population.base)
        guess = np.einsum("poi,ij,pj->po", contexts.beta, matrix, contexts.query, optimize=True)
    elif entry.predict is not None and verdict.algorithm != "none":
        guess = entry.predict(contexts, -1)
    else:
        return None
    return contexts.loss(guess) / contexts.power
