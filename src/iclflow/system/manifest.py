"""Small JSON files that contain their own digest, so that a reader detects any change."""

import json
from pathlib import Path
from typing import Any

from iclflow.errors import DamagedStore
from iclflow.system.atomic import replace_file
from iclflow.system.digest import json_digest
from iclflow.system.regular import open_regular

__all__ = ["read_manifest", "with_digest", "write_manifest"]


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with its own digest; the file gets its name only once its content is on the disk."""
    replace_file(path, with_digest(content))


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of a file that `write_manifest` wrote; an error if a single byte has changed."""
    with open_regular(path) as file:
        data = file.read()
    try:
        content = json.loads(data)
        content.pop("sha256")
        intact = with_digest(content) == data
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise DamagedStore(f"{path}: is damaged")
    return content


def with_digest(content: dict[str, Any]) -> bytes:
    """The bytes of the file; a reader computes them again from what it has read, and compares."""
    return json.dumps({**content, "sha256": json_digest(content)}, indent=1).encode() + b"\n"
