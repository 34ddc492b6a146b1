"""From the outcomes of seeds to a `Run`: seeds side by side, or the pieces of a resumed run one after the other."""

from typing import Any

import numpy as np
import xarray as xr

from iclflow.data.moments import Moments
from iclflow.engines.outcome import Outcome
from iclflow.experiment import Experiment
from iclflow.results.run import CURVES, Run
from iclflow.versions import versions

__all__ = ["finite_or_none", "gather", "joined"]

WORST_FIRST = ("failed", "diverged", "unstable", "max_steps", "ok")
SUMMARY = ("status", "why", "final_loss", "steps_done", "seconds")  # of one seed; whatever else is there is detail
MOST_MOMENTS = 2**29  # bytes: of more seeds than fit in here no moments are kept


def gather(experiment: Experiment, outcomes: list[Outcome], engine: str, shared: dict[str, Any]) -> Run:
    """Line seeds up along a new axis; shorter ones are padded with NaN. One seed has no such axis."""
    single, first = len(outcomes) == 1, outcomes[0]
    seeds = {} if single else {"seed": [o.seed for o in outcomes]}
    axis = tuple(seeds)
    pick = (lambda arrays: arrays[0]) if single else stack_padded
    same_time = all(np.array_equal(o.times, first.times) for o in outcomes)
    time = ("step", first.times) if same_time else (("seed", "step"), stack_padded([o.times for o in outcomes]))
    names = ["loss", *shared["tests"]][: first.losses.shape[1]]
    curves = xr.Dataset(
        {name: ((*axis, "step"), pick([o.losses[:, i] for o in outcomes])) for i, name in enumerate(names)},
        coords={"step": np.arange(max(len(o.losses) for o in outcomes)), "time": time, **seeds},
    )
    axes = experiment.model.axes
    unnamed = lambda name: tuple(f"{name}_{i}" for i in range(np.ndim(first.initial[name])))
    recorded = lambda name: pick([np.stack([snapshot[name] for snapshot in o.snapshots]) for o in outcomes])
    weights = xr.Dataset(
        {name: ((*axis, "record", *axes.get(name, unnamed(name))), recorded(name)) for name in first.initial},
        coords={
            "step": ((*axis, "record"), pick([o.recorded.astype(float) for o in outcomes])),
            "time": ((*axis, "record"), pick([o.times[o.recorded] for o in outcomes])),
            **seeds,
        },
    )
    stacked = lambda arrays: arrays[0] if single else np.stack(arrays)
    initial = {name: stacked([o.initial[name] for o in outcomes]) for name in first.initial}
    state = {str(i): stacked([o.optimizer_state[i] for o in outcomes]) for i in range(len(first.optimizer_state))}
    summary = summarise(experiment, outcomes, engine, shared)
    return Run(experiment, curves, weights, initial, summary, state, gather_moments(outcomes))


def gather_moments(outcomes: list[Outcome]) -> xr.Dataset | None:
    """The label moments of all seeds: once where they share their data."""
    found = [o.moments for o in outcomes if o.moments is not None]
    if not found:
        return None
    if all(moments is found[0] for moments in found):
        return moments_dataset(found[:1]).isel(seed=0)
    if len(found) * found[0].left.nbytes > MOST_MOMENTS:
        return None
    return moments_dataset(found).assign_coords(seed=[o.seed for o in outcomes])


def moments_dataset(found: list[Moments]) -> xr.Dataset:
    dims = {"left": ("feature", "feature_"), "cross": ("output", "feature"), "power": ()}
    return xr.Dataset(
        {name: (("seed", *d), np.stack([np.asarray(getattr(m, name)) for m in found])) for name, d in dims.items()}
    )


def summarise(experiment: Experiment, outcomes: list[Outcome], engine: str, shared: dict[str, Any]) -> dict[str, Any]:
    runs = [
        {
            "status": o.status,
            "why": o.why,
            "final_loss": finite_or_none(o.losses[-1, 0]),
            "steps_done": len(o.losses) - 1,
            "seconds": round(o.seconds, 4),
            **o.detail,
        }
        for o in outcomes
    ]
    return {
        "status": min((r["status"] for r in runs), key=WORST_FIRST.index),
        "final_loss": runs[0]["final_loss"] if len(runs) == 1 else [r["final_loss"] for r in runs],
        "steps_done": max(r["steps_done"] for r in runs),
        "engine": engine,
        "seeds": [o.seed for o in outcomes],
        "config": experiment.flat(),
        "runs": runs,
        "versions": versions(),
        **{name: value for name, value in shared.items() if name != "tests"},
    }


def finite_or_none(value: float) -> float | None:
    """A number that JSON can hold."""
    return float(value) if np.isfinite(value) else None


def stack_padded(arrays: list[np.ndarray]) -> np.ndarray:
    """Stack along a new first axis; shorter arrays are filled up with NaN."""
    longest = max(len(a) for a in arrays)
    return np.stack(
        [np.pad(a, [(0, longest - len(a))] + [(0, 0)] * (a.ndim - 1), constant_values=np.nan) for a in arrays]
    )


def joined(whole: Run, pieces: list[tuple[Run, Run]]) -> Run:
    """Earlier and later parts of every seed as one run; they share the point where one stopped and one began."""
    outcomes = [join(earlier, later, seed) for (earlier, later), seed in zip(pieces, whole.seeds, strict=True)]
    first = outcomes[0]
    if whole.summary["engine"] == "flow":
        settings = {"time": first.times[-1]}
    else:
        settings = {"steps": len(first.losses) - 1, "lr": first.detail["lr"]}
    experiment = whole.experiment.replace(training=whole.training.replace(**settings))
    shared = {name: pieces[0][1].summary[name] for name in ("engine_reason", "warnings", "data_sha256")}
    shared |= {"seconds": sum(o.seconds for o in outcomes), "tests": [n for n in CURVES[1:] if n in whole.curves]}
    run = gather(experiment, outcomes, whole.summary["engine"], shared)
    run.moments, run.own = whole.moments, whole.own
    return run


def join(earlier: Run, later: Run, seed: int) -> Outcome:
    names = [name for name in CURVES if name in earlier.curves]
    losses = [np.stack([run.curves[name].values for name in names], axis=1) for run in (earlier, later)]
    cut = earlier.curves.sizes["step"] - 1
    last = later.summary["runs"][0]
    return Outcome(
        seed=seed,
        losses=np.concatenate([losses[0][:-1], losses[1]]),
        times=np.concatenate([earlier.time.values[:-1], later.time.values]),
        recorded=np.concatenate([earlier.weights["step"].values, cut + later.weights["step"].values[1:]]).astype(int),
        snapshots=[
            {str(name): np.asarray(array[i]) for name, array in run.weights.items()}
            for run, begin in ((earlier, 0), (later, 1))
            for i in range(begin, run.weights.sizes["record"])
        ],
        initial=earlier.initial_weights,
        status=later.status,
        why=last["why"],
        seconds=earlier.summary["runs"][0]["seconds"] + last["seconds"],
        optimizer_state=[later.optimizer_state[str(i)] for i in range(len(later.optimizer_state))],
        detail={name: value for name, value in last.items() if name not in SUMMARY},
    )
