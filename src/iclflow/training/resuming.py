"""Continuing a run from where it stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from iclflow.config.training import GIVEN
from iclflow.errors import BadInput
from iclflow.results.gathering import joined
from iclflow.results.loading import load_run
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
from iclflow.training.start import run_experiment

if TYPE_CHECKING:
    import optax

__all__ = ["resume"]


def resume(
    source: str | Path | Run,
    *,
    steps: int | None = None,
    time: float | None = None,
    data: Any = None,
    progress: bool | None = None,
    optimizer: "optax.GradientTransformation | None" = None,
) -> Run:
    """Continue a run: `steps` more of descent, or `time` more of the flow.

    Descent repeats the arithmetic of one long run.

    Args:
        source: a `Run`, or the directory of a saved one.
        steps: further updates of gradient descent.
        time: further t/tau of the gradient flow.
        data: the sequences that the run was trained on, if they were an array in memory.
        progress: show a bar; by default on a terminal and in a notebook.
        optimizer: the optax optimiser that the run was trained with, if it was one of your own.

    Returns:
        The whole run, its earlier part included. Nothing is saved.

    Raises:
        BadInput: if the run has diverged or failed, or the data are not those it was trained on.
    """
    run = source if isinstance(source, Run) else load_run(source)
    by_flow = run.by_flow
    more, other = (time, steps) if by_flow else (steps, time)
    name = "time" if by_flow else "steps"
    if more is None or other is not None:
        way = "flow" if by_flow else "descent"
        raise BadInput(f"{name}: says how much longer a run by {way} continues; give it alone")
    if run.status in ("diverged", "failed"):
        raise BadInput(f"resume: a run that is {run.status} cannot be continued")
    if run.training.optimizer.startswith(GIVEN) and optimizer is None:
        raise BadInput(f"optimizer: give the object again that this run was trained with, {run.training.optimizer!r}")
    own = same_data(run, data)
    pieces = []
    for seed in run.seeds:
        one = run.select(seed)
        fixed = {} if by_flow else {"engine": run.summary["engine"]}
        if not by_flow and optimizer is None:
            fixed["lr"] = one.summary["runs"][0]["lr"]
        training = one.training.replace(**{name: more}, **fixed)
        experiment = one.experiment.replace(training=training)
        pieces.append((one, run_experiment(experiment, own, None, progress, earlier=one, optimizer=optimizer)))
    return joined(run, pieces)
