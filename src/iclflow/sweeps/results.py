"""All runs of a sweep as one labelled dataset, finished or not.

| variable | dimensions | what it is |
| --- | --- | --- |
| `loss` (and `loss_icl`, `loss_iwl`) | axes, seed, point | the curve at its kept points |
| `curve_time`, `curve_step` | axes, seed, point | t/tau and step of each point |
| `final_loss`, `steps_done` | axes, seed | the last loss, the number of steps |
| `components`, `drops` | axes, seed | the numbers of learned eigen-directions and of drops |
| `drop_times`, `plateau_losses` | axes, seed, drop_number or plateau_number | measured on the full curve |
| `status`, `why`, `seconds` | axes, seed | how the run ended, why, and how long it took |

Only runs whose files are exactly as they were written are read; all others are NaN, with status `missing` or `damaged`.
"""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.results.card import Card, WithCard
from iclflow.sweeps.columns import CURVES, NUMBERED, SCALARS
from iclflow.sweeps.grid import Grid
from iclflow.sweeps.store.protocol import Store, open_store

__all__ = ["Sweep", "gather"]

ERROR = "mean squared error per label"
ABOUT = {  # long name and units
    "loss": ("training loss", ERROR),
    "loss_icl": ("test loss on new task vectors", ERROR),
    "loss_iwl": ("test loss on the shared task vectors", ERROR),
    "curve_time": ("time t/tau", "tau"),
    "curve_step": ("step", "1"),
    "final_loss": ("final loss", ERROR),
    "steps_done": ("steps", "1"),
    "components": ("directions learned", "1"),
    "drops": ("drops seen", "1"),
    "drop_times": ("time t/tau of the middle of each drop", "tau"),
    "plateau_losses": ("loss on each plateau", ERROR),
    "seconds": ("time that the run took", "s"),
}


