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
from typing import Any

import numpy as np

from iclflow.config import Task, Training
from iclflow.config.record import Record, unknown
from iclflow.config.spectra import load_array
from iclflow.errors import BadInput
from iclflow.models.base import KNOWN, Model, import_model
from iclflow.sweeps.grid import ALL_POINTS, Axis, Grid
from iclflow.system.files import read_text

__all__ = ["grid_from", "read_grid"]

TABLES = ("base", "axes", "zip", "seeds", "points", "summary")
RANGE = ("from", "to", "step", "count", "log")
LONGEST = 100_000  # values of one axis
LARGEST = 1e300  # number in a range, so that differences do not overflow
POINTS = 200
SPECTRA = ("spectrum", "task_spectrum")


def setting_names() -> tuple[str, ...]:
    """Every setting of a task, of the known models, and of training."""
    records: tuple[type[Record], ...] = (Task, *KNOWN.values(), Training)
    return ("model", "data", *dict.fromkeys(name for record in records for name in record.model_fields))


def read_grid(path: Path) -> Grid:
    """The grid in a file; every mistake in the file raises an error of one line that names the key."""
    content = read_text(path, "file", "TOML", tomllib.loads)
    return grid_from(content)


def grid_from(content: dict[str, Any]) -> Grid:
    """The grid that a parsed sweep file describes."""
    for name in content:
        if name in setting_names() and name != "seeds":
            raise BadInput(f"{name}: a setting must stand in [base] or [axes], not at the top level")
        if name not in TABLES:
            raise BadInput(unknown(name, TABLES))
    import_own_models(content)
    base = in_plain_words(table(content, "base"))
    for name, value in base.items():
        check_name("base", name)
        base[name] = setting(f"base.{name}", name, value)
    single = listed("axes", table(content, "axes"))
    for name, values in single:
        refuse_repeats(f"axes.{name}", values)
    axes = [Axis((name,), tuple((v,) for v in values)) for name, values in single]
    axes += [zipped(number, entry) for number, entry in enumerate(zip_tables(content), 1)]
    refuse_twice(base, axes)
    grid = Grid(base, tuple(axes), seed_list(content.get("seeds", 1)), point_count(content), summary_only(content))
    grid.check()
    return grid


def in_plain_words(base: dict[str, Any]) -> dict[str, Any]:
    """In Python the model of a sweep can also be given as an object or a class: its name and its fields."""
    model = base.get("model")
    if isinstance(model, type) and issubclass(model, Model):
        return {**base, "model": model.kind}
    if not isinstance(model, Model):
        return base
    fields = {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}
    if twice := fields.keys() & base.keys():
        raise BadInput(f"base.{min(twice)}: is given twice, by itself and in model {type(model).__name__}(..)")
    return {**base, "model": model.kind, **fields}


def import_own_models(content: dict[str, Any]) -> None:
    """Import the users' own models that the file names, so that their fields are known settings."""
    for entries in (table(content, "base"), table(content, "axes"), *zip_tables(content)):
        models = entries.get("model")
        for name in models if isinstance(models, list) else [models]:
            if isinstance(name, str) and ":" in name:
                import_model(name)


