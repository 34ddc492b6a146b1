"""What has been made, and whether it is still up to date.

    index.html             the report
    figures/NAME/          NAME.pdf, .png, .svg, NAME.py, tables as .csv, settings/, README.md and piece.json
    claims/SUBJECT/        piece.json with every measured claim of a subject
    reproduction.json      marks the directory as a reproduction

A piece, one figure or the claims of one subject, is written completely or not at all. It is used again as long as its
fingerprint is that of the current program and none of its files has changed, piece.json included, which carries its own
digest.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from iclflow.errors import BadInput, DamagedStore
from iclflow.studies import FILES, SUBJECTS
from iclflow.system.atomic import files_below, room_or_complaint, write_file, written_whole
from iclflow.system.digest import canonical, digest, file_digest
from iclflow.system.manifest import read_manifest, write_manifest

__all__ = ["Piece", "clear_folder", "fingerprint", "finished", "keep", "open_folder", "place"]

PACKAGE = Path(__file__).parents[1]
MARK = "reproduction.json"
CHAPTERS = tuple(Path(__file__).parent / chapter for chapter in SUBJECTS)  # one file per subject
KINDS = ("figures", "claims")

Piece = tuple[str, str]  # ("figures", NAME) or ("claims", SUBJECT)


def open_folder(out: Path) -> None:
    """Create the directory or reopen an existing one; a directory that holds anything else is refused."""
    if out.exists():
        if not out.is_dir():
            raise BadInput(f"out: {str(out)!r} is a file; choose a directory")
        if not (out / MARK).is_file() and any(out.iterdir()):
            raise BadInput(f"out: {str(out)!r} holds something that is not a reproduction; choose another directory")
        if not os.access(out, os.W_OK | os.X_OK):
            raise BadInput(f"out: {str(out)!r} must be a directory that you can write to")
    with room_or_complaint(out):
        for kind in KINDS:
            (out / kind).mkdir(parents=True, exist_ok=True)
    if not (out / MARK).is_file():
        write_file(out / MARK, json.dumps({"made_by": "iclflow reproduce"}) + "\n")


def clear_folder(out: Path) -> None:
    """Remove what a process that was killed has half written; the caller holds the lock."""
    for leftover in out.glob(f"*/.*.{'[0-9a-f]' * 8}.*"):
        if leftover.suffix in (".partial", ".old") and leftover.parent.name in KINDS:
            shutil.rmtree(leftover, ignore_errors=True)


def place(out: Path, piece: Piece) -> Path:
    """The directory of a piece."""
    return out.joinpath(*piece)


def keep(out: Path, piece: Piece, fast: bool, facts: dict[str, Any], write: Callable[[Path], object]) -> dict[str, Any]:
    """Write a piece: `write(directory)` writes its files, and `facts` go into piece.json."""
    with written_whole(place(out, piece)) as scratch:
        write(scratch)
        files = {str(f.relative_to(scratch)): file_digest(f) for f in files_below(scratch)}
        record = {"name": piece[1], "fast": fast, "fingerprint": fingerprint(piece), **facts, "files": files}
        write_manifest(scratch / "piece.json", record)
    return record


def finished(out: Path, piece: Piece, fast: bool) -> dict[str, Any] | None:
    """The content of piece.json if the piece is complete, unchanged and made by the current program."""
    where = place(out, piece)
    try:
        record = read_manifest(where / "piece.json")
        same = record["fast"] == fast and record["fingerprint"] == fingerprint(piece)
        unchanged = all(file_digest(where / name) == known for name, known in record["files"].items())
    except (OSError, DamagedStore, KeyError, TypeError, AttributeError):
        return None
    return record if same and unchanged else None


def fingerprint(piece: Piece) -> str:
    """A digest of all that a piece depends on: the package, its versions, and of the subjects' files only its own."""
    kind, name = piece
    file = FILES[name].rpartition(".")[2] if kind == "figures" else name
    return digest(package_hash(), *map(source_hash, sorted(sources(f"{file}.py"))))[:16]


@cache
def package_hash() -> str:
    """A digest of the package without the subjects' files, and of the versions it runs with."""
    from iclflow.versions import versions

    shared = [f for f in sorted(PACKAGE.rglob("*.py")) if f.parent not in CHAPTERS]
    listing = "".join(f"{f.relative_to(PACKAGE)} {file_digest(f)}\n" for f in shared)
    return digest(listing, canonical(versions()))


def sources(name: str) -> set[str]:
    """The file of a subject, and those of other subjects that it imports."""
    others = re.findall(r"^from iclflow\.studies\.\w+\.(\w+) import", subject_file(name).read_text(), re.MULTILINE)
    return {name}.union(*(sources(f"{other}.py") for other in others))


@cache
def source_hash(name: str) -> str:
    return file_digest(subject_file(name))


def subject_file(name: str) -> Path:
    return next(chapter / name for chapter in CHAPTERS if (chapter / name).is_file())