class Sweep(WithCard):
    """The results of a sweep: `data`, an xarray dataset, and the grid that was run."""

    def __init__(self, store: Store, data: xr.Dataset):
        self.store, self.data = store, data

    @property
    def grid(self) -> Grid:
        return self.store.grid

    @property
    def path(self) -> Path:
        return self.store.path

    @cached_property
    def status(self) -> dict[str, int]:
        """The number of runs with each status."""
        names, counts = np.unique(self.data["status"].values.astype(str), return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    @property
    def finished(self) -> bool:
        """Whether every run has been computed and is intact."""
        return not {"missing", "damaged"} & set(self.status)

    def number(self, **where: Any) -> int:
        """The number of the single run at some coordinates, e.g. `number(rank=2, seed=0)`.

        Args:
            **where: a value for every axis, and the seed; axes of length one may be left out.

        Returns:
            The number, which is also the name of the run's manifest.

        Raises:
            BadInput: if the coordinates select several runs.
            KeyError: if an axis does not have the value.
        """
        runs = self.data["run"].sel(where)
        if runs.size != 1:
            missing = ", ".join(str(d) for d in runs.dims)
            raise BadInput(f"{missing}: must be given too, to name a single run")
        return int(runs.values.item())

    def experiment(self, **where: Any) -> Experiment:
        """The task, model and training of a run, from which `iclflow.train` repeats it.

        Args:
            **where: the coordinates of the run, as in `number`.

        Returns:
            The experiment, read from the manifest of the run if there is one, and from the grid otherwise.

        Raises:
            BadInput: if the coordinates select several runs.
            DamagedStore: if the manifest has changed since it was written.
        """
        run = self.number(**where)
        record = self.store.record(run)
        return self.grid.experiment(run) if record is None else Experiment.from_file(record["config"])

    def to_csv(self, path: str | Path) -> None:
        """Write a table with one row per run, without the curves; no text in it is a formula to a spreadsheet.

        Args:
            path: the file.
        """
        table(self.data).map(no_formula).to_csv(path, index=False)

    def to_netcdf(self, path: str | Path) -> None:
        """Write the full dataset as netCDF 3, which every reader supports.

        Args:
            path: the file.
        """
        plain = self.data.copy()
        for name in [str(n) for n in plain.variables]:
            values = plain[name].values
            if values.dtype == object:
                plain[name] = plain[name].astype(str)
            elif values.dtype.kind in "iu" and values.size and np.abs(values).max() > 2**31 - 1:
                plain[name] = plain[name].astype(float)  # netCDF 3 has no 64-bit integers
        plain.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")

    def __repr__(self) -> str:
        return f"Sweep of {self.grid.count} runs in {str(self.path)!r}: {self.status}\n{self.data!r}"

    def card(self) -> Card:
        """Some loss curves, the axes, and the mean final loss along each of them."""
        from iclflow.sweeps.card import sweep_card

        return sweep_card(self)


def no_formula(cell: Any) -> Any:
    """The cell of a table; text that a spreadsheet would compute gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def table(data: xr.Dataset) -> pd.DataFrame:
    """A table with one row per run: its coordinates, its status and its quantities."""
    shape = data["run"].shape
    settings = {}
    for name in [str(n) for n in data.coords if n not in (*NUMBERED.values(), "run")]:
        settings[name] = data[name].broadcast_like(data["run"]).values.ravel()
    frame: dict[str, Any] = {"run": data["run"].values.ravel(), **settings}
    for quantity, variable in data.data_vars.items():
        name = str(quantity)
        if variable.shape == shape:
            frame[name] = variable.values.ravel()
        elif name in NUMBERED:
            singular = {"drop_times": "drop_time", "plateau_losses": "plateau_loss"}[name]
            for slot, number in enumerate(variable[NUMBERED[name]].values):
                frame[f"{singular}_{number}"] = variable[..., slot].values.ravel()
    return pd.DataFrame(frame)


def gather(path: str | Path) -> Sweep:
    """The results of a sweep; of one that is still running, those of the runs that are done."""
    store = open_store(Path(path))
    grid = store.grid
    intact, status, why, seconds = survey(store)
    axes, shape = grid.dimensions, grid.shape
    summary = rows_of(store, "summary", intact)
    slots = grid.drop_slots
    first, middle = len(SCALARS), len(SCALARS) + slots
    variables: dict[str, Any] = {name: (axes, summary[:, i].reshape(shape)) for i, name in enumerate(SCALARS)}
    variables["drop_times"] = ((*axes, "drop_number"), summary[:, first:middle].reshape(*shape, slots))
    variables["plateau_losses"] = ((*axes, "plateau_number"), summary[:, middle:].reshape(*shape, slots + 1))
    if not grid.summary:
        curves = rows_of(store, "curves", intact)
        for i in range(curves.shape[1]):
            variables[CURVES[i]] = ((*axes, "point"), curves[:, i].reshape(*shape, grid.curve_length))
    variables |= {
        "status": (axes, np.array(status, dtype=object).reshape(shape)),
        "why": (axes, np.array(why, dtype=object).reshape(shape)),
        "seconds": (axes, np.array(seconds).reshape(shape)),
    }
    coordinates: dict[str, Any] = {
        name: (axis.dimension, axis.coordinate(name)) for axis in grid.axes for name in axis.names
    }
    coordinates |= {
        "seed": ("seed", np.array(grid.seeds)),
        "run": (axes, np.arange(grid.count).reshape(shape)),
        "drop_number": ("drop_number", np.arange(1, slots + 1)),
        "plateau_number": ("plateau_number", np.arange(slots + 1)),
    }
    attributes = {
        "grid": json.dumps(store.about["grid"]),
        "config_hash": store.digest,
        "versions": json.dumps(store.about["versions"]),
        "schema": store.about["schema"],
        "created": store.about["created"],
    }
    data = xr.Dataset(variables, coordinates, attributes)
    for name, (long_name, units) in ABOUT.items():
        if name in data:
            data[name].attrs.update(long_name=long_name, units=units)
    return Sweep(store, data)


def survey(store: Store) -> tuple[list[int], list[str], list[str], list[float]]:
    """The runs that can be read; and status, reason and seconds of every run."""
    count = store.grid.count
    intact, status, why, seconds = [], ["missing"] * count, [""] * count, [np.nan] * count
    for run in store.listed():
        record, wrong = store.damage(run)
        if wrong is not None:
            status[run], why[run] = "damaged", wrong
        elif record is not None:
            intact.append(run)
            status[run], why[run], seconds[run] = record["status"], record["why"], record["seconds"]
    return intact, status, why, seconds


def rows_of(store: Store, name: str, runs: list[int]) -> np.ndarray:
    """One row per run of the store, NaN for all but the given runs; no other chunk is read."""
    rows = np.full(store.shape(name), np.nan)
    if runs:
        rows[runs] = store.array(name).oindex[np.array(runs)]
    return rows
