"""One writer at a time in a directory.

The lock is advisory (`flock`) and belongs to the open file, so the kernel releases it when the process ends, however it
ends, and no stale lock can remain. The file names the process that holds it, for people to read.
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from iclflow.errors import BadInput
from iclflow.system.regular import open_regular

__all__ = ["NAME", "Held", "holder", "is_held", "only_writer"]

NAME = ".lock"
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
IRREGULAR = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
LOCKLESS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


class Held(BadInput):
    """Another process holds the lock."""


@contextlib.contextmanager
def only_writer(store: Path, name: str = NAME, *, shared: bool = False, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock of a directory during the block; raises `Held` if another process has it.

    Args:
        store: the directory.
        name: the file that is locked.
        shared: together with others that share it, and with nobody else.
        patience: seconds to wait for others to release it.
    """
    path, end = store / name, time.monotonic() + patience
    while (handle := locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)) is None:
        if time.monotonic() >= end:
            raise Held(f"out: {str(store)!r} is being written by {holder(store, name)}, which holds {str(path)!r}")
        time.sleep(0.1)
    try:
        if not shared:
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())
        yield
    finally:
        os.close(handle)


def locked(path: Path, how: int) -> int | None:
    """The locked file; `None` if another process holds it, or has removed it just now."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno not in IRREGULAR:
            raise
        raise BadInput(f"out: {str(path)!r} must be a regular file") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BadInput(f"out: {str(path)!r} must be a regular file")
        fcntl.flock(handle, how | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except OSError as error:
        os.close(handle)
        if error.errno in LOCKLESS:
            why = os.strerror(error.errno)
            raise BadInput(
                f"out: {str(path.parent)!r} is on a file system without locks ({why}); choose another"
            ) from None
        if error.errno not in (*TAKEN, errno.ENOENT):
            raise
        return None
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def holder(store: Path, name: str = NAME) -> str:
    """The process that wrote its name into the lock last."""
    try:
        with open_regular(store / name) as file:
            owner = json.loads(file.read())
        return f"process {int(owner['pid'])} on {str(owner['host'])[:64]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def is_held(store: Path, name: str = NAME) -> bool:
    """Whether a process holds the lock now, alone."""
    try:
        with open_regular(store / name) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in TAKEN
    return False
