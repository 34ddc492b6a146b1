"""From what the user gave to a finished run."""

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from iclflow.config import Experiment, Model, Separate, Task, Training
from iclflow.cores import threads
from iclflow.data.own import OwnData, read_own_data
from iclflow.errors import BadInput
from iclflow.models import Weights, check_weights, put_back
from iclflow.out_directory import refuse_existing
from iclflow.progress import Report, progress_bar
from iclflow.run import Run, SeedResult, gather
from iclflow.training import by_descent
from iclflow.training.plan import Plan, Walked
from iclflow.weight_files import infer_model, read_weights

__all__ = ["run_experiment", "train"]


def train(
    task: Task | None = None,
    model: Model | None = None,
    *,
    data: Any = None,
    weights: Any = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train `model` on `task`.

    With neither `samples` nor `lr` and `steps`: gradient flow on the population until the loss has settled. `samples`
    makes a finite sample, `lr` and `steps` make it gradient descent; `Training` lists every setting.

    Args:
        data: your own sequences, an array (P, N+1, D+O) or an `.npz` file; sizes come from it.
        weights: initial weights, a dictionary or `FILE[:PREFIX]`.
        out: a directory to save the run in; an existing one is kept unless `overwrite`.
        progress: show a bar; by default only on a terminal.

    >>> import iclflow as icl
    >>> run = icl.train(icl.Task(dim=2), icl.Merged(heads=2), samples=100, lr=0.1, steps=20)
    >>> run.loss.sizes["step"], run.status
    (21, 'ok')
    """
    own = None
    if data is not None:
        own, task = read_own_data(data, task)
    task, start = task or Task(), None
    if weights is not None:
        start = read_weights(weights)
        model = infer_model(start, model)
    source = None if data is None else str(data) if isinstance(data, str | Path) else "array"
    experiment = Experiment(task=task, model=model or Separate(), training=Training(**settings), data=source)
    if start is not None:
        start = check_weights(experiment.model, task, start)
        refuse_idle_seeds(experiment)
    if out is not None:
        refuse_existing(Path(out), overwrite)
    run = run_experiment(experiment, own, start, progress)
    if out is not None:
        run.save(out, overwrite)
    return run


def refuse_idle_seeds(experiment: Experiment) -> None:
    seeds, fixed = experiment.training.seeds, experiment.training.data_seed is not None
    if seeds > 1 and (experiment.data is not None or experiment.population or fixed):
        raise BadInput(f"seeds: {seeds} must be 1 with given weights and fixed data, which leave nothing to draw")


def run_experiment(
    experiment: Experiment,
    own: OwnData | None = None,
    given: Weights | None = None,
    progress: bool | Report | None = None,
    earlier: Run | None = None,
    roomy: bool = False,
) -> Run:
    """All seeds of an experiment; what they share is computed once.

    Args:
        progress: show a bar, or tell a function of your own, which may raise to stop the run.
        roomy: use a compiled program that many settings share, for work where compiling is what takes long.
    """
    begun = time.perf_counter()
    plan = Plan(experiment, own, given, earlier, roomy)
    seeds = [experiment.training.seed + i for i in range(experiment.training.seeds)]
    with progress_bar(f"{experiment.model.kind}, {plan.engine}", progress) as report:
        results = run_seeds(plan, seeds, report)
    notes = list(dict.fromkeys(plan.warnings))
    for note in notes:
        warnings.warn(note, stacklevel=3)
    shared = {
        "engine_reason": plan.reason,
        "seconds": round(time.perf_counter() - begun, 4),
        "warnings": notes,
        "tests": plan.test_names,
        "data_sha256": None if own is None else own.digest,
    }
    return gather(experiment, results, plan.engine, shared)


def run_seeds(plan: Plan, seeds: list[int], report: Report) -> list[SeedResult]:
    """Seed by seed through one compiled program, on all cores: bit for bit the numbers of single runs."""
    shares = dict.fromkeys(seeds, 0.0)

    def run_one(seed: int) -> SeedResult:
        def tell(share: float, words: str) -> None:
            shares[seed] = share
            report(sum(shares.values()) / len(seeds), words)

        return run_seed(plan, seed, tell)

    first = run_one(seeds[0])  # compiles for all
    with ThreadPoolExecutor(threads()) as pool:
        return [first, *pool.map(run_one, seeds[1:])]


def walker(engine: str) -> Callable[..., Walked]:
    """The way down; the flow brings diffrax along, which descent can do without."""
    if engine != "flow":
        return by_descent.walk
    from iclflow.training import by_flow

    return by_flow.walk


def run_seed(plan: Plan, seed: int, report: Report) -> SeedResult:
    begun = time.perf_counter()
    initial = plan.initial(seed)
    now = initial if plan.earlier is None else plan.earlier.final_weights
    blocks = plan.blocks(initial)
    loss = plan.loss(seed, now, blocks, report)
    walked = walker(plan.engine)(plan, seed, loss, plan.trained_part(now, blocks), report)
    return SeedResult(
        seed=seed,
        losses=walked.losses,
        times=walked.times,
        recorded=walked.recorded,
        snapshots=[put_back(plan.model, now, part, plan.task.dim, blocks) for part in walked.parts],
        initial=initial,
        status=walked.verdict.status,
        why=walked.verdict.why,
        seconds=time.perf_counter() - begun,
        optimizer_state=walked.optimizer_state,
        detail=walked.detail,
    )
