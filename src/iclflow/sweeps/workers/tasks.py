"""What a worker does: it computes one run and commits it. Two workers may do the same run at once without harm.

A worker uses a single thread, so that numbers do not depend on the number of cores. A run that raises an error is
committed as failed, with the reason; a run whose worker died `MOST_TRIES` times in a session is not tried again.
"""

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, DamagedStore, NoRoom
from iclflow.experiment import Experiment
from iclflow.models.base import import_model
from iclflow.sweeps.store.protocol import WORK, Store, open_store
from iclflow.system.atomic import NO_ROOM
from iclflow.system.cores import one_blas_thread

__all__ = ["MOST_TRIES", "code_of", "do_run", "handshake", "lost_run", "make_moments", "single_thread"]

MOST_TRIES = 3
MOST_SHAPES = 32  # approximate number of compiled programs in memory
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class OtherData(BadInput):
    """The data file is missing, or has changed since the sweep began."""


def single_thread(environment: dict[str, str]) -> dict[str, str]:
    """The environment variables that a worker needs before it imports JAX."""
    flags = environment.get("XLA_FLAGS", "")
    platforms = environment.get("JAX_PLATFORMS", "cpu")
    return {**THREADS, "JAX_PLATFORMS": platforms, "XLA_FLAGS": flags if XLA in flags else f"{flags} {XLA}".strip()}


def use_one_thread() -> None:
    """The same for JAX in this process, which may be a worker of the user's that began without these variables."""
    os.environ.update({k: v for k, v in single_thread(dict(os.environ)).items() if k not in THREADS})


Code = tuple[str, tuple[str, ...]]  # a directory, and the models `module:Class` to import from there


def do_run(
    path: str, digest: str, run: int, session: str, code: Code = ("", ()), ready: list[Any] | None = None
) -> dict[str, Any]:
    """Compute and commit run number `run`, and return how it ended; a full disk is returned as `no_room`."""
    begun = time.perf_counter()
    try:
        import_code(code)
        store = opened(path, digest)
        record, wrong = store.damage(run)
        if record is not None and wrong is None:
            return outcome_line(run, record)
        tries = count_attempt(store, session, run)
        if tries > MOST_TRIES:
            why = f"its worker died {MOST_TRIES} times"
            return outcome_line(run, store.commit_failure(run, why, current_versions(), retry=True))
        try:
            rows, record = compute(store.grid.experiment(run), store, ready)
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            seconds = round(time.perf_counter() - begun, 4)
            record = store.commit_failure(run, why[:300], current_versions(), seconds, retry=is_transient(error))
            return outcome_line(run, record)
        store.commit(run, rows, record)
    except OSError as error:
        if error.errno in NO_ROOM:
            return {"run": run, "no_room": error.errno}
        raise
    return outcome_line(run, record)


def import_code(code: Code) -> None:
    """Import the users' own models in the process that computes."""
    directory, models = code
    for name in models:
        import_model(name, directory)


def is_transient(error: Exception) -> bool:
    """Whether an error is due to the machine or the data file, so that the next session should try again."""
    return isinstance(error, OtherData | NoRoom | MemoryError | OSError) or "RESOURCE_EXHAUSTED" in str(error)


def outcome_line(run: int, record: dict[str, Any]) -> dict[str, Any]:
    """The part of a run's record that the session needs."""
    return {"run": run, "status": record["status"], "why": record["why"], "seconds": record["seconds"]}


def lost_run(run: int, error: BaseException) -> dict[str, Any]:
    """How a run ended that its workers could not even commit as failed."""
    why = " ".join(str(error).split()) or type(error).__name__
    return {"run": run, "status": "lost", "why": why[:300], "seconds": 0.0}


@lru_cache(maxsize=4)
def opened(path: str, digest: str) -> Store:
    """The store, which must still be that of the same sweep."""
    store = open_store(Path(path))
    if store.digest != digest:
        raise DamagedStore(f"{path}: has become another sweep")
    return store


def count_attempt(store: Store, session: str, run: int) -> int:
    """Count a try of a run, in the size of a file that outlives the worker, and return the number of tries."""
    directory = store.path / WORK / session
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / str(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, b".")
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def code_of(store: Store) -> Code:
    """What a worker has to import to compute the runs of a store."""
    return str(Path.cwd()), store.grid.own_models


def make_moments(experiment: Experiment) -> list[Any]:
    """The moments for all runs that share them."""
    use_one_thread()
    from iclflow.sweeps.workers.sharing import moments_of

    return moments_of(experiment)


SHAPES: set[Any] = set()


def forget_old_programs(experiment: Experiment) -> None:
    """Clear the compiled programs of JAX, which keeps one per shape, before a sweep over sizes fills the memory."""
    task, model, training = experiment.task, experiment.model, experiment.training
    SHAPES.add((model.compiled_for(task), model, training.optimizer, training.engine, training.batch))
    if len(SHAPES) > MOST_SHAPES:
        import jax

        jax.clear_caches()
        SHAPES.clear()


def handshake(path: str, digest: str, code: Code = ("", ())) -> dict[str, str]:
    """The versions on a worker of the user's cluster, after checking that it can open the store."""
    import_code(code)
    opened(path, digest)
    return current_versions()


@lru_cache(maxsize=1)
def current_versions() -> dict[str, str]:
    from iclflow.versions import versions

    return versions()


def few_records(experiment: Experiment) -> Experiment:
    """The experiment with fewer recorded weights: a sweep keeps none, and a given number of steps needs none."""
    training = experiment.training
    return experiment if training.steps is None else experiment.replace(training=training.replace(records=2))


def compute(
    experiment: Experiment, store: Store, ready: list[Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows and the record of one run, with exactly the arithmetic of `train`."""
    use_one_thread()
    from iclflow.sweeps.quantities import curve_rows, summary_row
    from iclflow.sweeps.workers.sharing import plan_of
    from iclflow.system.progress import silent
    from iclflow.training.seeds import run_seed

    begun = time.perf_counter()
    forget_old_programs(experiment)
    try:
        grid, plan = store.grid, plan_of(few_records(experiment), ready)
    except BadInput as error:
        raise error if experiment.data is None else OtherData(str(error)) from None
    if plan.own is not None and plan.own.digest != store.about["grid"]["data_sha256"].get(experiment.data):
        raise OtherData(f"data: {experiment.data!r} has changed since the sweep began")
    with one_blas_thread():
        outcome = run_seed(plan, experiment.training.seed, silent)
        rows = {"summary": summary_row(experiment, outcome, grid.drop_slots)}
        if not grid.summary:
            rows["curves"] = curve_rows(outcome, plan.test_names, grid.curve_length, grid.has_tests)
    record = {
        "status": outcome.status,
        "why": outcome.why,
        "seconds": round(time.perf_counter() - begun, 4),
        "engine": plan.engine,
        "warnings": list(outcome.warnings),
        "data_sha256": None if plan.own is None else plan.own.digest,
        "config": experiment.flat(),
        "versions": current_versions(),
    }
    return rows, record
