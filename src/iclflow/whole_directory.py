"""Directories that appear all at once: written beside their place, forced to the disk, renamed last."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iclflow.errors import BadInput, NoRoom

__all__ = ["files_below", "room_or_complaint", "write_file_whole", "written_whole"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A hidden directory to fill; it takes the place of `path` if the block ends well and vanishes if not."""
    scratch = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with room_or_complaint(path):
            scratch.mkdir(parents=True)
            yield scratch
            force_to_disk(scratch)
            move_into_place(scratch, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_file_whole(path: Path, content: str | bytes) -> None:
    """The same for one file: a reader never sees half of it."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with room_or_complaint(path):
            scratch.write_bytes(content.encode() if isinstance(content, str) else content)
            with scratch.open("rb") as handle:
                os.fsync(handle.fileno())
            scratch.replace(path)
            sync_directory(path.parent)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


@contextmanager
def room_or_complaint(path: Path) -> Iterator[None]:
    """What the operating system refuses, in one line: no room is not the user's mistake, the rest is."""
    try:
        yield
    except OSError as error:
        line = f"out: cannot write {str(path)!r}: {os.strerror(error.errno or 0)}"
        raise (NoRoom(line) if error.errno in NO_ROOM else BadInput(line)) from None


def move_into_place(scratch: Path, path: Path) -> None:
    """A directory cannot be renamed over a full one, so an old one steps aside first."""
    if path.exists():
        aside = path.parent / f".{path.name}.{secrets.token_hex(4)}.old"
        path.rename(aside)
        scratch.rename(path)
        shutil.rmtree(aside)
    else:
        scratch.rename(path)
    sync_directory(path.parent)


def files_below(where: Path) -> Iterator[Path]:
    return (f for f in sorted(where.rglob("*")) if f.is_file())


def force_to_disk(where: Path) -> None:
    for file in files_below(where):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    for directory in [where, *(d for d in where.rglob("*") if d.is_dir())]:
        sync_directory(directory)


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
