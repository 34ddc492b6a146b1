"""The result of training: labelled curves and weights, and everything that is needed to reproduce them.

| attribute | what it is |
| --- | --- |
| `loss` | DataArray over `step` (or `seed, step`), coordinates `time` = t/tau and, of seeds, `last_step` |
| `curves` | Dataset with `loss` and, where there are test sets, `loss_icl` and `loss_iwl` |
| `weights` | Dataset of the weights at the recorded times, dimension `record`, coordinates `step` and `time` |
| `initial_weights`, `final_weights` | plain dictionaries of arrays |
| `moments` | Dataset of the label moments of the sample that was trained on, or `None` on the population |
| `task`, `model`, `training`, `config` | the settings |
| `status`, `summary` | how the run ended |
"""

import csv
import difflib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iclflow.config import Task, Training
from iclflow.config.record import Record
from iclflow.data.own import OwnData
from iclflow.engines.choose import choose
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.models import Model, Weights
from iclflow.models.reduced import Reduced
from iclflow.results.card import Card, Chart, Line, Table, WithCard
from iclflow.results.labelled import Labelled
from iclflow.results.writing import save_run

if TYPE_CHECKING:
    import xarray

__all__ = ["CURVES", "Run"]

CURVES = ("loss", "loss_icl", "loss_iwl")
SIZES = ("dim", "context", "out_dim")
MOST_DRAWN = 12  # seeds in the picture of a run


