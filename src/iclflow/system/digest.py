"""SHA-256 digests of files and of anything that JSON can hold."""

import hashlib
import json
from pathlib import Path
from typing import Any

from iclflow.system.regular import open_regular

__all__ = ["canonical", "digest", "file_digest", "json_digest"]


def digest(*parts: str | bytes | memoryview) -> str:
    """The digest of strings and bytes, one after the other."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else part)
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """The digest of a file's content; raises `OSError` if it is no regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(content: Any) -> str:
    """The content as JSON, the same string for any order of the keys."""
    return json.dumps(content, sort_keys=True, allow_nan=False)


def json_digest(content: Any) -> str:
    """The digest of anything that JSON can hold."""
    return digest(canonical(content))
