"""(i) The flow over long plateaus: whole warm `icl.train` until the loss has settled, and solvers to the same time.

The same initial weights, end and tolerance (1e-9) for all; LSODA's compilation is not counted, nor is its start. The
explicit steps of 0.1.0 grow tenfold with every decade of the initial weights and are measured while that is bearable.
For ranks, blocks and samples the flow alone is held against them, without what comes before it in a training; they
compute no losses on the way, which the flow does at every time that it keeps.

Why the time still grows a little: on a plateau a head of size u grows as du/dt = u^2, so that at the time s before its
drop nothing changes by more than a share of s. Steps are a fixed share of s, and their number is the logarithm of the
plateau's length. While the small heads are tiny these are explicit steps of them alone, five times as dear as others;
what has been learned is brought to rest before that by some ten implicit ones.
"""

import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

import iclflow as icl
from benchmarks.baseline_flow import by_explicit_steps, by_lsoda, equation
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call
from iclflow.comparison.comparing import crossing
from iclflow.training import by_flow

__all__ = ["long_plateaus", "many_directions"]

TOLERANCE = 1e-9
INITS = (1e-2, 1e-3, 1e-4, 1e-6)
OLD = {"linear": (1e-2, 1e-3), "power:2": (1e-2,)}  # where the explicit steps of 0.1.0 take less than a minute


def long_plateaus(quick: bool) -> list[Row]:
    dim, inits = (4, (1e-2, 1e-3)) if quick else (8, INITS)
    rows: list[Row] = []
    for spectrum in ("linear", "power:2"):
        rows += list(one_spectrum(spectrum, dim, inits))
    rows += list(tolerances(dim, 1e-4))
    rows += list(others(quick))
    return rows


def train(task: icl.Task, model: icl.Model, **settings: Any) -> Any:
    return icl.train(task, model, progress=False, **settings)


def warm(task: icl.Task, model: icl.Model, **settings: Any) -> tuple[float, Any]:
    """Seconds of the better of two calls after a first one, and the run."""
    run = train(task, model, **settings)
    return min(first_call(lambda: train(task, model, **settings)) for _ in range(2)), run


def alone(task: icl.Task, model: icl.Model, **settings: Any) -> tuple[Any, float, float]:
    """A run, the seconds that the flow itself took, and those of the whole training: data, moments, lowest loss."""
    took, solver = [], by_flow.flow

    def timed(*given: Any, **more: Any) -> Any:
        begun = time.perf_counter()
        outcome = solver(*given, **more)
        took.append(time.perf_counter() - begun)
        return outcome

    with mock.patch.object(by_flow, "flow", timed):
        begun = time.perf_counter()
        run = train(task, model, **settings)
        whole = time.perf_counter() - begun
    return run, sum(took), whole


def steps(run: Any) -> int:
    return run.summary["runs"][0]["solver_steps"]


def drops(run: Any) -> np.ndarray:
    levels = icl.theory.plateau_losses(run.task)
    found = [crossing(run.time.values, run.loss.values, level) for level in (levels[:-1] + levels[1:]) / 2]
    return np.array([np.nan if time is None else time for time in found])


def one_spectrum(spectrum: str, dim: int, inits: tuple[float, ...]) -> Iterator[Row]:
    task, model = icl.Task(dim=dim, spectrum=spectrum), icl.Separate(heads=dim + 1)
    took = []
    for init in inits:
        where = f"D {dim}, H {dim + 1}, {spectrum}, init {init:g}"
        say(where)
        new, run = warm(task, model, init=init)
        took.append(new)
        end, (field, y) = float(run.time[-1]), equation(task, model, init=init)
        yield Row(f"{where}: flow", f"{seconds(new)}, {steps(run)} steps", new)
        by_lsoda(field, y, 1.0, TOLERANCE, init)
        lsoda = first_call(lambda f=field, y=y, e=end, i=init: by_lsoda(f, y, e, TOLERANCE, i))
        yield Row(f"{where}: LSODA / flow", f"{lsoda / new:.2f}", lsoda / new, "> 1", lsoda > new)
        if init in OLD[spectrum]:
            by_explicit_steps(field, y, 1.0, TOLERANCE)
            old = first_call(lambda f=field, y=y, e=end: by_explicit_steps(f, y, e, TOLERANCE))
            yield Row(f"{where}: explicit steps of 0.1.0 / flow", f"{old / new:.2f}", old / new)
    ratio = took[-1] / took[0]
    yield Row(
        f"{spectrum}: init {inits[-1]:g} / init {inits[0]:g}, flow", f"{ratio:.2f}", ratio, "< 2", bool(ratio < 2)
    )


