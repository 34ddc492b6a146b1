"""Small files that know whether they are whole, and are on the disk before their name is."""

import json
from pathlib import Path
from typing import Any

from iclflow.errors import DamagedStore
from iclflow.system.atomic import replace_file
from iclflow.system.digest import json_digest

__all__ = ["read_manifest", "write_manifest"]


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """JSON with its own digest, on the disk before its name is."""
    replace_file(path, sealed(content))


def read_manifest(path: Path) -> dict[str, Any]:
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
    return json.dumps({**content, "sha256": json_digest(content)}, indent=1).encode() + b"\n"
