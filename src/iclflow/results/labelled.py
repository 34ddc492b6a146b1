"""Arrays with named axes: what an `xarray.Dataset` holds, for work that does without xarray, and how a file holds it.

xarray and what it loads take longer to import than JAX, so a run that is trained, saved and summarised never sees them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    import xarray

__all__ = ["Labelled", "Variable", "labelled_tensors", "last_steps", "stack_held", "to_tensors"]

COORDINATES = ("seed", "last_step", "step", "time")


class Variable(NamedTuple):
    """An array, the names of its axes, and what is said about it."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, str]


@dataclass(frozen=True)
class Labelled:
    """Variables that share their axes; seed, steps and time are coordinates, all others are data."""

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
        """What is at one place along an axis, which is gone then, and so are coordinates of it alone."""
        kept = {name: v for name, v in self.variables.items() if v.dims != (axis,) or name not in COORDINATES}
        rest = lambda v: tuple(d for d in v.dims if d != axis)
        taken = Labelled(kept).take(axis, np.array(place)).variables
        return Labelled({name: v._replace(dims=rest(v)) for name, v in taken.items()})

    def take(self, axis: str, places: Int[np.ndarray, "*L"]) -> "Labelled":
        """What is at some places along an axis."""
        part = lambda v: np.take(v.values, places, v.dims.index(axis)) if axis in v.dims else v.values
        return Labelled({name: v._replace(values=np.asarray(part(v))) for name, v in self.variables.items()})


def stack_held(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays of seeds along a new first axis; shorter ones go on with their last entry."""
    places = np.arange(max(len(a) for a in arrays))
    return np.stack([a[np.minimum(places, len(a) - 1)] for a in arrays])


def last_steps(lengths: Iterable[int]) -> Variable:
    """The coordinate that says where each of these arrays has ended."""
    about = {"long_name": "last step of the seed, whose loss is carried on behind it", "units": "1"}
    return Variable(("seed",), np.array([length - 1 for length in lengths]), about)


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