def table(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise BadInput(f"{name}: {short(value)} must be a table, [{name}]")
    return dict(value)


def zip_tables(content: dict[str, Any]) -> list[dict[str, Any]]:
    entries = content.get("zip", [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise BadInput("zip: must be given as [[zip]], one table for each group of settings that vary together")
    return entries


def check_name(where: str, name: str) -> None:
    if name in ("seed", "seeds"):
        raise BadInput(f"{where}.{name}: must stand at the top level, as seeds = 20, a list or a range")
    if name not in setting_names():
        raise BadInput(f"{where}.{unknown(name, tuple(s for s in setting_names() if s not in ('seed', 'seeds')))}")


def setting(where: str, name: str, value: Any) -> Any:
    """One checked value: a scalar or, for a covariance, numbers; a file is read now, so that the store has them."""
    if isinstance(value, str) and name in SPECTRA and value.endswith(".npy"):
        try:
            return load_array(where, value).tolist()
        except ValueError as error:
            raise BadInput(str(error)) from None
    if isinstance(value, list):
        for number in flattened(value):
            if isinstance(number, int) and too_large(name, number):
                raise BadInput(f"{where}: {short(number)} must be less than 2^63")
    if isinstance(value, list) and name not in SPECTRA:
        raise BadInput(f"{where}: {short(value)} must be a single value; list several values in [axes]")
    if isinstance(value, int | float) and not isinstance(value, bool) and too_large(name, value):
        raise BadInput(f"{where}: {short(value)} must be less than 2^63")
    if isinstance(value, float) and math.isnan(value):
        raise BadInput(f"{where}: nan must be a number")
    if isinstance(value, float) and math.isinf(value):
        if name == "samples" and value > 0:
            return "inf"
        raise BadInput(f"{where}: {value!r} must be a finite number")
    if not isinstance(value, bool | int | float | str | list):
        kind = "a table" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise BadInput(f"{where}: {kind} must be a number, a text or true/false")
    return value


def flattened(value: list[Any]) -> list[Any]:
    return [v for part in value for v in (flattened(part) if isinstance(part, list) else [part])]


def too_large(name: str, value: int | float) -> bool:
    """Whether a whole number exceeds 64 bits; the number of sequences may also be written as a float."""
    return (isinstance(value, int) or (name == "samples" and math.isfinite(value))) and abs(value) >= 2**63


def listed(where: str, entries: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The settings of a table of axes, each with its values."""
    columns = []
    for name, values in entries.items():
        check_name(where, name)
        columns.append((name, axis_values(f"{where}.{name}", name, values)))
    return columns


def axis_values(where: str, name: str, values: Any) -> list[Any]:
    if isinstance(values, dict):
        values = spread(where, values)
    if not isinstance(values, list):
        raise BadInput(f"{where}: {short(values)} must be a list or a range {{ from, to, step or count, log }}")
    if not 1 <= len(values) <= LONGEST:
        raise BadInput(f"{where}: has {len(values)} values, must have 1 to {LONGEST}")
    return [setting(where, name, value) for value in values]


def refuse_repeats(where: str, values: list[Any]) -> None:
    """Raise an error if a value occurs twice along a dimension."""
    for number, value in enumerate(values[:1000]):
        if value in values[:number]:
            raise BadInput(f"{where}: {short(value)} is listed twice")


def spread(where: str, given: dict[str, Any]) -> list[Any]:
    """The values of `{ from, to, step | count, log }`; whole numbers if both ends are whole."""
    for name in given:
        if name not in RANGE:
            raise BadInput(f"{where}.{unknown(name, RANGE)}")
    for name in ("from", "to"):
        if name not in given:
            raise BadInput(f"{where}.{name}: is missing; a range has from, to and step or count")
    for name in ("from", "to", "step"):
        value = given.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise BadInput(f"{where}.{name}: {short(value)} must be a finite number")
    log, (first, last) = given.get("log", False), (given["from"], given["to"])
    if not isinstance(log, bool):
        raise BadInput(f"{where}.log: {short(log)} must be true or false")
    if ("step" in given) == ("count" in given):
        raise BadInput(f"{where}.count: give either count or step")
    for name in ("from", "to", "step"):
        if abs(given.get(name, 0)) > LARGEST:
            raise BadInput(f"{where}.{name}: {short(given[name])} must be at most {LARGEST}")
    if not first < last:
        raise BadInput(f"{where}.to: {last} must be greater than from = {first}")
    integers = isinstance(first, int) and isinstance(last, int)
    if "step" in given:
        return by_step(where, first, last, given["step"], log)
    count = given["count"]
    if isinstance(count, bool) or not isinstance(count, int) or not 2 <= count <= LONGEST:
        raise BadInput(f"{where}.count: {short(count)} must be a whole number from 2 to {LONGEST}")
    if log and first <= 0:
        raise BadInput(f"{where}.from: {first} must be greater than 0 in a log range")
    values = (np.geomspace if log else np.linspace)(float(first), float(last), count)
    if not integers:
        return [float(first), *(rounded(v) for v in values[1:-1]), float(last)]
    near = [first, *(int(v) for v in np.round(values[1:-1])), last]
    if len(set(near)) < count or (not log and not np.array_equal(near, values)):
        raise BadInput(f"{where}.count: {count} values from {first} to {last} are not different whole numbers")
    return near


def rounded(value: float) -> float:
    """The value to 15 digits: 0.3 instead of 0.30000000000000004."""
    return float(f"{value:.15g}")


def by_step(where: str, first: int | float, last: int | float, step: int | float, log: bool) -> list[Any]:
    """The values from `first` in steps of `step`, up to `last`."""
    if log:
        raise BadInput(f"{where}.step: a log range takes count, not step")
    if not step > 0:
        raise BadInput(f"{where}.step: {step} must be greater than 0")
    steps = (last - first) / step * (1 + 1e-12)
    if not steps < LONGEST:
        raise BadInput(f"{where}.step: {step} makes {steps:.3g} values, must make at most {LONGEST}")
    values = [first + i * step for i in range(math.floor(steps) + 1)]
    return values if all(isinstance(v, int) for v in values) else [rounded(v) for v in values]


def zipped(number: int, entry: dict[str, Any]) -> Axis:
    """The axis of one `[[zip]]` table."""
    where = f"zip[{number}]"
    columns = listed(where, entry)
    if not columns:
        raise BadInput(f"{where}: is empty, must list at least one setting")
    refuse_repeats(f"{where}.{columns[0][0]}", columns[0][1])  # it names the dimension; others may have repeats
    for name, values in columns[1:]:
        if len(values) != len(columns[0][1]):
            first = f"{columns[0][0]} has {len(columns[0][1])}"
            raise BadInput(f"{where}.{name}: has {len(values)} values, {first}; both must have the same number")
    return Axis(tuple(name for name, _ in columns), tuple(zip(*(values for _, values in columns), strict=True)))


def refuse_twice(base: dict[str, Any], axes: list[Axis]) -> None:
    seen = dict.fromkeys(base, "base")
    for axis in axes:
        for name in axis.names:
            if name in seen:
                raise BadInput(f"{name}: stands in {seen[name]} and in another axis; give it once")
            seen[name] = "axes"


def seed_list(given: Any) -> tuple[int, ...]:
    if isinstance(given, dict):
        given = spread("seeds", given)
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= LONGEST:
            raise BadInput(f"seeds: {short(given)} must be 1 to {LONGEST} runs, a list or a range")
        given = list(range(given))
    if not isinstance(given, list) or not given or len(given) > LONGEST:
        raise BadInput(f"seeds: {short(given)} must be a number of runs, a list or a range")
    for seed in given:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise BadInput(f"seeds: {short(seed)} must be a whole number from 0 to 2^63 - 1")
    if len(set(given)) < len(given):
        raise BadInput("seeds: one of them is listed twice")
    return tuple(given)


def point_count(content: dict[str, Any]) -> int:
    points = content.get("points", POINTS)
    if points == "all":
        return ALL_POINTS
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= LONGEST:
        raise BadInput(f"points: {short(points)} must be a whole number from 2 to {LONGEST}, or 'all'")
    return points


def summary_only(content: dict[str, Any]) -> bool:
    summary = content.get("summary", False)
    if not isinstance(summary, bool):
        raise BadInput(f"summary: {short(summary)} must be true or false")
    return summary


def short(value: Any) -> str:
    """A value as text of at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a number too long to show"
    return text if len(text) <= 60 else text[:57] + "..."
