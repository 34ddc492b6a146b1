"""Regular files alone are opened: a pipe or a device in a directory of ours could be read for ever."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

__all__ = ["open_regular"]


def open_regular(path: Path) -> BufferedReader:
    """A file open for reading; raises `OSError` for anything else, without waiting for it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, "is not a regular file", str(path))
    return open(handle, "rb")
