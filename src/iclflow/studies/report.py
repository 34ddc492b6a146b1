"""The outcomes of a reproduction, and its report: figures with what to see and how to run them, claims with errors."""

import base64
import platform
import re
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from iclflow.studies import BEYOND, NAMES, SUBJECTS
from iclflow.studies.folder import Piece, place
from iclflow.studies.handout import in_words
from iclflow.studies.maths import bare, with_maths
from iclflow.studies.study import ELSEWHERE
from iclflow.system.atomic import write_file
from iclflow.versions import versions

__all__ = ["Outcome", "Reproduction", "place_in_paper", "write_report"]

PLACES = (  # the order of the paper: where the equations, figures and sections stand that studies refer to
    "Sec. 2", "Eq. 1", "Eq. 2", "Eq. 3", "Eq. 4", "Eq. 5",
    "Eq. 6", "Eq. 7", "Eq. 8", "Eq. 9", "Fig. 1", "Eq. 10", "Sec. 3", "Eq. 11", "Eq. 12", "Eq. 13", "Eq. 14", "Eq. 15",
    "Eq. 16", "Eq. 17", "Eq. 18", "Eq. 19", "Fig. 3", "Sec. 4", "Eq. 20",
    "Eq. 21", "Eq. 22", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 11", "Fig. 12", "Fig. 14",
)  # fmt: skip


def place_in_paper(source: str) -> int:
    """The number of the first place that a source names; what is beyond the paper comes last."""
    first = re.match(r"(Eq|Fig|Sec)\. \d+", source)
    return PLACES.index(first.group()) if first and first.group() in PLACES else len(PLACES)


@dataclass(frozen=True)
class Outcome:
    """A piece with its record, or with the error that prevented it."""

    piece: Piece
    record: dict[str, Any] | None
    reused: bool = False
    error: str | None = None

    def __str__(self) -> str:
        name = self.piece[1] if self.piece[0] == "figures" else f"claims: {self.piece[1]}"
        if self.record is None:
            return f"{name:28s} FAILED  {self.error}"
        how = f"{'cached':>11s}" if self.reused else f"{self.record['seconds']:9.1f} s"
        return f"{name:28s}{how}   {headline(self.record)}"


def headline(record: dict[str, Any]) -> str:
    """The most important number of a piece in a few words."""
    if "claims" in record:
        held = sum(claim["status"] == "pass" for claim in record["claims"])
        return f"{held} of {len(record['claims'])} claims hold"
    gap = record["gaps"][0]
    return f"{gap['what']}: {gap['measured']:.2g}"


@dataclass
class Reproduction:
    """Everything that is in the output directory now."""

    out: Path
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)

    def records(self, kind: str) -> dict[str, dict[str, Any]]:
        """The records of all pieces of a kind by name."""
        return {o.piece[1]: o.record for o in self.outcomes if o.piece[0] == kind and o.record}

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """The records of the figures by name, in the order of the paper, then those beyond it."""
        made = self.records("figures")
        return {name: made[name] for name in (*NAMES, *BEYOND) if name in made}

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The measured claims: in the order of the paper, then those beyond it by subject."""
        measured = self.records("claims")
        subjects = dict.fromkeys([*(s for chapter in SUBJECTS.values() for s in chapter), *sorted(measured)])
        by_subject = [claim for s in subjects if s in measured for claim in measured[s]["claims"]]
        return sorted(by_subject, key=lambda claim: place_in_paper(claim["source"]))

    @property
    def failed(self) -> list[Outcome]:
        """The pieces that could not be made."""
        return [o for o in self.outcomes if o.error is not None]

    @property
    def broken_claims(self) -> list[str]:
        """The ids of the claims that do not hold."""
        return [claim["id"] for claim in self.claims if claim["status"] != "pass"]


def write_report(reproduction: Reproduction) -> None:
    """Write index.html, which needs no network."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "maths": with_maths, "bare": bare}
    template = environment.from_string(
        resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    made, claims = reproduction.figures, reproduction.claims
    chapters = {
        "Claims of the paper": [claim for claim in claims if claim["source"] != ELSEWHERE],
        "Beyond the paper": [claim for claim in claims if claim["source"] == ELSEWHERE],
    }
    page = template.render(
        figures=[shown(reproduction.out, name, made[name]) for name in NAMES if name in made],
        missing=[name for name in NAMES if name not in made],
        beyond=[shown(reproduction.out, name, made[name]) for name in BEYOND if name in made],
        missing_beyond=[name for name in BEYOND if name not in made],
        failed=[{"name": o.piece[1], "error": o.error} for o in reproduction.failed],
        claims=claims,
        chapters={name: own for name, own in chapters.items() if own},
        held=len(claims) - len(reproduction.broken_claims),
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
    """What the template needs of a figure: its record, the picture itself, its settings and its files."""
    picture = base64.b64encode((place(out, ("figures", name)) / f"{name}.svg").read_bytes()).decode()
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
