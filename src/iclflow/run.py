"""What training leaves: curves and weights with names, and all that is needed to make them again.

| attribute | what it is |
| --- | --- |
| `loss` | DataArray over `step` (or `seed, step`), coordinate `time` = t/tau |
| `curves` | Dataset with `loss` and, where there are test sets, `loss_icl` and `loss_iwl` |
| `weights` | Dataset of the weights at the recorded times, dimension `record`, coordinates `step` and `time` |
| `initial_weights`, `final_weights` | plain dictionaries of arrays |
| `task`, `model`, `training`, `config` | what was asked |
| `status`, `summary` | how it ended |
"""

import csv
import json
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from iclflow.config import Experiment, Model, Task, Training

__all__ = ["Run", "SeedResult", "gather", "joined"]

WORST_FIRST = ("failed", "diverged", "unstable", "max_steps", "ok")
AXES = {
    "value": ("head", "row", "col"),
    "key_query": ("head", "row", "col"),
    "key": ("head", "rank", "col"),
    "query": ("head", "rank", "col"),
    "first": ("head", "feature"),
    "second": ("output", "head"),
}
CURVES = ("loss", "loss_icl", "loss_iwl")

Weights = dict[str, np.ndarray]


class SeedResult(NamedTuple):
    """One seed's outcome, before it is gathered with the others."""

    seed: int
    losses: np.ndarray  # (T, columns)
    times: np.ndarray  # (T,)
    recorded: np.ndarray  # which of the T times have weights
    snapshots: list[Weights]
    initial: Weights
    status: str
    why: str
    seconds: float
    optimizer_state: list[np.ndarray]
    detail: dict[str, Any]


