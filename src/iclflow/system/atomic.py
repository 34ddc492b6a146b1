"""Files and directories that appear all at once: written beside their place, forced to the disk, renamed last.

The only writer of results in this package. A name that ends in `.partial` is what a process that was killed has left.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iclflow.errors import BadInput, NoRoom

__all__ = [
    "NO_ROOM",
    "files_below",
    "no_room",
    "replace_file",
    "room_or_complaint",
    "sync",
    "write_file",
    "written_whole",
]

# What a full disk, a read-only one or one that fails says while we write; a place is checked before the first byte.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EIO)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A hidden directory to fill; it takes the place of `path` if the block ends well and vanishes if not."""
    scratch = scratch_of(path)
    try:
        with room_or_complaint(path):
            scratch.mkdir(parents=True)
            yield scratch
            force_to_disk(scratch)
            move_into_place(scratch, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_file(path: Path, content: str | bytes) -> None:
    """Replace one file; a reader never sees half of it, and what the disk refuses is one line."""
    with room_or_complaint(path):
        replace_file(path, content)


def replace_file(path: Path, content: str | bytes) -> None:
    """The same, with the errors of the operating system."""
    scratch = scratch_of(path)
    try:
        with scratch.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync(path.parent)


def scratch_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


@contextmanager
def room_or_complaint(path: Path) -> Iterator[None]:
    """What the operating system refuses, in one line: no room is not the user's mistake, the rest is."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(path, error) from None
        raise BadInput(f"out: cannot write {str(path)!r}: {os.strerror(error.errno or 0)}") from None


def no_room(path: Path, error: OSError) -> NoRoom:
    """A write that failed, in words; what was there before is untouched by it."""
    return NoRoom(f"out: cannot write {str(path)!r}: {os.strerror(error.errno or errno.EIO)}")


def move_into_place(scratch: Path, path: Path) -> None:
    """A directory cannot be renamed over a full one, so an old one steps aside first."""
    if path.exists():
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
        path.rename(aside)
        scratch.rename(path)
        shutil.rmtree(aside)
    else:
        scratch.rename(path)
    sync(path.parent)


def files_below(where: Path) -> Iterator[Path]:
    """All files of a directory, in a fixed order."""
    return (f for f in sorted(where.rglob("*")) if f.is_file())


def force_to_disk(where: Path) -> None:
    for path in (*where.rglob("*"), where):
        sync(path)


def sync(path: Path) -> None:
    """Onto the disk: a file's content, or the names in a directory."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
