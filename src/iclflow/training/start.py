"""From what the user gave to a finished run."""

import inspect
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import optax

from iclflow.config import Task, Training
from iclflow.config.training import GIVEN
from iclflow.data.own import OwnData
from iclflow.engines.outcome import Outcome
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.models import Model, Weights
from iclflow.models.parts import put_back
from iclflow.results.gathering import gather
from iclflow.results.run import Run
from iclflow.results.writing import refuse_existing
from iclflow.system.cores import threads
from iclflow.system.precision import double_precision
from iclflow.system.progress import Report, progress_bar
from iclflow.training import by_descent
from iclflow.training.inputs import read_inputs
from iclflow.training.plan import Plan

__all__ = ["run_experiment", "train"]


def showing_settings(verb: Callable[..., Run]) -> Callable[..., Run]:
    """Add every setting of `Training` to the signature and the help of a verb that takes them as keywords."""
    fields, signature = Training.model_fields, inspect.signature(verb)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(n, keyword, default=f.default, annotation=f.annotation) for n, f in fields.items()]
    verb.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]  # read by `inspect`
    lines = "".join(f"        {name}: {field.description}.\n" for name, field in fields.items())
    lines = lines.replace("adam or muon.", "adam, muon, or any `optax.GradientTransformation`.")
    head, mark, tail = (verb.__doc__ or "").partition("\n    Returns:")
    verb.__doc__ = head + lines + mark + tail
    return verb


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
        weights: initial weights, named arrays or `FILE[:PREFIX]`.
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
    settings, optimizer = named_optimizer(settings)
    chosen = Training(**settings) if training is None else training.replace(**settings)
    inputs = read_inputs(task, model, chosen, data, weights)
    if out is not None:
        refuse_existing(Path(out), overwrite)
    run = run_experiment(*inputs, progress=progress, optimizer=optimizer)
    if out is not None:
        run.save(out, overwrite)
    return run


def named_optimizer(settings: dict[str, Any]) -> tuple[dict[str, Any], optax.GradientTransformation | None]:
    """The settings with a name in place of an optax optimiser, and the optimiser itself."""
    given = settings.get("optimizer")
    if given is None or isinstance(given, str):
        return settings, None
    if not (callable(getattr(given, "init", None)) and callable(getattr(given, "update", None))):
        raise BadInput(f"optimizer: {given!r} must be a name or an optax.GradientTransformation")
    name = getattr(given.update, "__qualname__", "optimiser").partition(".")[0]
    return {**settings, "optimizer": f"{GIVEN}{name}"}, given


def run_experiment(
    experiment: Experiment,
    own: OwnData | None = None,
    given: Weights | None = None,
    progress: bool | Report | None = None,
    earlier: Run | None = None,
    roomy: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Run:
    """All seeds of an experiment; what they share is computed once.

    Args:
        progress: show a bar, or tell a function of your own, which may raise to stop the run.
        roomy: use a compiled program that many settings share, for work where compiling is what takes long.
    """
    begun = time.perf_counter()
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
    }
    run = gather(experiment, outcomes, plan.engine, shared)
    run.own = own
    return run


def run_seeds(plan: Plan, seeds: list[int], report: Report) -> list[Outcome]:
    """Seed by seed through one compiled program, on all cores: bit for bit the numbers of single runs."""
    shares = dict.fromkeys(seeds, 0.0)

    def run_one(seed: int) -> Outcome:
        def tell(share: float, words: str) -> None:
            shares[seed] = share
            report(sum(shares.values()) / len(seeds), words)

        return run_seed(plan, seed, tell)

    first = run_one(seeds[0])  # compiles for all
    with ThreadPoolExecutor(threads()) as pool:
        return [first, *pool.map(run_one, seeds[1:])]


def walker(engine: str) -> Callable[..., Outcome]:
    """The way down; the flow brings diffrax along, which descent can do without."""
    if engine != "flow":
        return by_descent.walk
    from iclflow.training import by_flow

    return by_flow.walk


def run_seed(plan: Plan, seed: int, report: Report) -> Outcome:
    """One seed from its initial weights to its end."""
    begun = time.perf_counter()
    with double_precision():
        initial = plan.initial(seed)
        now = initial if plan.earlier is None else plan.earlier.final_weights
        blocks = plan.blocks(initial)
        loss = plan.loss(seed, now, blocks, report)
        outcome = walker(plan.engine)(plan, seed, loss, plan.trained_part(now, blocks), report)
        return replace(
            outcome,
            seed=seed,
            initial=initial,
            snapshots=[put_back(plan.model, now, trained, plan.task, blocks) for trained in outcome.snapshots],
            seconds=time.perf_counter() - begun,
            moments=plan.label_moments(seed, loss),
        )
