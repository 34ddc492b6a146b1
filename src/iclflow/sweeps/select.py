"""Selects runs of a sweep for a figure: families of runs that differ only in what is drawn."""

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iclflow.errors import BadInput

if TYPE_CHECKING:
    import xarray

    import iclflow.sweeps.results

__all__ = ["RunFamily", "families", "narrowed", "pick_value"]

MOST = 6  # families in one figure, because there are six colours


@dataclass(frozen=True)
class RunFamily:
    """The runs behind one line of a figure."""

    label: str
    data: "xarray.Dataset"

    @property
    def runs(self) -> list[int]:
        return self.data["run"].values.ravel().tolist()

    @property
    def any_done(self) -> bool:
        return bool(np.isfinite(self.data["final_loss"].values).any())

    def rows(self, name: str) -> np.ndarray:
        """A variable with one row per run."""
        values = self.data[name].values
        return values.reshape(-1, values.shape[-1])


def pick_value(data: "xarray.Dataset", name: str, text: Any) -> Any:
    """The value of an axis that a user has given, as text or as the value itself."""
    values = data[name].values.tolist()
    if text in values:
        return text
    for value in values:
        if str(value) == str(text):
            return value
        try:
            if not isinstance(value, str) and float(text) == float(value):
                return value
        except (TypeError, ValueError):
            pass
    shown = ", ".join(str(v) for v in values[:8]) + (", .." if len(values) > 8 else "")
    raise BadInput(f"{name}: {text!r} must be one of {shown}")


def narrowed(sweep: "iclflow.sweeps.results.Sweep", where: dict[str, Any]) -> "xarray.Dataset":
    """The part of the dataset at the given values of some axes."""
    data = sweep.data
    for name, value in where.items():
        check_axis(sweep, name)
        if name not in data.dims:
            raise BadInput(f"where: {name!r} is given twice")
        data = data.sel({name: pick_value(data, name, value)})
    return data


def check_axis(sweep: "iclflow.sweeps.results.Sweep", name: str) -> None:
    names = sweep.grid.dimensions
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"must be one of {', '.join(names)}"
        raise BadInput(f"{name}: is not an axis of this sweep; {hint}")


def families(sweep: "iclflow.sweeps.results.Sweep", where: dict[str, Any], keep: tuple[str, ...]) -> list[RunFamily]:
    """One family for each value of the single axis that is neither in `where` nor in `keep`, nor the seed."""
    data = narrowed(sweep, where)
    free = [d for d in sweep.grid.dimensions if d in data.dims and d not in (*keep, "seed") and data.sizes[d] > 1]
    fixed = {d: 0 for d in sweep.grid.dimensions if d in data.dims and d not in (*keep, "seed", *free)}
    data = data.isel(fixed)
    if len(free) > 1:
        raise BadInput(f"where: {' and '.join(free)} are both open; fix all but one, as in {free[1]}=VALUE")
    if not free:
        return [RunFamily("simulation", data)]
    [axis] = free
    if data.sizes[axis] > MOST:
        raise BadInput(
            f"where: {axis} has {data.sizes[axis]} values, at most {MOST} fit in a figure; fix it, or draw along it"
        )
    return [RunFamily(f"{axis} = {spoken(value)}", data.sel({axis: value})) for value in data[axis].values]


def spoken(value: Any) -> str:
    """A coordinate as a label shows it."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
