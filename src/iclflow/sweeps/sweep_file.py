"""A sweep as a TOML file: `[base]`, `[axes]`, `[[zip]]`, `seeds`, `points`; every name and value is checked here.

seeds = 20                                              # 0..19; or a list; or a range
points = 200                                            # values kept of every curve, or "all"
[base]
model = "separate"
samples = 80_000
[axes]                                                  # every combination
rank = [1, 2, 4]                                        # a list
context = { from = 10, to = 50, step = 10 }             # a range: 10, 20, .. up to 50
init = { from = 1e-4, to = 1e-1, count = 4, log = true }
[[zip]]                                                 # settings that vary together
lr = [0.1, 0.2]
steps = [20_000, 10_000]
"""

import math
import tomllib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, StrictBool, field_validator, model_validator

from iclflow.config import Task, Training
from iclflow.config.record import Record, shown, unknown
from iclflow.config.spectra import load_array
from iclflow.errors import BadInput
from iclflow.models.base import KNOWN, Model, import_model
from iclflow.sweeps.grid import ALL_POINTS, Axis, Grid
from iclflow.system.files import read_text

__all__ = ["grid_from", "read_grid"]

LONGEST = 100_000  # values of one axis
LARGEST = 1e300  # number in a range, so that differences do not overflow
SPECTRA = ("spectrum", "task_spectrum")


class SweepFile(Record):
    """The tables of a sweep file, whose settings are checked later, with all grid points."""

    base: dict[str, Any] = {}
    axes: dict[str, Any] = {}
    zip: list[dict[str, Any]] = []
    seeds: Any = 1
    points: Any = 200
    summary: StrictBool = False

    @field_validator("points")
    @classmethod
    def _whole_or_all(cls, points: Any) -> int:
        if points != "all" and not (type(points) is int and 2 <= points <= LONGEST):
            raise ValueError(f"points: {short(points)} must be a whole number from 2 to {LONGEST}, or 'all'")
        return ALL_POINTS if points == "all" else points

    @property
    def tables(self) -> list[dict[str, Any]]:
        return [self.base, self.axes, *self.zip]


