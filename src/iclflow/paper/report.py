"""The page: what was run, every figure with what to see in it, every claim with its error; one file, no network."""

import base64
import platform
from importlib import resources
from typing import TYPE_CHECKING, Any

from iclflow.paper import NAMES
from iclflow.paper.folder import place
from iclflow.system.atomic import write_file
from iclflow.versions import versions

if TYPE_CHECKING:
    from iclflow.paper.runner import Reproduction

__all__ = ["write_report"]


def write_report(whole: "Reproduction") -> None:
    from jinja2 import Environment, StrictUndefined

    room = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    room.filters["number"] = number
    template = room.from_string(resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8"))
    made = whole.figures
    page = template.render(
        figures=[shown(whole, name, record) for name, record in made.items()],
        missing=[name for name in NAMES if name not in made],
        failed=[{"name": o.piece[1], "error": o.error} for o in whole.failed],
        claims=whole.claims,
        held=sum(claim["status"] == "pass" for claim in whole.claims),
        fast=any(record["fast"] for record in made.values()),
        seconds=sum(o.record["seconds"] for o in whole.outcomes if o.record),
        wall=whole.seconds,
        reused=sum(o.reused for o in whole.outcomes),
        pieces=len(whole.outcomes),
        machine=f"{platform.machine()}, {platform.system()}",
        versions=versions(),
    )
    write_file(whole.out / "index.html", page)


def shown(whole: "Reproduction", name: str, record: dict[str, Any]) -> dict[str, Any]:
    where = place(whole.out, ("figures", name))
    picture = base64.b64encode((where / f"{name}.svg").read_bytes()).decode()
    seeds = {run["seed"] + i for run in record["runs"].values() for i in range(run["seeds"])}
    files = sorted(record["files"], key=lambda f: (f.endswith(".toml"), f.endswith(".csv"), f))
    return {
        **record,
        "picture": f"data:image/svg+xml;base64,{picture}",
        "seeds": ", ".join(map(str, sorted(seeds))),
        "links": [f"figures/{name}/{file}" for file in files if not file.endswith(".svg")],
    }


def number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"
