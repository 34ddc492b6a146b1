"""Continuing a run from where it stopped."""

from pathlib import Path
from typing import Any

from iclflow.errors import BadInput
from iclflow.results.gathering import joined
from iclflow.results.loading import load_run
from iclflow.results.own_data import same_data
from iclflow.results.run import Run
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
        experiment = one.experiment.replace(training=training)
        pieces.append((one, run_experiment(experiment, own, None, progress, earlier=one)))
    return joined(run, pieces)
