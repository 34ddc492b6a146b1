"""From what the user gave to a finished run."""

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iclflow.config import Task, Training
from iclflow.config.settings import named_optimizer, showing_settings
from iclflow.data.asymmetry import asymmetry
from iclflow.data.own import OwnData
from iclflow.experiment import Experiment
from iclflow.models import Model, Weights
from iclflow.models.base import check_order
from iclflow.results.gathering import gather
from iclflow.results.inputs import read_inputs
from iclflow.results.run import Run
from iclflow.results.writing import write_run, writing
from iclflow.system.progress import Report, progress_bar
from iclflow.training.cost import refuse_oversized
from iclflow.training.plan import Plan
from iclflow.training.seeds import run_seeds

if TYPE_CHECKING:
    import optax

__all__ = ["run_experiment", "train"]


@showing_settings
def train(
    task: Task | None = None,
    model: Model | None = None,
    *,
    data: Any = None,
    weights: Any = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    training: Training | None = None,
    **settings: Any,
) -> Run:
    """Train a model on a task.

    With neither `samples` nor `lr` and `steps`: gradient flow on the population until the loss has settled. `samples`
    makes a finite sample, `lr` and `steps` make it gradient descent.

    Args:
        task: what to learn; `icl.Task()` by default.
        model: what is trained, `icl.Separate()` by default: a built-in model or one of your own.
        data: your own sequences, an array (P, N+1, D+O) or an `.npz` file; sizes come from it.
        weights: initial weights, named arrays or tensors (a PyTorch `state_dict`), or `FILE[:PREFIX]`.
        out: a directory to save the run in; an existing one is kept unless `overwrite`.
        overwrite: replace an existing run in `out`.
        progress: show a bar; by default on a terminal and in a notebook.
        training: all other settings as one record; single ones can still be changed by name.

    Returns:
        A `Run` with curves, weights and all that is needed to make them again.

    Raises:
        BadInput: if a setting has no meaning; the message names field, value and what is allowed.
        NoRoom: if the work would not fit in memory or on the disk.

    >>> import iclflow as icl
    >>> run = icl.train(icl.Task(dim=2), icl.Merged(heads=2), samples=100, lr=0.1, steps=20)
    >>> run.loss.sizes["step"], run.status
    (21, 'ok')
    """
    check_order(task, model)
    settings, optimizer = named_optimizer(settings)
    chosen = Training(**settings) if training is None else training.replace(**settings)
    inputs = read_inputs(task, model, chosen, data, weights)
    with nullcontext() if out is None else writing(Path(out), overwrite):
        run = run_experiment(*inputs, progress=progress, optimizer=optimizer)
        if out is not None:
            write_run(run, Path(out))
    return run


def run_experiment(
    experiment: Experiment,
    own: OwnData | None = None,
    given: Weights | None = None,
    progress: bool | Report | None = None,
    earlier: Run | None = None,
    roomy: bool = False,
    optimizer: "optax.GradientTransformation | None" = None,
) -> Run:
    """All seeds of an experiment; what they share is computed once.

    Args:
        progress: show a bar, or tell a function of your own, which may raise to stop the run.
        roomy: use a compiled program that many settings share, for work where compiling is what takes long.
    """
    begun = time.perf_counter()
    refuse_oversized(experiment)
    plan = Plan(experiment, own, given, earlier, optimizer, roomy)
    seeds = [experiment.training.seed + i for i in range(experiment.training.seeds)]
    with progress_bar(f"{experiment.model.kind}, {plan.engine}", progress) as report:
        outcomes = run_seeds(plan, seeds, report)
    notes = list(dict.fromkeys(note for outcome in outcomes for note in outcome.warnings))
    for note in notes:
        warnings.warn(note, stacklevel=3)
    shared = {
        "engine_reason": plan.engine_reason,
        "seconds": round(time.perf_counter() - begun, 4),
        "warnings": notes,
        "tests": plan.test_names,
        "data_sha256": None if own is None else own.digest,
        **({} if own is None else {"task_asymmetry": asymmetry(own.training)}),
    }
    run = gather(experiment, outcomes, plan.engine, shared)
    run.own = own
    return run
