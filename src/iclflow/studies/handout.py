"""The folder of a figure, complete enough to be handed on, and the settings of its runs in words.

README.md       what the figure shows, what is in the folder, how to make it again, how long that takes
NAME.pdf, .png, .svg
NAME.py         the program that draws it; `python NAME.py` draws it again
NAME*.csv       the numbers that are drawn
settings/       one .toml per run, and its initial weights as .npz where the figure sets them
"""

import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from iclflow.errors import IclflowError
from iclflow.experiment import Experiment
from iclflow.studies.study import STUDIES, Result, Study

__all__ = ["as_toml", "draw_again", "in_words", "write_handout"]

IMAGES = ("pdf", "png", "svg")
SCRIPT_END = """

if __name__ == "__main__":
    from iclflow.studies.handout import draw_again

    draw_again("{name}", fast={fast})
"""
ALWAYS = ("model", "dim", "context", "heads", "init", "samples")  # shown even at their defaults
FEW = 6  # values are listed up to this number, beyond it as a range


def write_handout(where: Path, study: Study, result: Result, facts: dict[str, Any], fast: bool) -> None:
    """Write everything that belongs to a figure into its folder."""
    name, source = study.name, Path(inspect.getfile(study.function)).read_text()
    write_pictures(where, name, result)
    (where / f"{name}.py").write_text(source.rstrip("\n") + "\n" + SCRIPT_END.format(name=name, fast=fast))
    for label, experiment in result.runs.items():
        (where / "settings").mkdir(exist_ok=True)
        weights = result.weights.get(label)
        (where / "settings" / f"{file_name(label)}.toml").write_text(as_toml(name, label, experiment, bool(weights)))
        if weights:
            arrays: dict[str, Any] = {k: np.asarray(w) for k, w in weights.items()}
            np.savez(where / "settings" / f"{file_name(label)}.npz", **arrays)
    (where / "README.md").write_text(readme(name, result, facts, fast))


def draw_again(name: str, fast: bool) -> None:
    """Write pictures and tables into the current directory, and print what was measured."""
    result = STUDIES[name].measure(fast=fast)
    write_pictures(Path(), name, result)
    print(*result.measured, sep="\n")


def write_pictures(where: Path, name: str, result: Result) -> None:
    """Write the picture in three formats, and its numbers."""
    assert result.picture is not None
    for kind in IMAGES:
        result.picture.savefig(where / f"{name}.{kind}", metadata={} if kind == "png" else {"Creator": "iclflow"})
    for file, numbers in tables(name, result).items():
        numbers.to_csv(where / file, index=False, float_format="%.8g")


def tables(name: str, result: Result) -> dict[str, Any]:
    """The tables by their files' names."""
    return {f"{'-'.join(filter(None, (name, table)))}.csv": numbers for table, numbers in result.tables.items()}


def readme(name: str, result: Result, facts: dict[str, Any], fast: bool) -> str:
    """What the folder holds, in words."""
    command = f"iclflow reproduce {name} --out results" + (" --fast" if fast else "")
    files = [
        (", ".join(f"{name}.{kind}" for kind in IMAGES), "the figure"),
        (f"{name}.py", "the program that draws it"),
        *((file, f"numbers: {', '.join(map(str, numbers.columns))}") for file, numbers in tables(name, result).items()),
        ("settings/", f"settings of {len(result.runs)} runs") if result.runs else ("", ""),
        ("piece.json", "all of this for programs: gaps, settings, versions, digests of the files"),
    ]
    lines = [
        f"# {facts['title']}",
        f"Source: {facts['source']} (arXiv 2501.16265). {facts['see']}",
        "## Distance of theory from simulation",
        "\n".join(f"- {measured}" for measured in result.measured),
        "## Files",
        "\n".join(f"- `{file}`: {what}" for file, what in files if file),
        "## How to make it again",
        f"```console\n{command}\npython {name}.py\n```",
        f"Either needs iclflow {facts['versions'].get('iclflow', '')}; the last time took {facts['seconds']:.1f} s."
        " The second command writes pictures and tables into the current directory.",
    ]
    if result.runs:
        repeat = " (with `--weights FILE.npz` where there is one)" if result.weights else ""
        lines.append(f"Each file of `settings/` repeats one run: `iclflow train --config FILE.toml`{repeat}.")
        lines.append(
            "| setting | value |\n| --- | --- |\n" + "\n".join(f"| {k} | {v} |" for k, v in in_words(facts["runs"]))
        )
    return "\n\n".join(lines) + "\n"


# --- settings ---------------------------------------------------------------------------------------------------------


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
    shown = []
    for name in dict.fromkeys(name for run in runs.values() for name in run):
        values = [run.get(name) for run in runs.values()]
        usual = values == [default.get(name) for default in defaults]
        if (name in ALWAYS or not usual) and any(value is not None for value in values):
            shown.append((name, listed(values) + ("; –" if None in values else "")))
    return shown


def default_settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings of a run of the same model would be if none were given."""
    try:
        return Experiment.from_flat({"model": run.get("model")}).flat()
    except IclflowError:  # a model of one's own
        return {}


def listed(values: Iterable[Any]) -> str:
    """The different values that are set: few one by one, many numbers as a range."""
    found: list[Any] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    if len(found) <= FEW:
        return "; ".join(map(spoken, found))
    if all(isinstance(value, int | float) for value in found):
        return f"{len(found)} values, {spoken(min(found))} to {spoken(max(found))}"
    return "; ".join([*map(spoken, found[: FEW - 1]), f".. ({len(found)} in all)"])


def spoken(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.6g}"
    return ", ".join(map(spoken, value)) if isinstance(value, list | tuple) else str(value)
