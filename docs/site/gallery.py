"""The gallery: every figure with the command that makes it, drawn from a reproduction that fits this program."""

import ast
from pathlib import Path
from typing import Any

from names import module
from pages import copy, linked, write

SOURCES = ("figures", "beyond")


def figure_names() -> dict[str, tuple[str, ...]]:
    """The figures of the paper, in its order, and those beyond it."""
    from iclflow.paper import BEYOND, NAMES

    return {"The paper": NAMES, "Beyond the paper": BEYOND}


def picture(name: str, folders: list[Path]) -> tuple[Path, dict[str, Any]] | None:
    """The first folder's picture that the present program made, with its record; full runs come before small ones."""
    from iclflow.paper.folder import finished, place

    for folder in folders:
        for fast in (False, True):
            if (record := finished(folder, ("figures", name), fast)) is not None:
                return place(folder, ("figures", name)) / f"{name}.svg", record
    return None


def told(name: str, room: str) -> tuple[str, str]:
    """Title and text of a figure: the docstring of its file, which the report prints as well."""
    title, _, see = module(f"paper.{room}.{name.replace('-', '_')}").docstring.partition("\n")
    return title.rstrip("."), " ".join(see.split())


def source(name: str, room: str) -> str:
    """Which figure of the paper it is."""
    for node in module(f"paper.{room}.{name.replace('-', '_')}").tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCE":
            return str(ast.literal_eval(node.value))
    return ""


def write_gallery(target: Path, links: dict[str, str], folders: list[Path]) -> None:
    """Write the page, and copy the pictures that there are."""
    lines = [
        "# Gallery",
        "",
        "Every figure is made by one command. Solid lines are simulation, dashed lines theory.",
        "",
    ]
    for room, (chapter, names) in zip(SOURCES, figure_names().items(), strict=True):
        lines += [f"## {chapter}", ""]
        for name in names:
            title, see = told(name, room)
            lines += [f"### {title}", ""]
            found = picture(name, folders)
            if found is None:
                lines += ["*No picture was made when this site was built.*", ""]
                note = ""
            else:
                file, record = found
                copy(file, target / "pictures" / file.name)
                lines += [f"![{title}](pictures/{file.name})", ""]
                note = " --fast" if record["fast"] else ""
            lines += [see, "", f"```bash\niclflow reproduce {name} --out results{note}\n```", ""]
            small = "; the picture shows smaller runs than the paper's" if note else ""
            lines += [f"{source(name, room)}{small}.", ""]
    write(target / "gallery.md", linked("\n".join(lines), links))
