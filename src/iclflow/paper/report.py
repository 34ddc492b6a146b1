"""The report: every figure with what to see in it and how to run it, every claim with its error, in a single file."""

import base64
import platform
from importlib import resources
from pathlib import Path
from typing import Any

from iclflow.paper import BEYOND, NAMES
from iclflow.paper.folder import place
from iclflow.paper.maths import bare, with_maths
from iclflow.paper.outcomes import Reproduction
from iclflow.paper.settings import in_words
from iclflow.paper.sources import BEYOND as ELSEWHERE
from iclflow.system.atomic import write_file
from iclflow.versions import versions

__all__ = ["write_report"]


def write_report(reproduction: Reproduction) -> None:
    """Write index.html, which needs no network."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "maths": with_maths, "bare": bare}
    template = environment.from_string(
        resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    made = reproduction.figures
    page = template.render(
        figures=[shown(reproduction.out, name, made[name]) for name in NAMES if name in made],
        missing=[name for name in NAMES if name not in made],
        beyond=[shown(reproduction.out, name, made[name]) for name in BEYOND if name in made],
        missing_beyond=[name for name in BEYOND if name not in made],
        failed=[{"name": o.piece[1], "error": o.error} for o in reproduction.failed],
        claims=reproduction.claims,
        chapters=by_chapter(reproduction.claims),
        held=sum(claim["status"] == "pass" for claim in reproduction.claims),
        fast=any(record["fast"] for record in made.values()),
        seconds=sum(o.record["seconds"] for o in reproduction.outcomes if o.record),
        wall=reproduction.seconds,
        reused=sum(o.reused for o in reproduction.outcomes),
        pieces=len(reproduction.outcomes),
        machine=f"{platform.machine()}, {platform.system()}",
        versions=versions(),
    )
    write_file(reproduction.out / "index.html", page)


def by_chapter(claims: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The claims of the paper and those beyond it."""
    chapters = {"Claims of the paper": lambda source: source != ELSEWHERE, "Beyond the paper": ELSEWHERE.__eq__}
    found = {name: [claim for claim in claims if mine(claim["source"])] for name, mine in chapters.items()}
    return {name: own for name, own in found.items() if own}


def shown(out: Path, name: str, record: dict[str, Any]) -> dict[str, Any]:
    """What the template needs of a figure: its record, the picture itself, its settings and its files."""
    where = place(out, ("figures", name))
    picture = base64.b64encode((where / f"{name}.svg").read_bytes()).decode()
    runs = [file for file in sorted(record["files"]) if file.startswith("settings/")]
    return {
        **record,
        "picture": f"data:image/svg+xml;base64,{picture}",
        "settings": in_words(record["runs"]),
        "folder": f"figures/{name}",
        "main_files": sorted(set(record["files"]) - set(runs)),
        "run_files": runs,
    }


def number(value: float | int) -> str:
    """A number with two digits."""
    return "0" if value == 0 else f"{value:.2g}"
