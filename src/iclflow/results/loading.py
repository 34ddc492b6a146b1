"""Reading a run back from its directory without loss. Opening a run never imports the user's code."""

from pathlib import Path
from typing import Any

import numpy as np

from iclflow.engines.outcome import finite_or_none
from iclflow.errors import DamagedStore, IclflowError
from iclflow.experiment import Experiment
from iclflow.models import Model
from iclflow.results.earlier import earlier_arrays, with_its_seed
from iclflow.results.labelled import labelled_tensors
from iclflow.results.run import Run
from iclflow.results.tensors import read_metadata, read_tensors
from iclflow.results.writing import SCHEMA, SUMMARY, is_run, read_summary, refuse_no_run
from iclflow.system.digest import file_digest

__all__ = ["is_run", "load_run"]

MOST_OF_A_RUN = 2**34  # bytes
NUMBER = int | float
KINDS: dict[str, Any] = {
    "status": str, "engine": str, "seconds": NUMBER, "warnings": list, "seeds": list, "runs": list, "config": dict,
}  # fmt: skip
KINDS_OF_ONE: dict[str, Any] = {"status": str, "why": str, "seconds": NUMBER, "steps_done": int}  # of each seed


def load_run(path: str | Path, model: type[Model] | None = None) -> Run:
    """Read a run back; a file that is missing or differs from what was written raises an error.

    Args:
        path: the directory of the run.
        model: the class of your own model, if its module has not been imported; without it curves and weights can
            still be read.

    Returns:
        The run as it was saved.

    Raises:
        BadInput: the directory holds no run.
        DamagedStore: a file is missing or damaged, or was written in another schema.
    """
    path = Path(path)
    refuse_no_run(path)
    before = written(path)
    try:
        return opened(path, model)
    except IclflowError:
        if is_run(path) and written(path) == before:
            raise
        return load_run(path, model)  # it was replaced meanwhile


def written(path: Path) -> tuple[int, int, int]:
    """What differs between a summary and the one that replaces it, which may get the same inode."""
    found = (path / SUMMARY).stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def opened(path: Path, model: type[Model] | None) -> Run:
    """The run in a directory, if nothing is written there meanwhile."""
    try:
        summary = read_summary(path / SUMMARY)
        schema, files = summary.pop("schema"), summary.pop("files")
        summary.pop("replaced", None)
        file_of = lambda kind: next(path / name for name in files if name.startswith(kind))
        for name, digest in files.items():
            if not name.endswith(".pdf") and (not (path / name).is_file() or file_digest(path / name) != digest):
                raise DamagedStore(f"{path}/{name}: is missing or damaged")
        initial = starting_with("weights.", read_tensors(str(file_of("weights"))))
        if schema == SCHEMA:
            tensors, labels = read_tensors(str(file_of("arrays")), MOST_OF_A_RUN), read_metadata(file_of("arrays"))
            groups, state = labelled_tensors(tensors, labels), starting_with("optimizer/", tensors)
        else:
            (groups, state), summary = earlier_arrays(path), with_its_seed(summary)
        experiment = Experiment.from_file(summary["config"], model)
        curves, weights, moments = groups["curves"], groups["weights"], groups.get("moments")
        run = Run(experiment, curves, weights, initial, summary, state, moments)
        wrong = disagreement(run)
    except (KeyError, StopIteration, AttributeError, TypeError, IndexError, OSError) as error:
        raise DamagedStore(f"{path}: is damaged ({type(error).__name__})") from None
    if wrong is not None:
        raise DamagedStore(f"{path}/{SUMMARY}: {wrong}")
    return run


def disagreement(run: Run) -> str | None:
    """What does not belong together in a run: its seeds, the lengths of its curves, the shapes of its weights."""
    summary, seeds, curves, weights = run.summary, run.seeds, run.arrays("curves"), run.arrays("weights")
    for part, kinds in ((summary, KINDS), *((one, KINDS_OF_ONE) for one in summary["runs"])):
        for name, kind in kinds.items():
            if not isinstance(part[name], kind):
                return f"{name} {str(part[name])[:60]!r} is not of its type"
    several = (len(seeds),) if len(seeds) > 1 else ()
    if seeds != [run.training.seed + i for i in range(run.training.seeds)] or len(summary["runs"]) != len(seeds):
        return f"seeds {seeds} are not those of the settings"
    if several and curves["seed"].tolist() != seeds:
        return f"seeds {seeds} are not those of the curves"
    if curves["loss"].shape != (*several, summary["steps_done"] + 1):
        return f"{summary['steps_done']} steps do not belong to curves of shape {curves['loss'].shape}"
    ends = [finite_or_none(end) for end in np.atleast_2d(curves["loss"])[:, -1]]
    if summary["final_loss"] != (ends if several else ends[0]):
        return f"final_loss {summary['final_loss']} is not that of the curves"
    shapes = {name: array.shape for name, array in run.initial_weights.items()}
    records = {name: several + array.shape[len(several) + 1 :] for name, array in weights.values().items()}
    built_in = ":" not in summary["config"]["model"]  # a class of the user's own may have changed since
    known = {name: (*several, *shape) for name, shape in run.model.shapes(run.task).items()} if built_in else shapes
    if not shapes == records == known:
        return f"weights of shapes {shapes} are not those of the model"
    return None


def starting_with(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
