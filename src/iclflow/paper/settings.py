"""The settings of a figure's runs: in few words for the report, and as files from which each run can be repeated."""

import json
from collections.abc import Mapping
from typing import Any

from iclflow.errors import IclflowError
from iclflow.experiment import Experiment

__all__ = ["as_toml", "file_name", "in_words"]

ALWAYS = ("model", "dim", "context", "heads", "init", "samples")  # shown even at their defaults
FEW = 6  # values are listed up to this number, beyond it as a range


def file_name(label: str) -> str:
    """A label with hyphens in place of all but letters, digits and dots."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in label).split())


def as_toml(name: str, label: str, experiment: Experiment, weights: bool = False) -> str:
    """Settings for `iclflow train --config FILE`; numbers, strings and lists are written alike in JSON and TOML."""
    rows = [f"{key} = {json.dumps(value)}" for key, value in experiment.flat().items() if value is not None]
    file = file_name(label)
    extra = f" --weights {file}.npz" if weights else ""
    return "\n".join([f"# {name}: {label}", f"# iclflow train --config {file}.toml{extra}", *rows, ""])


def in_words(runs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Names and values of all settings that differ from their defaults or from run to run, and of the main ones."""
    defaults = [default_settings(run) for run in runs.values()]
    names = dict.fromkeys(name for run in runs.values() for name in run)
    shown = []
    for name in names:
        values = distinct(run.get(name) for run in runs.values())
        usual = all(run.get(name) == default.get(name) for run, default in zip(runs.values(), defaults, strict=True))
        if (name in ALWAYS or not usual) and values:
            unset = any(run.get(name) is None for run in runs.values())
            shown.append((name, listed(values) + ("; –" if unset else "")))
    return shown


def default_settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings of a run of the same model would be if none were given."""
    try:
        return Experiment.from_flat({"model": run.get("model")}).flat()
    except IclflowError:  # a model of one's own
        return {}


def distinct(values: Any) -> list[Any]:
    """The values that are set, each of them once."""
    found: list[Any] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    return found


def listed(values: list[Any]) -> str:
    """Few values one by one, many numbers as a range."""
    if len(values) <= FEW:
        return "; ".join(map(spoken, values))
    if all(isinstance(value, int | float) for value in values):
        return f"{len(values)} values, {spoken(min(values))} to {spoken(max(values))}"
    return "; ".join([*map(spoken, values[: FEW - 1]), f".. ({len(values)} in all)"])


def spoken(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(spoken, value))
    return str(value)
