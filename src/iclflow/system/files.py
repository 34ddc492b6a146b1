"""Files that a user names: only regular ones are opened, and their sizes are known before anything is allocated.

A pipe, a device or a socket could be read for ever, a small archive can unpack to all memory, and the header of a
damaged array can promise more numbers than there are. Each of them is refused in one line.
"""

import json
import math
import os
import stat
import zipfile
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any

import numpy as np

from iclflow.errors import BadInput, NoRoom
from iclflow.system.memory import require

__all__ = ["first_line", "read_json", "read_npy", "read_npz", "read_text", "regular_file"]

LONGEST_TEXT = 64 * 2**20  # bytes of a file of settings
LONGEST_HEADER = 10_000  # bytes, of an array
SMALL, DENSEST = 2**30, 100  # bytes from which on an archive may not unpack to so many times its own size
DEPTH = 40  # of lists and tables inside each other
KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def regular_file(path: str | Path, field: str, most: int | None = None) -> Path:
    """The path, if it or what it links to is a regular file of at most so many bytes."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{field}: {str(path)!r} must be an existing file") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{field}: cannot read {str(path)!r} ({first_line(error)})") from None
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise BadInput(f"{field}: {str(path)!r} is {kind}, must be a regular file")
    if most is not None and found.st_size > most:
        raise BadInput(f"{field}: {str(path)!r} holds {found.st_size / 2**20:.0f} MiB, must be at most {most // 2**20}")
    return Path(path)


def first_line(error: Exception) -> str:
    """The beginning of an error message, short enough for a message of one line."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return (said.splitlines() or [""])[0][:120]


def read_text(path: str | Path, field: str, kind: str, parse: Callable[[str], Any]) -> Any:
    """What `parse` makes of the text of a file; whatever it raises becomes one line, as does what is nested too far."""
    file = regular_file(path, field, LONGEST_TEXT)
    try:
        content = parse(file.read_bytes().decode())
    except OSError as error:
        raise BadInput(f"{field}: cannot read {str(path)!r} ({first_line(error)})") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise BadInput(f"{field}: {str(path)!r} is not {kind} ({first_line(error)})") from None
    if nested(content, DEPTH):
        raise BadInput(f"{field}: {str(path)!r} has more than {DEPTH} levels inside each other")
    return content


def read_json(path: str | Path, field: str) -> Any:
    """The content of a JSON file."""
    return read_text(path, field, "JSON", json.loads)


def nested(content: Any, depth: int) -> bool:
    """Whether lists and tables are inside each other by more than a number of levels."""
    if not isinstance(content, list | dict):
        return False
    inside = content.values() if isinstance(content, dict) else content
    return depth == 0 or any(nested(one, depth - 1) for one in inside)


def read_npy(path: str | Path, field: str, most: int) -> np.ndarray:
    """The numbers in a `.npy` file, at most `most` bytes of them; refuses Python objects and headers that are wrong."""
    file = regular_file(path, field, most)
    try:
        with file.open("rb") as stream:
            array_bytes(stream, file.stat().st_size)
        return np.load(file, allow_pickle=False)
    except Exception as error:  # a damaged header can raise almost anything
        raise BadInput(f"{field}: cannot read {str(path)!r} as a .npy array ({first_line(error)})") from None


def read_npz(path: str | Path, field: str, most: int | None = None) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file; `most` bytes of them, or as many as there is room for as doubles, twice."""
    file = regular_file(path, field)
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            if most is not None and unpacked > most:
                raise BadInput(f"holds {unpacked / 2**20:.0f} MiB, must be at most {most // 2**20}")
            if unpacked > max(SMALL, DENSEST * file.stat().st_size):
                raise BadInput(
                    f"unpacks to {unpacked / 2**20:.0f} MiB, must be at most {SMALL // 2**20}"
                    f" or {DENSEST} times its own size"
                )
            needed = sum(doubles(archive, entry) for entry in archive.infolist())
        require(2 * needed, f"{field} {str(path)!r}, twice as doubles,")
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except NoRoom:
        raise
    except BadInput as error:
        raise BadInput(f"{field}: {str(path)!r} {error}") from None
    except Exception as error:  # a damaged archive can raise almost anything
        why = f"{type(error).__name__}: {first_line(error)}"
        raise BadInput(f"{field}: cannot read {str(path)!r} as npz ({why})") from None


def doubles(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """The bytes of an array of an archive once its numbers are doubles."""
    with archive.open(entry) as member:
        try:
            return array_bytes(member, entry.file_size)
        except BadInput as error:
            raise BadInput(f"has {entry.filename!r}, {error}") from None


def array_bytes(stream: IO[bytes] | BufferedIOBase, size: int) -> int:
    """The same of an array of `size` bytes; refuses a header that is long, names Python objects or has another size."""
    start = stream.read(12)
    major, length = start[6:7], int.from_bytes(start[8:10] if start[6:7] == b"\x01" else start[8:12], "little")
    if start[:6] != b"\x93NUMPY" or major not in (b"\x01", b"\x02") or length > LONGEST_HEADER:
        raise BadInput("which is not an array")
    stream.seek(0)
    np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if major == b"\x01" else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise BadInput("which has Python objects, which are never loaded")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise BadInput(f"whose size is not that of its shape {shape}")
    return math.prod(shape) * max(dtype.itemsize, np.dtype(float).itemsize)