class Run:
    """One training run, or several that differ only in their seed."""

    def __init__(
        self,
        experiment: Experiment,
        curves: xr.Dataset,
        weights: xr.Dataset,
        initial_weights: Weights,
        summary: dict[str, Any],
        optimizer_state: dict[str, np.ndarray] | None = None,
    ):
        self.experiment, self.curves, self.weights = experiment, curves, weights
        self.initial_weights, self.summary = initial_weights, summary
        self.optimizer_state = optimizer_state or {}

    @property
    def task(self) -> Task:
        return self.experiment.task

    @property
    def model(self) -> Model:
        return self.experiment.model

    @property
    def training(self) -> Training:
        return self.experiment.training

    @property
    def config(self) -> dict[str, Any]:
        return self.experiment.flat()

    @property
    def loss(self) -> xr.DataArray:
        return self.curves["loss"]

    @property
    def time(self) -> xr.DataArray:
        return self.curves["time"]

    def __getattr__(self, name: str) -> Any:
        if name in ("loss_icl", "loss_iwl"):
            if name in self.curves:
                return self.curves[name]
            raise AttributeError(f"this run has no test set: give test_samples, or data with sequences_{name[5:]}")
        raise AttributeError(name)

    @property
    def status(self) -> str:
        return self.summary["status"]

    @property
    def seeds(self) -> list[int]:
        return self.summary["seeds"]

    @cached_property
    def final_weights(self) -> Weights:
        """The last weights of every seed (a padded tail of shorter runs is skipped)."""
        if "seed" not in self.weights.dims:
            return {str(name): np.asarray(array[-1]) for name, array in self.weights.items()}
        last = self.weights["time"].notnull().sum("record").values - 1
        return {
            str(name): np.stack([np.asarray(array[i, k]) for i, k in enumerate(last)])
            for name, array in self.weights.items()
        }

    def select(self, seed: int) -> "Run":
        """The run of one seed alone."""
        if "seed" not in self.curves.dims:
            return self
        index = self.seeds.index(seed)
        curves = self.curves.sel(seed=seed, drop=True)
        weights = self.weights.sel(seed=seed, drop=True)
        curves = curves.isel(step=np.flatnonzero(curves["time"].notnull().values))
        weights = weights.isel(record=np.flatnonzero(weights["time"].notnull().values))
        experiment = Experiment(
            task=self.task, model=self.model, data=self.experiment.data,
            training=self.training.replace(seed=seed, seeds=1),
        )  # fmt: skip
        summary = {
            **self.summary,
            **self.summary["runs"][index],
            "seeds": [seed],
            "runs": [self.summary["runs"][index]],
        }
        initial = {name: array[index] for name, array in self.initial_weights.items()}
        state = {k: array[index] for k, array in self.optimizer_state.items()}
        return Run(experiment, curves, weights, initial, summary, state)

    def compare(self, **options: Any) -> Any:
        """Theory over this run, with the gap measured (`iclflow.compare`)."""
        from iclflow.comparison import compare

        return compare(self, **options)

    def first_and_last(self) -> "Run":
        """The same run with only its first and last weights."""
        last = self.weights["time"].notnull().sum("record") - 1  # shorter seeds are padded behind their last record
        ends = xr.concat([xr.zeros_like(last), last], dim="record")
        weights = self.weights.isel(record=ends)
        return Run(self.experiment, self.curves, weights, self.initial_weights, self.summary, self.optimizer_state)

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the run to a directory, all or nothing."""
        from iclflow.run_files import save_run

        return save_run(self, Path(path), overwrite)

    def to_npz(self, path: str | Path) -> None:
        """Curves and weights as plain arrays."""
        arrays = {str(name): np.asarray(array) for name, array in self.curves.variables.items()}
        arrays |= {f"weights.{name}": array for name, array in self.initial_weights.items()}
        arrays |= {f"final_weights.{name}": array for name, array in self.final_weights.items()}
        np.savez(path, config=json.dumps(self.config), **arrays)

    def to_csv(self, path: str | Path) -> None:
        """One row a step (and seed): step, t/tau and the losses."""
        names = [name for name in CURVES if name in self.curves]
        with open(path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["seed", "step", "time", *names])
            for seed in self.seeds:
                one = self.select(seed)
                columns = [one.curves["step"].values, one.time.values, *(one.curves[n].values for n in names)]
                rows.writerows([seed, *row] for row in zip(*columns, strict=True))

    def __repr__(self) -> str:
        ends = np.atleast_1d(self.summary["final_loss"])
        losses = ", ".join("-" if x is None else f"{x:.4g}" for x in ends[:6])
        return f"<iclflow.Run {self.model.kind} on {self.summary['engine']}: {self.status}, final loss {losses}>"


def gather(experiment: Experiment, results: list[SeedResult], engine: str, shared: dict[str, Any]) -> Run:
    """Line seeds up along a new axis; shorter ones are padded with NaN. One seed has no such axis."""
    single = len(results) == 1
    seeds = [r.seed for r in results]
    seed_axis = () if single else ("seed",)
    pick = (lambda arrays: arrays[0]) if single else (lambda arrays: stack_padded(arrays))
    longest = max(len(r.losses) for r in results)
    same_time = all(np.array_equal(r.times, results[0].times) for r in results)
    time = ("step", results[0].times) if same_time else (("seed", "step"), stack_padded([r.times for r in results]))
    curves = xr.Dataset(
        {
            name: ((*seed_axis, "step"), pick([r.losses[:, column] for r in results]))
            for column, name in enumerate(column_names(results[0].losses.shape[1], shared["tests"]))
        },
        coords={"step": np.arange(longest), "time": time, **({} if single else {"seed": seeds})},
    )
    weights = xr.Dataset(
        {
            name: (
                (*seed_axis, "record", *AXES[name]),
                pick([np.stack([s[name] for s in r.snapshots]) for r in results]),
            )
            for name in results[0].initial
        },
        coords={
            "step": ((*seed_axis, "record"), pick([r.recorded.astype(float) for r in results])),
            "time": ((*seed_axis, "record"), pick([r.times[r.recorded] for r in results])),
            **({} if single else {"seed": seeds}),
        },
    )
    stacked = lambda arrays: arrays[0] if single else np.stack(arrays)
    initial = {name: stacked([r.initial[name] for r in results]) for name in results[0].initial}
    state = {str(i): stacked([r.optimizer_state[i] for r in results]) for i in range(len(results[0].optimizer_state))}
    return Run(experiment, curves, weights, initial, summarise(experiment, results, engine, shared), state)


def column_names(columns: int, tests: list[str]) -> list[str]:
    return ["loss", *tests][:columns]


def summarise(experiment: Experiment, results: list[SeedResult], engine: str, shared: dict[str, Any]) -> dict[str, Any]:
    from iclflow.versions import versions

    runs = [
        {
            "status": r.status,
            "why": r.why,
            "final_loss": finite_or_none(r.losses[-1, 0]),
            "steps_done": len(r.losses) - 1,
            "seconds": round(r.seconds, 4),
            **r.detail,
        }
        for r in results
    ]
    worst = min((r["status"] for r in runs), key=WORST_FIRST.index)
    one = len(runs) == 1
    return {
        "status": worst,
        "final_loss": runs[0]["final_loss"] if one else [r["final_loss"] for r in runs],
        "steps_done": max(r["steps_done"] for r in runs),
        "engine": engine,
        "seeds": [r.seed for r in results],
        "config": experiment.flat(),
        "runs": runs,
        "versions": versions(),
        **{name: value for name, value in shared.items() if name != "tests"},
    }


def finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def stack_padded(arrays: list[np.ndarray]) -> np.ndarray:
    """Stack along a new first axis; shorter arrays are filled up with NaN."""
    longest = max(len(a) for a in arrays)
    return np.stack(
        [np.pad(a, [(0, longest - len(a))] + [(0, 0)] * (a.ndim - 1), constant_values=np.nan) for a in arrays]
    )


def joined(whole: Run, pieces: list[tuple[Run, Run]]) -> Run:
    """Earlier and later parts of every seed as one run; they share the point where one stopped and one began."""
    results = []
    for (earlier, later), seed in zip(pieces, whole.seeds, strict=True):
        names = [name for name in CURVES if name in earlier.curves]
        columns = lambda run, names=names: np.stack([run.curves[n].values for n in names], axis=1)
        cut = earlier.curves.sizes["step"] - 1
        snapshots = [
            {str(name): np.asarray(array[i]) for name, array in run.weights.items()}
            for run, first in ((earlier, 0), (later, 1))
            for i in range(first, run.weights.sizes["record"])
        ]
        recorded = np.concatenate([earlier.weights["step"].values, cut + later.weights["step"].values[1:]])
        last = later.summary["runs"][0]
        known = ("status", "why", "final_loss", "steps_done", "seconds")
        results.append(
            SeedResult(
                seed=seed,
                losses=np.concatenate([columns(earlier)[:-1], columns(later)]),
                times=np.concatenate([earlier.time.values[:-1], later.time.values]),
                recorded=recorded.astype(int),
                snapshots=snapshots,
                initial=earlier.initial_weights,
                status=later.status,
                why=last["why"],
                seconds=earlier.summary["runs"][0]["seconds"] + last["seconds"],
                optimizer_state=[later.optimizer_state[str(i)] for i in range(len(later.optimizer_state))],
                detail={name: value for name, value in last.items() if name not in known},
            )
        )
    first = whole.experiment
    length = "time" if whole.summary["engine"] == "flow" else "steps"
    total = results[0].times[-1] if length == "time" else len(results[0].losses) - 1
    settings = {length: total} | ({} if length == "time" else {"lr": results[0].detail["lr"]})
    experiment = Experiment(
        task=first.task, model=first.model, data=first.data, training=first.training.replace(**settings)
    )
    keep = ("engine_reason", "warnings", "data_sha256")
    shared = {name: pieces[0][1].summary[name] for name in keep}
    shared |= {
        "seconds": sum(r.seconds for r in results),
        "tests": [n for n in CURVES[1:] if n in whole.curves],
    }
    return gather(experiment, results, whole.summary["engine"], shared)
