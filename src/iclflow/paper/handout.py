"""The folder of a figure, complete enough to be handed on.

README.md       what the figure shows, what is in the folder, how to make it again, how long that takes
NAME.pdf, .png, .svg
NAME.py         the program that draws it; `python NAME.py` draws it again
NAME*.csv       the numbers that are drawn
settings/       one .toml per run, and its initial weights as .npz where the figure sets them
"""

from pathlib import Path
from typing import Any

import numpy as np

from iclflow.paper.drawn import Drawn
from iclflow.paper.settings import as_toml, file_name, in_words

__all__ = ["draw_again", "write_handout"]

IMAGES = ("pdf", "png", "svg")
SCRIPT_END = """

if __name__ == "__main__":
    from iclflow.paper.handout import draw_again

    draw_again("{name}", draw(fast={fast}))
"""


def write_handout(where: Path, name: str, drawn: Drawn, facts: dict[str, Any], source: str, fast: bool) -> None:
    """Write everything that belongs to a figure into its folder."""
    write_pictures(where, name, drawn)
    (where / f"{name}.py").write_text(source.rstrip("\n") + "\n" + SCRIPT_END.format(name=name, fast=fast))
    for label, experiment in drawn.experiments.items():
        (where / "settings").mkdir(exist_ok=True)
        weights = drawn.weights.get(label)
        (where / "settings" / f"{file_name(label)}.toml").write_text(as_toml(name, label, experiment, bool(weights)))
        if weights:
            arrays: dict[str, Any] = {k: np.asarray(w) for k, w in weights.items()}
            np.savez(where / "settings" / f"{file_name(label)}.npz", **arrays)
    (where / "README.md").write_text(readme(name, drawn, facts, fast))


def draw_again(name: str, drawn: Drawn) -> None:
    """Write pictures and tables into the current directory, and print the gaps."""
    write_pictures(Path(), name, drawn)
    print(*drawn.gaps, sep="\n")


def write_pictures(where: Path, name: str, drawn: Drawn) -> None:
    """Write the picture in three formats, and its numbers."""
    for kind in IMAGES:
        drawn.figure.savefig(where / f"{name}.{kind}", metadata={} if kind == "png" else {"Creator": "iclflow"})
    for file, numbers in tables(name, drawn).items():
        numbers.to_csv(where / file, index=False, float_format="%.8g")


def tables(name: str, drawn: Drawn) -> dict[str, Any]:
    """The tables by their files' names."""
    return {f"{'-'.join(filter(None, (name, table)))}.csv": numbers for table, numbers in drawn.numbers.items()}


def readme(name: str, drawn: Drawn, facts: dict[str, Any], fast: bool) -> str:
    """What the folder holds, in words."""
    command = f"iclflow reproduce {name} --out results" + (" --fast" if fast else "")
    files = [
        (", ".join(f"{name}.{kind}" for kind in IMAGES), "the figure"),
        (f"{name}.py", "the program that draws it"),
        *((file, f"numbers: {', '.join(map(str, numbers.columns))}") for file, numbers in tables(name, drawn).items()),
        ("settings/", f"settings of {len(drawn.experiments)} runs") if drawn.experiments else ("", ""),
        ("piece.json", "all of this for programs: gaps, settings, versions, digests of the files"),
    ]
    lines = [
        f"# {facts['title']}",
        f"Source: {facts['source']} (arXiv 2501.16265). {facts['see']}",
        "## Distance of theory from simulation",
        "\n".join(f"- {gap.what}: {gap.measured:.2g}" for gap in drawn.gaps),
        "## Files",
        "\n".join(f"- `{file}`: {what}" for file, what in files if file),
        "## How to make it again",
        f"```console\n{command}\npython {name}.py\n```",
        f"Either needs iclflow {facts['versions'].get('iclflow', '')}; the last time took {facts['seconds']:.1f} s."
        " The second command writes pictures and tables into the current directory.",
    ]
    if drawn.experiments:
        repeat = " (with `--weights FILE.npz` where there is one)" if drawn.weights else ""
        lines.append(f"Each file of `settings/` repeats one run: `iclflow train --config FILE.toml`{repeat}.")
        lines.append(
            "| setting | value |\n| --- | --- |\n" + "\n".join(f"| {k} | {v} |" for k, v in in_words(facts["runs"]))
        )
    return "\n\n".join(lines) + "\n"
