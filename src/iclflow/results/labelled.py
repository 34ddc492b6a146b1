"""Arrays with named axes: what an `xarray.Dataset` holds, for work that does without xarray.

xarray and what it loads take longer to import than JAX, so a run that is trained, saved and summarised never sees them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    import xarray

__all__ = ["Labelled", "Variable"]


class Variable(NamedTuple):
    """An array, the names of its axes, and what is said about it."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, str]


@dataclass(frozen=True)
class Labelled:
    """Variables that share their axes; a coordinate describes the places along them."""

    data: dict[str, Variable]
    coords: dict[str, Variable]

    @classmethod
    def of(cls, dataset: "xarray.Dataset") -> "Labelled":
        """The variables of a dataset."""
        plain = lambda array: Variable(tuple(map(str, array.dims)), array.values, dict(array.attrs))
        data = {str(name): plain(array) for name, array in dataset.data_vars.items()}
        return cls(data, {str(name): plain(array) for name, array in dataset.coords.items()})

    def dataset(self) -> "xarray.Dataset":
        """The same as a dataset."""
        import xarray

        return xarray.Dataset(*({name: tuple(v) for name, v in kind.items()} for kind in (self.data, self.coords)))

    @property
    def variables(self) -> dict[str, Variable]:
        """Data and coordinates."""
        return {**self.data, **self.coords}

    @property
    def sizes(self) -> dict[str, int]:
        """The length of every axis."""
        return {axis: size for v in self.variables.values() for axis, size in zip(v.dims, v.values.shape, strict=True)}

    def __contains__(self, name: str) -> bool:
        return name in self.data or name in self.coords

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a variable."""
        return (self.data[name] if name in self.data else self.coords[name]).values

    def values(self) -> dict[str, np.ndarray]:
        """The values of all data, without coordinates."""
        return {name: variable.values for name, variable in self.data.items()}

    def pick(self, axis: str, place: int) -> "Labelled":
        """What is at one place along an axis, which is gone then, and its coordinate too."""
        rest = lambda v: tuple(d for d in v.dims if d != axis)
        part = lambda v: v if axis not in v.dims else Variable(
            rest(v), np.asarray(np.take(v.values, place, v.dims.index(axis))), v.attrs
        )  # fmt: skip
        data = {name: part(v) for name, v in self.data.items()}
        return Labelled(data, {name: part(v) for name, v in self.coords.items() if name != axis})

    def take(self, axis: str, places: Int[np.ndarray, "*before L"]) -> "Labelled":
        """What is at some places along an axis; these may differ along the axes before it."""

        def part(v: Variable) -> Variable:
            if axis not in v.dims:
                return v
            at, behind = v.dims.index(axis), v.values.ndim - v.dims.index(axis) - 1
            shape = (1,) * (at + 1 - places.ndim) + places.shape + (1,) * behind
            return Variable(v.dims, np.take_along_axis(v.values, places.reshape(shape), at), v.attrs)

        return Labelled(*({name: part(v) for name, v in kind.items()} for kind in (self.data, self.coords)))
