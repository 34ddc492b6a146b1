"""From the outcomes of seeds to a `Run`: seeds side by side, or the pieces of a resumed run one after the other."""

from typing import Any

import numpy as np

from iclflow.config.training import GIVEN
from iclflow.data.moments import Moments
from iclflow.engines.choose import choose
from iclflow.engines.outcome import Outcome, finite_or_none
from iclflow.experiment import Experiment
from iclflow.results.labelled import Labelled, Variable, last_steps, stack_held
from iclflow.results.run import CURVES, Run
from iclflow.versions import versions

__all__ = ["gather", "joined"]

WORST_FIRST = ("failed", "diverged", "unstable", "max_steps", "ok")
SUMMARY = ("status", "why", "final_loss", "steps_done", "seconds")  # of one seed; all other entries are its detail
LOSS = {
    "loss": {"long_name": "training loss", "units": "mean squared error per label"},
    "loss_icl": {"long_name": "test loss on new task vectors", "units": "mean squared error per label"},
    "loss_iwl": {"long_name": "test loss on the shared task vectors", "units": "mean squared error per label"},
}
MOST_MOMENTS = 2**29  # bytes; no moments are kept if those of all seeds take more


def gather(experiment: Experiment, outcomes: list[Outcome], engine: str, shared: dict[str, Any]) -> Run:
    """All seeds along a new axis `seed`, each with its last loss from its end on; a single seed has no such axis."""
    single, first = len(outcomes) == 1, outcomes[0]
    seeds = {} if single else {"seed": Variable(("seed",), np.array([o.seed for o in outcomes]), {})}
    axis = tuple(seeds)
    ends = {} if single else {"last_step": last_steps([len(o.losses) for o in outcomes])}
    pick = (lambda arrays: arrays[0]) if single else stack_held
    same_time = all(np.array_equal(o.times, first.times) for o in outcomes)
    flows = choose(experiment).flows
    clocked = flows or experiment.training.optimizer in ("sgd", "momentum")
    about = (
        {"long_name": "time t/tau", "units": "tau"} if clocked else {"long_name": "learning rate x step", "units": "1"}
    )
    steps = {"long_name": "saved time" if flows else "step", "units": "1"}
    times = first.times if same_time else stack_held([o.times for o in outcomes])
    names = ["loss", *shared["tests"]][: first.losses.shape[1]]
    curves = Labelled(
        {
            name: Variable((*axis, "step"), pick([o.losses[:, i] for o in outcomes]), LOSS.get(name, {}))
            for i, name in enumerate(names)
        }
        | {
            "step": Variable(("step",), np.arange(max(len(o.losses) for o in outcomes)), steps),
            "time": Variable(("step",) if same_time else ("seed", "step"), times, about),
            **seeds,
            **ends,
        },
    )
    axes = experiment.model.axis_names()
    unnamed = lambda name: tuple(f"{name}_{i}" for i in range(np.ndim(first.initial[name])))
    recorded = lambda name: pick([np.stack([snapshot[name] for snapshot in o.snapshots]) for o in outcomes])
    dims = lambda name: (*axis, "record", *axes.get(name, unnamed(name)))
    weights = Labelled(
        {name: Variable(dims(name), recorded(name), {"long_name": f"weights {name}"}) for name in first.initial}
        | {
            "step": Variable((*axis, "record"), pick([o.recorded.astype(float) for o in outcomes]), steps),
            "time": Variable((*axis, "record"), pick([o.times[o.recorded] for o in outcomes]), about),
            **seeds,
        },
    )
    stacked = lambda arrays: arrays[0] if single else np.stack(arrays)
    initial = {name: stacked([o.initial[name] for o in outcomes]) for name in first.initial}
    state = {str(i): stacked([o.optimizer_state[i] for o in outcomes]) for i in range(len(first.optimizer_state))}
    summary = summarise(experiment, outcomes, engine, shared)
    return Run(experiment, curves, weights, initial, summary, state, gather_moments(outcomes))


def gather_moments(outcomes: list[Outcome]) -> Labelled | None:
    """The label moments of all seeds, stored once if the seeds share their data."""
    kept = [o.moments for o in outcomes if o.moments is not None]
    if not kept:
        return None
    if all(moments is kept[0] for moments in kept):
        return moments_of(kept[:1]).pick("seed", 0)
    if len(kept) * kept[0].left.nbytes > MOST_MOMENTS:
        return None
    seeds = Variable(("seed",), np.array([o.seed for o in outcomes]), {})
    return Labelled({**moments_of(kept).variables, "seed": seeds})


def moments_of(moments: list[Moments]) -> Labelled:
    """Dense moments along a new axis `seed`."""
    dims = {"left": ("feature", "feature_"), "cross": ("output", "feature"), "power": ()}
    stacked = lambda name: np.stack([np.asarray(getattr(m, name)) for m in moments])
    return Labelled({name: Variable(("seed", *axes), stacked(name), {}) for name, axes in dims.items()})


def summarise(experiment: Experiment, outcomes: list[Outcome], engine: str, shared: dict[str, Any]) -> dict[str, Any]:
    """The content of summary.json, without the digests of files; `runs` has one entry per seed."""
    runs: list[dict[str, Any]] = [
        {
            "status": o.status,
            "why": o.why,
            "final_loss": finite_or_none(o.losses[-1, 0]),
            "steps_done": len(o.losses) - 1,
            "seconds": round(o.seconds, 4),
            **{name: finite_or_none(x) if isinstance(x, float) else x for name, x in o.detail.items()},
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


def joined(resumed: Run, pieces: list[tuple[Run, Run]]) -> Run:
    """The earlier and the later run of every seed as one; the last point of one is the first point of the other."""
    outcomes = [join(earlier, later, seed) for (earlier, later), seed in zip(pieces, resumed.seeds, strict=True)]
    first = outcomes[0]
    if resumed.by_flow:
        settings = {"time": first.times[-1]}
    else:
        settings = {"steps": len(first.losses) - 1}
        if not resumed.training.optimizer.startswith(GIVEN):
            settings["lr"] = first.detail["lr"]
    experiment = resumed.experiment.replace(training=resumed.training.replace(**settings))
    shared = {name: pieces[0][1].summary[name] for name in ("engine_reason", "warnings", "data_sha256")}
    shared |= {name: resumed.summary[name] for name in ("task_asymmetry",) if name in resumed.summary}
    shared |= {"seconds": sum(o.seconds for o in outcomes), "tests": [n for n in CURVES[1:] if n in resumed.curves]}
    run = gather(experiment, outcomes, resumed.summary["engine"], shared)
    run.groups |= {"moments": resumed.groups["moments"]} if "moments" in resumed.groups else {}
    run.own = resumed.own
    return run


def join(earlier: Run, later: Run, seed: int) -> Outcome:
    """Two consecutive runs of one seed as one outcome."""
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