def tolerances(dim: int, small: float) -> Iterator[Row]:
    """Drop times at tolerances 1e-9 and 1e-11, and the conservation laws."""
    task, model = icl.Task(dim=dim), icl.Separate(heads=dim + 1)
    for init in (1e-2, small):
        one, two = (train(task, model, init=init, tolerance=t) for t in (1e-9, 1e-11))
        worst = float(np.abs(drops(one) / drops(two) - 1).max())
        yield Row(
            f"drop times at tolerance 1e-9 and 1e-11, init {init:g}", f"{worst:.1e}", worst, "< 1e-6", worst < 1e-6
        )
        drift = one.summary["runs"][0]["conservation_drift"]
        yield Row(f"drift of the conservation laws, init {init:g}", f"{drift:.1e}", drift, "< 1e-8", drift < 1e-8)


LAST = {8: 1.2e6, 32: 2.6e8}  # t/tau by which the last drop is over; "settled" would stop inside a drop of 1e-4


def many_directions(quick: bool) -> list[Row]:
    """All drops of D directions, once, compilation included: an implicit step solves for all heads together."""
    dim = 8 if quick else 32
    begun = time.perf_counter()
    run = train(icl.Task(dim=dim), icl.Separate(heads=dim + 1), init=1e-3, time=LAST[dim])
    took, found = time.perf_counter() - begun, int(np.isfinite(drops(run)).sum())
    name = f"D {dim}, H {dim + 1}, init 1e-3"
    return [
        Row(f"{name}: flow ({run.status})", f"{seconds(took)}, {steps(run)} steps", took),
        Row(f"{name}: drops", f"{found}", found, f"{dim}", found == dim),
    ]


def others(quick: bool) -> Iterator[Row]:
    """More directions, full rank, and all blocks with and without in-weight learning: are all drops there?"""
    mixed, blocks = {"init": 1e-2, "init_law": "random"}, {"init": 1e-2, "init_law": "random", "samples": 5000}
    cases = {
        "D 4, rank 4, init 0.01": (icl.Task(dim=4), icl.Separate(heads=5, rank=4), {"init": 1e-2}, True),
        "D 4, p 0.5, all blocks": (icl.Task(dim=4, icl_fraction=0.5), icl.Merged(heads=8), mixed, True),
        "D 4, 5000 sequences, all blocks": (icl.Task(dim=4), icl.Separate(heads=5), {**blocks, "time": 2000.0}, True),
    }
    if not quick:
        cases |= {
            "D 16, H 17, init 1e-3": (icl.Task(dim=16), icl.Separate(heads=17), {"init": 1e-3}, True),
            "D 8, H 9, rank 8, init 0.01": (icl.Task(dim=8), icl.Separate(heads=9, rank=8), {"init": 1e-2}, True),
        }
    for name, (task, model, settings, with_old) in cases.items():
        say(name)
        train(task, model, **settings)
        run, new, whole = alone(task, model, **settings)
        yield Row(f"{name}: flow ({run.status})", f"{seconds(new)} of {seconds(whole)}, {steps(run)} steps", new)
        if task.icl_fraction == 1 and "samples" not in settings:
            found = int(np.isfinite(drops(run)).sum())
            yield Row(f"{name}: drops", f"{found}", found, f"{task.dim}", found == task.dim)
        if with_old:
            field, y = equation(task, model, **settings)
            by_explicit_steps(field, y, 1.0, TOLERANCE)
            old = first_call(lambda f=field, y=y, e=float(run.time[-1]): by_explicit_steps(f, y, e, TOLERANCE))
            yield Row(f"{name}: explicit steps of 0.1.0 / flow", f"{old / new:.2f}", old / new)
