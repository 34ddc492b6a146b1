"""SHA-256, of files and of what can be written as JSON."""

import hashlib
import json
from pathlib import Path
from typing import Any

__all__ = ["canonical", "digest", "file_digest", "json_digest"]


def digest(*parts: str | bytes | memoryview) -> str:
    """Of texts and bytes, one after the other."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else part)
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """Of a file's bytes."""
    return digest(path.read_bytes())


def canonical(content: Any) -> str:
    """One text for one content, whatever the order of its keys."""
    return json.dumps(content, sort_keys=True, allow_nan=False)


def json_digest(content: Any) -> str:
    """Of anything that JSON can hold."""
    return digest(canonical(content))