class Range(Record):
    """`{ from, to, step }` or `{ from, to, count, log }`; whole numbers if both ends are whole."""

    from_: int | float = Field(alias="from")
    to: int | float
    step: int | float | None = None
    count: Annotated[int, Field(strict=True, ge=2, le=LONGEST)] | None = None
    log: StrictBool = False

    @field_validator("from_", "to", "step", mode="before")
    @classmethod
    def _finite(cls, value: Any, info: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            name = info.field_name.rstrip("_")
            raise ValueError(f"{name}: {short(value)} must be a finite number, at most {LARGEST}")
        return value

    @model_validator(mode="after")
    def _together(self) -> "Range":
        if (self.step is None) == (self.count is None):
            raise ValueError("count: give either count or step")
        if not self.from_ < self.to:
            raise ValueError(f"to: {self.to} must be greater than from = {self.from_}")
        if self.step is not None and self.log:
            raise ValueError("step: a log range takes count, not step")
        if self.log and self.from_ <= 0:
            raise ValueError(f"from: {self.from_} must be greater than 0 in a log range")
        if self.step is not None and not (self.step > 0 and self.steps < LONGEST):
            raise ValueError(f"step: {self.step} must be greater than 0 and make at most {LONGEST} values")
        return self

    @property
    def steps(self) -> float:
        return (self.to - self.from_) / (self.step or 1) * (1 + 1e-12)

    def values(self) -> list[Any]:
        """All values, without the dust of binary fractions: 0.3 instead of 0.30000000000000004."""
        whole = isinstance(self.from_, int) and isinstance(self.to, int)
        if self.step is not None:
            values = [self.from_ + i * self.step for i in range(math.floor(self.steps) + 1)]
            return values if all(isinstance(v, int) for v in values) else [rounded(v) for v in values]
        assert self.count is not None
        exact = (np.geomspace if self.log else np.linspace)(float(self.from_), float(self.to), self.count)
        if not whole:
            return [float(self.from_), *(rounded(v) for v in exact[1:-1]), float(self.to)]
        near = [self.from_, *(int(v) for v in np.round(exact[1:-1])), self.to]
        if len(set(near)) < self.count or (not self.log and not np.array_equal(near, exact)):
            ends = f"from {self.from_} to {self.to}"
            raise BadInput(f"count: {self.count} values {ends} are not different whole numbers")
        return near


def rounded(value: float) -> float:
    """The value to 15 digits."""
    return float(f"{value:.15g}")


def read_grid(path: Path) -> Grid:
    """The grid in a file; every mistake in the file raises an error of one line that names the key."""
    return grid_from(read_text(path, "file", "TOML", tomllib.loads))


def grid_from(content: dict[str, Any]) -> Grid:
    """The grid that a parsed sweep file describes."""
    for name in content:
        if name in setting_names() and name != "seeds":
            raise BadInput(f"{name}: a setting must stand in [base] or [axes], not at the top level")
    file = SweepFile(**content)
    import_own_models(file)
    base = in_plain_words(file.base)
    for name, value in base.items():
        check_name("base", name)
        base[name] = setting(f"base.{name}", name, value)
    axes = [Axis((name,), tuple((v,) for v in values)) for name, values in listed("axes", file.axes)]
    for axis in axes:
        refuse_repeats(f"axes.{axis.dimension}", axis)
    axes += [zipped(f"zip[{number}]", entry) for number, entry in enumerate(file.zip, 1)]
    refuse_twice(base, axes)
    grid = Grid(base, tuple(axes), seed_list(file.seeds), file.points, file.summary)
    grid.check()
    return grid


def setting_names() -> tuple[str, ...]:
    """Every setting of a task, of the known models, and of training."""
    records: tuple[type[Record], ...] = (Task, *KNOWN.values(), Training)
    return ("model", "data", *dict.fromkeys(name for record in records for name in record.model_fields))


def in_plain_words(base: dict[str, Any]) -> dict[str, Any]:
    """In Python the model of a sweep can also be given as an object or a class: its name and its fields."""
    model = base.get("model")
    if isinstance(model, type) and issubclass(model, Model):
        return {**base, "model": model.kind}
    if not isinstance(model, Model):
        return dict(base)
    fields = {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}
    if twice := fields.keys() & base.keys():
        raise BadInput(f"base.{min(twice)}: is given twice, by itself and in model {type(model).__name__}(..)")
    return {**base, "model": model.kind, **fields}


def import_own_models(file: SweepFile) -> None:
    """Import the users' own models that the file names, so that their fields are known settings."""
    for table in file.tables:
        models = table.get("model")
        for name in models if isinstance(models, list) else [models]:
            if isinstance(name, str) and ":" in name:
                import_model(name)


def check_name(where: str, name: str) -> None:
    if name in ("seed", "seeds"):
        raise BadInput(f"{where}.{name}: must stand at the top level, as seeds = 20, a list or a range")
    if name not in setting_names():
        raise BadInput(f"{where}.{unknown(name, tuple(s for s in setting_names() if s not in ('seed', 'seeds')))}")


def setting(where: str, name: str, value: Any) -> Any:
    """One value: a scalar or, for a covariance, numbers; a file is read now, so that the store has them."""
    if isinstance(value, str) and name in SPECTRA and value.endswith(".npy"):
        try:
            return load_array(where, value).tolist()
        except ValueError as error:
            raise BadInput(str(error)) from None
    if isinstance(value, list) and name not in SPECTRA:
        raise BadInput(f"{where}: {short(value)} must be a single value; list several values in [axes]")
    if name == "samples" and value == math.inf:
        return "inf"
    for part in flattened([value]):
        if not isinstance(part, bool | int | float | str):
            raise BadInput(f"{where}: {short(part)} must be a number, a text or true/false")
        if isinstance(part, float) and not math.isfinite(part):
            raise BadInput(f"{where}: {part!r} must be a finite number")
        if (type(part) is int or (name == "samples" and type(part) is float)) and abs(part) >= 2**63:
            raise BadInput(f"{where}: {short(part)} must be less than 2^63")
    return value


def flattened(value: list[Any]) -> list[Any]:
    return [v for part in value for v in (flattened(part) if isinstance(part, list) else [part])]


def listed(where: str, entries: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The settings of a table of axes, each with its values."""
    for name in entries:
        check_name(where, name)
    return [(name, axis_values(f"{where}.{name}", name, values)) for name, values in entries.items()]


def axis_values(where: str, name: str, values: Any) -> list[Any]:
    values = spread(where, values)
    if not isinstance(values, list):
        raise BadInput(f"{where}: {short(values)} must be a list or a range {{ from, to, step or count, log }}")
    if not 1 <= len(values) <= LONGEST:
        raise BadInput(f"{where}: has {len(values)} values, must have 1 to {LONGEST}")
    return [setting(where, name, value) for value in values]


def spread(where: str, given: Any) -> Any:
    """The values of a range; anything else stays as it is."""
    try:
        return Range(**given).values() if isinstance(given, dict) else given
    except BadInput as error:
        raise BadInput(f"{where}.{error}") from None


def refuse_repeats(where: str, axis: Axis) -> None:
    """Raise an error if a value occurs twice in the setting that names a dimension; others may have repeats."""
    values = [row[0] for row in axis.values]
    for number, value in enumerate(values[:1000]):
        if value in values[:number]:
            raise BadInput(f"{where}: {short(value)} is listed twice")


def zipped(where: str, entry: dict[str, Any]) -> Axis:
    """The axis of one `[[zip]]` table."""
    columns = listed(where, entry)
    if not columns:
        raise BadInput(f"{where}: is empty, must list at least one setting")
    (first, longest), *others = columns
    for name, values in others:
        if len(values) != len(longest):
            both = f"{first} has {len(longest)}; both must have the same number"
            raise BadInput(f"{where}.{name}: has {len(values)} values, {both}")
    axis = Axis(tuple(name for name, _ in columns), tuple(zip(*(values for _, values in columns), strict=True)))
    refuse_repeats(f"{where}.{first}", axis)
    return axis


def refuse_twice(base: dict[str, Any], axes: list[Axis]) -> None:
    seen = dict.fromkeys(base, "base")
    for axis in axes:
        for name in axis.names:
            if name in seen:
                raise BadInput(f"{name}: stands in {seen[name]} and in another axis; give it once")
            seen[name] = "axes"


def seed_list(given: Any) -> tuple[int, ...]:
    given = spread("seeds", given)
    if type(given) is int:
        if not 1 <= given <= LONGEST:
            raise BadInput(f"seeds: {short(given)} must be 1 to {LONGEST} runs, a list or a range")
        return tuple(range(given))
    if not isinstance(given, list) or not 1 <= len(given) <= LONGEST:
        raise BadInput(f"seeds: {short(given)} must be a number of runs, a list or a range")
    for seed in given:
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise BadInput(f"seeds: {short(seed)} must be a whole number from 0 to 2^63 - 1")
    if len(set(given)) < len(given):
        raise BadInput("seeds: one of them is listed twice")
    return tuple(given)


def short(value: Any) -> str:
    """A value as text of at most 60 characters."""
    text = shown(value)
    return text if len(text) <= 60 else text[:57] + "..."
