"""The gallery: every figure with the command that makes it, drawn from a reproduction that fits this program."""

from pathlib import Path
from typing import Any

from pages import copy, linked, write


def figure_names() -> dict[str, tuple[str, ...]]:
    """The figures of the paper, in its order, and those beyond it."""
    from iclflow.studies import BEYOND, NAMES

    return {"The paper": NAMES, "Beyond the paper": BEYOND}


def picture(name: str, folders: list[Path]) -> tuple[Path, dict[str, Any]] | None:
    """The first folder's picture that the present program made, with its record; full runs come before small ones."""
    from iclflow.studies.folder import finished, place

    for folder in folders:
        for fast in (False, True):
            if (record := finished(folder, ("figures", name), fast)) is not None:
                return place(folder, ("figures", name)) / f"{name}.svg", record
    return None


def write_gallery(target: Path, links: dict[str, str], folders: list[Path]) -> None:
    """Write the page, and copy the pictures that there are."""
    from iclflow.studies import figure_named

    lines = [
        "# Gallery",
        "",
        "Every figure is made by one command. Solid lines are simulation, dashed lines theory.",
        "",
    ]
    for chapter, names in figure_names().items():
        lines += [f"## {chapter}", ""]
        for name in names:
            study = figure_named(name)
            lines += [f"### {study.title}", ""]
            found = picture(name, folders)
            if found is None:
                lines += ["*No picture was made when this site was built.*", ""]
                note = ""
            else:
                file, record = found
                copy(file, target / "pictures" / file.name)
                lines += [f"![{study.title}](pictures/{file.name})", ""]
                note = " --fast" if record["fast"] else ""
            lines += [study.text, "", f"```bash\niclflow reproduce {name} --out results{note}\n```", ""]
            small = "; the picture shows smaller runs than the paper's" if note else ""
            lines += [f"{study.source}{small}.", ""]
    write(target / "gallery.md", linked("\n".join(lines), links))
