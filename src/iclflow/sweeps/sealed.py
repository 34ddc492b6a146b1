"""Small files that know whether they are whole, and are on the disk before their name is."""

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from iclflow.errors import DamagedStore

__all__ = ["force", "read_sealed", "write_sealed"]


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """JSON with its own digest, on the disk before its name is."""
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with scratch.open("wb") as file:
            file.write(sealed(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    force(path.parent)


def read_sealed(path: Path) -> dict[str, Any]:
    found = path.read_bytes()
    try:
        content = json.loads(found)
        content.pop("sha256")
        whole = sealed(content) == found
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedStore(f"{path}: is damaged")
    return content


def sealed(content: dict[str, Any]) -> bytes:
    """The file's bytes; a reader makes them again from what it has read, so that no altered byte goes unseen."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
    return json.dumps({**content, "sha256": digest}, indent=1).encode() + b"\n"


def force(path: Path) -> None:
    """Onto the disk: a file's content, or the names in a directory."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
