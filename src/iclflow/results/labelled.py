"""Arrays with named axes: what an `xarray.Dataset` holds, for work that does without xarray, and how a file holds it.

xarray and what it loads take longer to import than JAX, so a run that is trained, saved and summarised never sees them.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    import xarray

__all__ = ["Labelled", "Variable", "labelled_tensors", "to_tensors"]

COORDINATES = ("seed", "step", "time")


class Variable(NamedTuple):
    """An array, the names of its axes, and what is said about it."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, str]


@dataclass(frozen=True)
class Labelled:
    """Variables that share their axes; seed, step and time are coordinates, all others are data."""

    variables: dict[str, Variable]

    def dataset(self) -> "xarray.Dataset":
        """The same as a dataset."""
        import xarray

        made = xarray.Dataset({name: tuple(variable) for name, variable in self.variables.items()})
        return made.set_coords([name for name in COORDINATES if name in self.variables])

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every axis."""
        every = self.variables.values()
        return {axis: size for v in every for axis, size in zip(v.dims, v.values.shape, strict=True)}

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a variable."""
        return self.variables[name].values

    def values(self) -> dict[str, np.ndarray]:
        """The values of all data, without coordinates."""
        return {name: v.values for name, v in self.variables.items() if name not in COORDINATES}

    def pick(self, axis: str, place: int) -> "Labelled":
        """What is at one place along an axis, which is gone then, and its coordinate too."""
        rest = lambda v: tuple(d for d in v.dims if d != axis)
        part = lambda v: v if axis not in v.dims else Variable(
            rest(v), np.asarray(np.take(v.values, place, v.dims.index(axis))), v.attrs
        )  # fmt: skip
        return Labelled({name: part(v) for name, v in self.variables.items() if name != axis})

    def take(self, axis: str, places: Int[np.ndarray, "*before L"]) -> "Labelled":
        """What is at some places along an axis; these may differ along the axes before it."""

        def part(v: Variable) -> Variable:
            if axis not in v.dims:
                return v
            at, behind = v.dims.index(axis), v.values.ndim - v.dims.index(axis) - 1
            shape = (1,) * (at + 1 - places.ndim) + places.shape + (1,) * behind
            return Variable(v.dims, np.take_along_axis(v.values, places.reshape(shape), at), v.attrs)

        return Labelled({name: part(v) for name, v in self.variables.items()})


def to_tensors(groups: dict[str, Labelled]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays named GROUP/NAME, and the axes and attributes of all in their order as JSON."""
    flat = {f"{group}/{name}": v for group, kept in groups.items() for name, v in kept.variables.items()}
    labels = json.dumps({key: [v.dims, v.attrs] for key, v in flat.items()})
    return {key: v.values for key, v in flat.items()}, {"labels": labels}


def labelled_tensors(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> dict[str, Labelled]:
    """The groups that `to_tensors` took apart."""
    groups: dict[str, Labelled] = {}
    for key, (dims, attrs) in json.loads(metadata["labels"]).items():
        group, name = key.split("/")
        groups.setdefault(group, Labelled({})).variables[name] = Variable(tuple(dims), tensors[key], attrs)
    return groups
