"""What to run: base settings, axes and seeds as a numbered list of experiments.

Runs are numbered in the order of the axes, with the seed varying fastest. The number of a run is its position in the
store, and the grid alone determines its settings.
"""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from iclflow.config import Task
from iclflow.data.own import agreed_task, read_own_data
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.system.digest import json_digest
from iclflow.training.data_key import data_key

__all__ = ["ALL_POINTS", "Axis", "Grid"]

ALL_POINTS = 0  # keep every value of every curve
MOST_RUNS = 10_000_000
MOST_POINTS = 1_000_000  # grid points, without the seeds


@dataclass(frozen=True)
class Axis:
    """Settings that vary together; the first one names the dimension."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]  # one row per position

    @property
    def dimension(self) -> str:
        return self.names[0]

    def settings(self, position: int) -> dict[str, Any]:
        return dict(zip(self.names, self.values[position], strict=True))

    def coordinate(self, name: str) -> np.ndarray:
        """The values of one setting along the axis: numbers if all of them are numbers, text otherwise."""
        column = [row[self.names.index(name)] for row in self.values]
        if name == "samples":
            column = [math.inf if v == "inf" else v for v in column]
        if all(isinstance(v, bool) for v in column) or not all(isinstance(v, bool | int | float) for v in column):
            return np.array([label(v) for v in column], dtype=object)
        return np.array(column)


def label(value: Any) -> str:
    """A value as text: eigenvalues are joined by commas, the rows of a matrix by semicolons."""
    if isinstance(value, list | tuple):
        is_matrix = bool(value) and isinstance(value[0], list | tuple)
        return (";" if is_matrix else ",").join(label(v) for v in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@dataclass(frozen=True)
class Grid:
    """All runs of a sweep."""

    base: dict[str, Any]
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    points: int  # values kept of a curve, or ALL_POINTS
    summary: bool  # keep no curves
    stored: dict[str, Any] | None = field(default=None, compare=False, repr=False)  # `sizes`, as a store keeps them
    # Sizes and digest of each data file, by its path and the requested `out_dim`; filled as files are read.
    own_files: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def dimensions(self) -> tuple[str, ...]:
        return (*(axis.dimension for axis in self.axes), "seed")

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(len(axis.values) for axis in self.axes), len(self.seeds))

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def settings(self, point: int) -> dict[str, Any]:
        """The settings of a grid point (a run without its seed)."""
        positions = np.unravel_index(point, self.shape[:-1]) if self.axes else ()
        settings = dict(self.base)
        for axis, position in zip(self.axes, positions, strict=True):
            settings |= axis.settings(int(position))
        return settings

    def seed(self, run: int) -> int:
        return self.seeds[run % len(self.seeds)]

    def experiment(self, run: int) -> Experiment:
        """The experiment of one run, ready for `train`."""
        return self.build({**self.settings(run // len(self.seeds)), "seed": self.seed(run)})

    def build(self, settings: dict[str, Any]) -> Experiment:
        """The experiment with these settings; a data file adds its sizes to the task."""
        if settings.get("data") is None:
            return Experiment.from_file(settings)
        own = {name: value for name, value in settings.items() if name in Task.model_fields}
        rest = {name: value for name, value in settings.items() if name not in Task.model_fields}
        given = Task(**own) if own else None
        task = agreed_task(given, self.own_file(str(settings["data"]), own.get("out_dim"))["sizes"])
        sizes = {name: value for name, value in task.model_dump().items() if name in task.model_fields_set}
        return Experiment.from_file({**rest, **sizes})

    def own_file(self, path: str, out_dim: int | None = None) -> dict[str, Any]:
        """Sizes and digest of a data file, which is read only once."""
        if (path, out_dim) not in self.own_files:
            own = read_own_data(path, None if out_dim is None else Task(out_dim=out_dim))[0]
            self.own_files[path, out_dim] = {"sizes": own.sizes, "digest": own.digest}
        return self.own_files[path, out_dim]

    @cached_property
    def points_of_grid(self) -> list[Experiment]:
        """One experiment for each grid point, with the first seed."""
        experiments = []
        for point in range(math.prod(self.shape[:-1])):
            try:
                experiments.append(self.experiment(point * len(self.seeds)))
            except BadInput as error:
                where = ", ".join(
                    f"{name} = {label(value)[:40]}"
                    for name, value in self.settings(point).items()
                    if name not in self.base
                )
                raise BadInput(f"{error} (at {where})" if where else str(error)) from None
        return experiments

    @cached_property
    def groups(self) -> dict[Any, list[int]]:
        """The runs by their data: those of a group are computed from the same sequences and moments."""
        groups: dict[Any, list[int]] = {}
        for point, experiment in enumerate(self.points_of_grid):
            key = data_key(experiment)
            drawn = experiment.data is None and not experiment.population and experiment.training.data_seed is None
            for place, seed in enumerate(self.seeds):
                groups.setdefault((key, seed if drawn else None), []).append(point * len(self.seeds) + place)
        return groups

    def check(self) -> None:
        """Refuse the grid if any of its runs is invalid."""
        for axis in self.axes:
            firsts = [label(row[0]) for row in axis.values]
            if len(set(firsts)) < len(firsts):
                raise BadInput(f"{axis.dimension}: names its axis and must not repeat a value; list another one first")
        if math.prod(self.shape[:-1]) > MOST_POINTS or self.count > MOST_RUNS:
            raise BadInput(f"axes: make {self.count} runs, must make at most {MOST_RUNS} ({MOST_POINTS} without seeds)")
        for experiment in self.points_of_grid:
            if self.points == ALL_POINTS and not self.summary and experiment.training.steps is None:
                raise BadInput("points: 'all' needs steps in every run, so that the length of its curve is known")

    @property
    def own_models(self) -> tuple[str, ...]:
        """The users' own models in the grid, as `module:Class`; every worker has to import them."""
        columns = [axis.coordinate("model") for axis in self.axes if "model" in axis.names]
        names = [str(self.base.get("model", "")), *(str(name) for column in columns for name in column)]
        return tuple(dict.fromkeys(name for name in names if ":" in name))

    # --- the sizes of a store -----------------------------------------------------------------------------------------

    @cached_property
    def curve_length(self) -> int:
        """The number of values kept of a curve; 0 if curves are not kept."""
        if self.stored is not None:
            return self.stored["curve_length"]
        if self.summary:
            return 0
        if self.points != ALL_POINTS:
            return self.points
        return 1 + max(int(e.training.steps or 0) for e in self.points_of_grid)

    @cached_property
    def drop_slots(self) -> int:
        """How many drops of a run have room: one per direction, and two to spare."""
        if self.stored is not None:
            return self.stored["drop_slots"]
        return 2 + max(e.task.dim * e.task.out_dim for e in self.points_of_grid)

    @cached_property
    def has_tests(self) -> bool:
        """Whether some run may have test losses besides the training loss."""
        if self.stored is not None:
            return self.stored["has_tests"]
        return any(
            e.training.test_samples > 0 or e.task.has_other_tests or e.data is not None for e in self.points_of_grid
        )

    @property
    def sizes(self) -> dict[str, Any]:
        """What depends on the content of data files; a store keeps it, so that it opens without these files."""
        return {
            "curve_length": self.curve_length,
            "drop_slots": self.drop_slots,
            "has_tests": self.has_tests,
            "own_files": [[path, out_dim, file] for (path, out_dim), file in self.own_files.items()],
        }

    # --- as JSON ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "axes": [{"names": list(a.names), "values": [list(row) for row in a.values]} for a in self.axes],
            "seeds": list(self.seeds),
            "points": self.points,
            "summary": self.summary,
            "data_sha256": self.data_digests,
        }

    @staticmethod
    def from_json(content: dict[str, Any], sizes: dict[str, Any] | None = None) -> "Grid":
        """The grid that `to_json` wrote; with the `sizes` that a store keeps, no data file has to be read."""
        axes = tuple(Axis(tuple(a["names"]), tuple(tuple(row) for row in a["values"])) for a in content["axes"])
        files = {} if sizes is None else {(path, out_dim): file for path, out_dim, file in sizes["own_files"]}
        return Grid(content["base"], axes, tuple(content["seeds"]), content["points"], content["summary"], sizes, files)

    @cached_property
    def data_digests(self) -> dict[str, str]:
        """The digest of every data file that a run reads, by its path."""
        files = {self.base.get("data"), *(v for a in self.axes if "data" in a.names for v in a.coordinate("data"))}
        return {str(path): self.own_file(str(path))["digest"] for path in sorted(files - {None})}

    @property
    def digest(self) -> str:
        return json_digest(self.to_json())


def difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """A description of the first difference between two grids (as JSON); `None` if there is none."""
    parts = lambda grid: {
        **{f"base.{name}": value for name, value in grid["base"].items()},
        **{f"axes.{'+'.join(axis['names'])}": axis["values"] for axis in grid["axes"]},
        **{name: grid[name] for name in ("seeds", "points", "summary", "data_sha256")},
        "the order of the axes": [axis["names"] for axis in grid["axes"]],
    }
    before, after = parts(old), parts(new)
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            show = lambda side, name=name: shortened(side[name]) if name in side else "not given"
            return f"{name}: was {show(before)}, is now {show(after)}"
    return None


def shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