class Run(WithCard):
    """One training run, or several that differ only in their seed."""

    def __init__(
        self,
        experiment: Experiment,
        curves: Labelled,
        weights: Labelled,
        initial_weights: Weights,
        summary: dict[str, Any],
        optimizer_state: dict[str, np.ndarray] | None = None,
        moments: Labelled | None = None,
        own: OwnData | None = None,
    ):
        self.experiment, self.initial_weights, self.summary = experiment, initial_weights, summary
        self.groups = {"curves": curves, "weights": weights, **({} if moments is None else {"moments": moments})}
        self.optimizer_state = optimizer_state or {}
        self.own = own  # the user's own sequences, if they are in memory

    def arrays(self, group: str) -> Any:
        """The arrays of `curves`, `weights` or `moments` without xarray; `None` if there are no moments."""
        return self.groups.get(group)

    @cached_property
    def curves(self) -> "xarray.Dataset":
        """The losses at every step, with the time t/tau."""
        return self.groups["curves"].dataset()

    @cached_property
    def weights(self) -> "xarray.Dataset":
        """The weights at the recorded times."""
        return self.groups["weights"].dataset()

    @cached_property
    def moments(self) -> "xarray.Dataset | None":
        """The label moments of the sample, or `None` on the population."""
        return self.groups["moments"].dataset() if "moments" in self.groups else None

    @property
    def task(self) -> Task:
        """The task that was trained on."""
        return self.experiment.task

    @property
    def model(self) -> Model:
        """The model that was trained."""
        return self.experiment.model

    @property
    def training(self) -> Training:
        """The settings of training."""
        return self.experiment.training

    @property
    def config(self) -> dict[str, Any]:
        """All settings in one flat dictionary, as files hold them."""
        return self.experiment.flat()

    @property
    def loss(self) -> "xarray.DataArray":
        """The training loss at every step.

        A seed that has ended earlier than another keeps its last loss, time and weights from then on, so that a mean
        over `seed` is one over all seeds; the coordinate `last_step` says where each has ended, and
        `loss.where(loss.step <= loss.last_step)` leaves the rest out. Seeds of the flow have times of their own: bring
        them to common times (`numpy.interp`) before averaging.
        """
        return self.curves["loss"]

    @property
    def time(self) -> "xarray.DataArray":
        """The time t/tau of every step."""
        return self.curves["time"]

    def __getattr__(self, name: str) -> Any:
        if name in ("loss_icl", "loss_iwl"):
            if name in self.curves:
                return self.curves[name]
            raise AttributeError(f"this run has no test set: give test_samples, or data with sequences_{name[5:]}")
        near = [] if name.startswith("_") else difflib.get_close_matches(name, [*dir(type(self)), *vars(self)], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"a run has no attribute {name!r}{hint}")

    @property
    def status(self) -> str:
        """How the run ended; of several seeds, the worst: ok, max_steps, unstable, diverged or failed."""
        return self.summary["status"]

    @property
    def by_flow(self) -> bool:
        """Whether the run followed the flow; otherwise it descended."""
        return choose(self.experiment).flows

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the axis `seed`."""
        return self.summary["seeds"]

    @cached_property
    def final_weights(self) -> Weights:
        """The last weights of every seed."""
        return self.arrays("weights").pick("record", -1).values()

    def snapshots(self) -> Iterator[Weights]:
        """The weights of a run of one seed at every recorded time.

        Returns:
            An iterator over dictionaries of arrays, one per record.
        """
        weights = self.arrays("weights")
        arrays = weights.values()
        return ({name: array[i] for name, array in arrays.items()} for i in range(weights.sizes["record"]))

    @property
    def reduced(self) -> Reduced:
        """Value weights and key-query matrices of every head during training, with `record` as the first axis."""
        return self.model.reduced(self.arrays("weights").values(), self.task)

    def select(self, seed: int) -> "Run":
        """The run of a single seed.

        Args:
            seed: one of `seeds`.

        Returns:
            A run without the axis `seed`; a run of one seed returns itself.

        Raises:
            BadInput: `seed` is not one of `seeds`.
        """
        if seed not in self.seeds:
            raise BadInput(f"seed: {seed!r} must be one of {some(self.seeds)}, the seeds of this run")
        curves, weights, moments = self.arrays("curves"), self.arrays("weights"), self.arrays("moments")
        if "seed" not in curves.sizes:
            return self
        index = self.seeds.index(seed)
        curves, weights = curves.take("step", np.arange(curves["last_step"][index] + 1)), weights.pick("seed", index)
        curves = curves.pick("seed", index)
        weights = weights.take("record", np.unique(weights["step"], return_index=True)[1])
        experiment = Experiment(
            task=self.task, model=self.model, data=self.experiment.data,
            training=self.training.replace(seed=seed, seeds=1),
        )  # fmt: skip
        own = self.summary["runs"][index]
        summary = {**self.summary, **own, "seeds": [seed], "runs": [own], "config": experiment.flat()}
        initial = {name: array[index] for name, array in self.initial_weights.items()}
        state = {name: np.asarray(array[index]) for name, array in self.optimizer_state.items()}
        if moments is not None and "seed" in moments.sizes:
            moments = moments.pick("seed", index)
        return Run(experiment, curves, weights, initial, summary, state, moments, self.own)

    def first_and_last(self) -> "Run":
        """The same run with only its first and last weights.

        Returns:
            A run whose `weights` have two records.
        """
        ends = self.arrays("weights").take("record", np.array([0, -1]))
        return Run(
            self.experiment, self.groups["curves"], ends, self.initial_weights, self.summary, self.optimizer_state,
            self.groups.get("moments"), self.own,
        )  # fmt: skip

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the run to a directory, completely or not at all; `icl.load` reads it back.

        Args:
            path: the directory.
            overwrite: replace an existing run.

        Returns:
            The directory.

        Raises:
            BadInput: `path` exists, or cannot be written to.
            NoRoom: the disk is full or fails.
        """
        return save_run(self, Path(path), overwrite)

    def to_npz(self, path: str | Path) -> None:
        """Write curves, first and last weights and settings to an `.npz` file.

        Args:
            path: the file; an existing one is replaced.
        """
        arrays = {name: variable.values for name, variable in self.arrays("curves").variables.items()}
        arrays |= {f"weights.{name}": array for name, array in self.initial_weights.items()}
        arrays |= {f"final_weights.{name}": array for name, array in self.final_weights.items()}
        np.savez(path, allow_pickle=False, config=json.dumps(self.config), **arrays)

    def to_csv(self, path: str | Path) -> None:
        """Write the curves to a CSV file, one row per step and seed: seed, step, t/tau and the losses.

        Args:
            path: the file; an existing one is replaced.
        """
        names = [name for name in CURVES if name in self.curves]
        with open(path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["seed", "step", "time", *names])
            for seed in self.seeds:
                one = self.select(seed)
                columns = [one.curves["step"].values, one.time.values, *(one.curves[n].values for n in names)]
                rows.writerows([seed, *row] for row in zip(*columns, strict=True))

    @property
    def verdict(self) -> str:
        """How the run ended, and why if it did not end well."""
        why = next((r["why"] for r in self.summary["runs"] if r["status"] == self.status), "")
        return f"{self.status} ({why})" if why else self.status

    def __repr__(self) -> str:
        ends = some([None if x is None else float(f"{x:.4g}") for x in np.atleast_1d(self.summary["final_loss"])])
        kept = f"{self.loss.sizes['step']} losses, weights at {self.weights.sizes['record']} times"
        return (
            f"<iclflow.Run of {call_of(self.model)}, D = {self.task.dim}, N = {self.task.context},"
            f" on {self.summary['engine']}: {self.verdict}, final loss {ends} ({kept})>"
        )

    def card(self) -> Card:
        """The loss curves and a table of settings and outcome."""
        given = {k: v for k, v in {**changed(self.task), **changed(self.training)}.items() if k not in SIZES}
        start, ends = self.loss.values[..., 0].mean(), np.atleast_1d(self.summary["final_loss"])
        shapes = ", ".join(
            f"{name} {array.shape}" for name, array in self.select(self.seeds[0]).initial_weights.items()
        )
        rows = [
            ("model", call_of(self.model)),
            ("task", f"D = {self.task.dim}, N = {self.task.context}, O = {self.task.out_dim}"),
            ("settings", ", ".join(f"{name} = {value!s:.60}" for name, value in given.items()) or "defaults"),
            ("engine", f"{self.summary['engine']}, {self.summary['seconds']:.2f} s"),
            ("loss", f"{start:.5g} to {some([None if x is None else float(f'{x:.5g}') for x in ends])}"),
            ("status", self.verdict),
            ("weights", f"{shapes}, at {self.weights.sizes['record']} times"),
        ]
        seeds = [self.select(seed) for seed in self.seeds[:MOST_DRAWN]]
        curves = [Line(one.time.values, one.loss.values, f"seed {one.seeds[0]}") for one in seeds]
        chart = Chart(lambda: curves, str(self.time.attrs.get("long_name", "time")))
        return Card("Run", [chart, Table((), rows)], self.summary)


def call_of(model: Model) -> str:
    """The model as one writes it: its class, and the fields that were given or differ from their defaults."""
    given = {name: value for name, value in model if name in model.model_fields_set}
    fields = ", ".join(f"{name}={value!r}" for name, value in {**given, **changed(model)}.items())
    return f"{type(model).__name__}({fields})"


def changed(record: Record) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    fields = type(record).model_fields
    return {name: value for name, value in record if repr(value) != repr(fields[name].default)}


def some(values: list[Any]) -> str:
    """The first few values of a list."""
    return ", ".join("-" if x is None else str(x) for x in values[:6]) + (", .." if len(values) > 6 else "")
