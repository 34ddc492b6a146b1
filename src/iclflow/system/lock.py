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
from collections.abc import Iterator
from pathlib import Path

from iclflow.errors import BadInput
from iclflow.system.regular import open_regular

__all__ = ["NAME", "holder", "is_held", "only_writer"]

NAME = ".lock"
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
LOCKLESS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


@contextlib.contextmanager
def only_writer(store: Path) -> Iterator[None]:
    """Hold the lock of a directory during the block; raises `BadInput` at once if another process holds it."""
    path = store / NAME
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(handle), os.stat(path)):
                raise OSError(errno.EWOULDBLOCK, "the one that held it has just removed it")
        except OSError as error:
            if error.errno in LOCKLESS:
                why = os.strerror(error.errno)
                raise BadInput(
                    f"out: {str(store)!r} is on a file system without locks ({why}); choose another"
                ) from None
            if error.errno not in TAKEN:
                raise
            raise BadInput(
                f"out: {str(store)!r} is being written by {holder(store)}, which holds {str(path)!r}"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())
        yield
    finally:
        os.close(handle)


def holder(store: Path) -> str:
    """The process that wrote its name into the lock last."""
    try:
        with open_regular(store / NAME) as file:
            owner = json.loads(file.read())
        return f"process {int(owner['pid'])} on {str(owner['host'])[:64]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def is_held(store: Path) -> bool:
    """Whether a process holds the lock now."""
    try:
        with open_regular(store / NAME) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in TAKEN
    return False
