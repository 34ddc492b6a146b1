"""The outcomes of a reproduction, piece by piece and together."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iclflow.claims import SUBJECTS
from iclflow.paper import BEYOND, NAMES
from iclflow.paper.folder import Piece
from iclflow.paper.sources import place_in_paper

__all__ = ["Outcome", "Reproduction"]


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

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """The records of the figures by name, in the order of the paper, then those beyond it."""
        made = {o.piece[1]: o.record for o in self.outcomes if o.piece[0] == "figures" and o.record}
        return {name: made[name] for name in (*NAMES, *BEYOND) if name in made}

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The measured claims: in the order of the paper, then those beyond it by subject."""
        measured = {o.piece[1]: o.record["claims"] for o in self.outcomes if o.piece[0] == "claims" and o.record}
        subjects = [*SUBJECTS, *sorted(measured.keys() - set(SUBJECTS))]
        by_subject = [claim for subject in subjects for claim in measured.get(subject, [])]
        return sorted(by_subject, key=lambda claim: place_in_paper(claim["source"]))

    @property
    def failed(self) -> list[Outcome]:
        """The pieces that could not be made."""
        return [o for o in self.outcomes if o.error is not None]

    @property
    def broken_claims(self) -> list[str]:
        """The ids of the claims that do not hold."""
        return [claim["id"] for claim in self.claims if claim["status"] != "pass"]
