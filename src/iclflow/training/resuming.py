"""Going on from where a run stopped."""

from pathlib import Path
from typing import Any

from iclflow.config import Experiment, Task
from iclflow.data.own import OwnData, read_own_data
from iclflow.errors import BadInput
from iclflow.run import Run, joined
from iclflow.run_files import load_run
from iclflow.training.start import run_experiment

__all__ = ["resume"]


def resume(
    source: str | Path | Run,
    *,
    steps: int | None = None,
    time: float | None = None,
    data: Any = None,
    progress: bool | None = None,
) -> Run:
    """Go on with a run: `steps` more of descent, or `time` more of the flow.

    Descent repeats the arithmetic of one long run. The run comes back whole, earlier part included; nothing is saved.
    """
    run = source if isinstance(source, Run) else load_run(source)
    by_flow = run.summary["engine"] == "flow"
    more, other = (time, steps) if by_flow else (steps, time)
    name = "time" if by_flow else "steps"
    if more is None or other is not None:
        raise BadInput(f"{name}: says how much further a run by {'flow' if by_flow else 'descent'} goes; give it alone")
    if run.status in ("diverged", "failed"):
        raise BadInput(f"resume: a run that is {run.status} cannot go on")
    own = same_data(run, data)
    pieces = []
    for seed in run.seeds:
        one = run.select(seed)
        fixed = {} if by_flow else {"lr": one.summary["runs"][0]["lr"], "engine": run.summary["engine"]}
        training = one.training.replace(**{name: more}, **fixed)
        experiment = Experiment(task=one.task, model=one.model, training=training, data=one.experiment.data)
        pieces.append((one, run_experiment(experiment, own, None, progress, earlier=one)))
    return joined(run, pieces)


def same_data(run: Run, given: Any) -> OwnData | None:
    """The user's own sequences again, by their digest."""
    if run.experiment.data is None:
        return None
    source = run.experiment.data if given is None else given
    if isinstance(source, str) and source == "array":
        raise BadInput("data: this run was trained on an array in memory; give the same array again")
    own = read_own_data(source, Task(out_dim=run.task.out_dim))[0]
    if own.digest != run.summary["data_sha256"]:
        raise BadInput("data: is not what this run was trained on")
    return own
