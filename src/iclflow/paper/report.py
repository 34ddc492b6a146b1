"""The report: every figure with what to see in it and how to run it, every claim with its error, in a single file."""

import base64
import platform
from importlib import resources
from pathlib import Path
from typing import Any

from iclflow.paper import NAMES
from iclflow.paper.folder import place
from iclflow.paper.outcomes import Reproduction
from iclflow.system.atomic import write_file
from iclflow.versions import versions

__all__ = ["write_report"]


def write_report(reproduction: Reproduction) -> None:
    """Write index.html, which needs no network."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    template = environment.from_string(
        resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    made = reproduction.figures
    page = template.render(
        figures=[shown(reproduction.out, name, record) for name, record in made.items()],
        missing=[name for name in NAMES if name not in made],
        failed=[{"name": o.piece[1], "error": o.error} for o in reproduction.failed],
        claims=reproduction.claims,
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


def shown(out: Path, name: str, record: dict[str, Any]) -> dict[str, Any]:
    """What the template needs of a figure: its record, the picture itself, its seeds and its files."""
    where = place(out, ("figures", name))
    picture = base64.b64encode((where / f"{name}.svg").read_bytes()).decode()
    seeds = {run["seed"] + i for run in record["runs"].values() for i in range(run["seeds"])}
    files = sorted(record["files"], key=lambda f: (f.endswith(".toml"), f.endswith(".csv"), f))
    return {
        **record,
        "picture": f"data:image/svg+xml;base64,{picture}",
        "seeds": ", ".join(map(str, sorted(seeds))),
        "links": [f"figures/{name}/{file}" for file in files if not file.endswith(".svg")],
    }


def number(value: float | int) -> str:
    """A number with two digits."""
    return "0" if value == 0 else f"{value:.2g}"
