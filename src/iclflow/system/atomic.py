"""Files and directories that appear all at once: written under a temporary name, forced to disk, renamed last.

All results of this package are written here. A name that ends in `.partial` was left behind by a killed process.
"""

import errno
import glob
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
    "scratch_of",
    "scratches_of",
    "sync",
    "write_and_sync",
    "write_file",
    "written_whole",
]

# Error codes of a full, read-only or failing disk. Permissions are checked before the first byte is written.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EIO)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A hidden directory to fill; it replaces `path` if the block succeeds and is removed if it raises."""
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
    """Replace one file; a reader never sees half of it, and a refused write becomes an error of one line."""
    with room_or_complaint(path):
        replace_file(path, content)


def replace_file(path: Path, content: str | bytes) -> None:
    """The same, but errors of the operating system are raised as they are."""
    scratch = scratch_of(path)
    try:
        write_and_sync(scratch, content.encode() if isinstance(content, str) else content)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_and_sync(path: Path, content: bytes) -> None:
    """Write a file and force it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def scratch_of(path: Path) -> Path:
    """A hidden temporary name in the same directory."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def scratches_of(path: Path) -> list[Path]:
    """The files that have such a name."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.partial"))


@contextmanager
def room_or_complaint(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into `NoRoom` if the disk is at fault, otherwise into `BadInput`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(path, error) from None
        raise BadInput(f"out: cannot write {str(path)!r}: {os.strerror(error.errno or 0)}") from None


def no_room(path: Path, error: OSError) -> NoRoom:
    """The error for a failed write; whatever was at `path` before is unchanged."""
    return NoRoom(f"out: cannot write {str(path)!r}: {os.strerror(error.errno or errno.EIO)}")


def move_into_place(scratch: Path, path: Path) -> None:
    """Rename `scratch` to `path`; an existing directory is first moved aside, because it cannot be renamed over."""
    if path.exists():
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
        path.rename(aside)
        scratch.rename(path)
        shutil.rmtree(aside)
    else:
        scratch.rename(path)
    sync(path.parent)


def files_below(where: Path) -> Iterator[Path]:
    """All files in a directory and its subdirectories, in a fixed order."""
    return (f for f in sorted(where.rglob("*")) if f.is_file())


def force_to_disk(where: Path) -> None:
    """Sync a directory and everything in it."""
    for path in (*where.rglob("*"), where):
        sync(path)


def sync(path: Path) -> None:
    """Force the content of a file, or the list of names in a directory, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
