"""The verb: theory beside runs, files and arrays, and these beside each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from iclflow.comparison.comparing import Comparison, compare_one
from iclflow.comparison.curves import Curve, array_curve, described, from_run, read_curves
from iclflow.comparison.levels import LevelComparison, compare_levels
from iclflow.comparison.overlay import Overlay, lay_over
from iclflow.comparison.several import Comparisons
from iclflow.config import Task, Training
from iclflow.config.settings import named_optimizer, refuse_without_effect
from iclflow.data.own import read_own_data
from iclflow.errors import BadInput, NoTheory
from iclflow.models import Model
from iclflow.models.base import check_order
from iclflow.results.loading import is_run, load_run
from iclflow.results.run import Run
from iclflow.results.weights import fitted, read_weights

__all__ = ["compare"]


def compare(
    subject: Any,
    task: Task | None = None,
    model: Model | None = None,
    *,
    weights: Any = None,
    data: Any = None,
    time: Any = None,
    source: str | None = None,
    **settings: Any,
) -> Comparison | LevelComparison | Comparisons | Overlay:
    """Compare training curves with theory, and with each other.

    Args:
        subject: a `Run`, a run directory, a file (`.csv` with loss and time or step, text of the public code), an array
            of losses, or a list of these.
        task: what a file or array was trained on; a run brings its own.
        model: what was trained there.
        weights: its initial weights, named arrays or tensors (a `state_dict`), or `FILE[:PREFIX]`: theory then predicts
            the whole curve.
        data: the sequences it was trained on, an array or an `.npz` file: theory then uses their moments.
        time: t/tau of every loss of an array.
        source: of a run, whose moments theory uses: `population` or `sample` (the default if it has one).
        settings: how a curve from elsewhere was trained, by the names of `train`: `lr` puts its steps on the clock of
            its `optimizer`, and with `weights`, or `init`, theory predicts the whole curve.

    Returns:
        A `Comparison` of one run (`Comparisons` if it has several seeds), or an `Overlay` of anything else. Where
        theory predicts no curve (a model of your own, softmax, Adam), a `LevelComparison` with the levels of linear
        attention.

    Raises:
        BadInput: if not even the levels are known, or if a file or array cannot be read as a curve.

    >>> import iclflow as icl
    >>> run = icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=0.01)
    >>> icl.compare(run).mean_gap < 1e-3
    True
    """
    check_order(task, model)
    if isinstance(subject, str | Path) and is_run(subject):
        subject = load_run(subject)
    if isinstance(subject, Run):
        said = {"task": task, "model": model, "weights": weights, "data": data, "time": time, **settings}
        for name, value in said.items():
            if value is not None:
                raise BadInput(f"{name}: a run brings its own")
        if "seed" in subject.curves.dims:
            return Comparisons([curve_or_levels(subject.select(seed), source) for seed in subject.seeds])
        return curve_or_levels(subject, source)
    if source is not None:
        raise BadInput("source: chooses the moments of a run; give data for a curve from elsewhere")
    own = None
    if data is not None:
        own, task = read_own_data(data, task)
    start = None
    if weights is not None:
        given = read_weights(weights)
        start = given.weights
        model, task = fitted(given, model, task)
    settings, _ = named_optimizer(settings)
    training = Training(**settings)
    settings = {name: getattr(training, name) for name in settings}
    refuse_idle(settings, weights is not None or "init" in settings)
    settings |= explicit_settings(task, model)
    described(settings)
    several = list(subject) if isinstance(subject, list | tuple) and not is_losses(subject) else [subject]
    curves = [curve for number, one in enumerate(several, 1) for curve in curves_of(one, settings, time, number)]
    return lay_over(curves, start, own)


def curve_or_levels(run: Run, source: str | None) -> Comparison | LevelComparison:
    """The run beside its predicted curve, or beside the levels where there is none."""
    if not np.isfinite(run.loss.values).any():
        raise BadInput(f"subject: a run without a finite loss cannot be compared; it ended as {run.status}")
    try:
        return compare_one(run, source)
    except NoTheory as why:
        return compare_levels(run, source, why)


def is_losses(subject: Sequence[Any]) -> bool:
    """Whether a list is itself a curve."""
    return all(isinstance(value, int | float | np.number) for value in subject)


def refuse_idle(settings: dict[str, Any], predicts: bool) -> None:
    """Settings on which nothing depends that is said about a curve from elsewhere."""
    refuse_without_effect(settings)
    for name in settings:
        if name in ("steps", "seeds"):
            raise BadInput(f"{name}: {settings[name]!r} has no effect on the comparison of a curve; leave it out")
        if name not in ("lr", "optimizer", "beta", "weight_decay") and not predicts:
            raise BadInput(
                f"{name}: {settings[name]!r} has no effect without weights or init, which theory starts from"
            )


def explicit_settings(task: Task | None, model: Model | None) -> dict[str, Any]:
    """What was said about curves that do not know their own settings."""
    settings: dict[str, Any] = {} if model is None else {"model": model.kind}
    for record in (task, model):
        if record is not None:
            settings |= {name: getattr(record, name) for name in record.model_fields_set}
    return settings


def curves_of(subject: Any, settings: dict[str, Any], time: Any, number: int) -> list[Curve]:
    """The curves of one subject of several."""
    if isinstance(subject, Run):
        return [from_run(subject.select(seed), f"run {number}, seed {seed}") for seed in subject.seeds]
    if isinstance(subject, str | Path):
        return read_curves(str(subject), settings)
    return [array_curve(subject, time, settings, f"curve {number}")]
