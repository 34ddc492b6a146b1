"""A check before large allocations: what would not fit into memory is refused with an error of one line."""

import os

from iclflow.errors import NoRoom

__all__ = ["available", "require"]

SHARE = 0.8  # of the available memory that one allocation may take


def available() -> int:
    """The bytes that can be allocated without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require(size: int, what: str) -> None:
    """Raise `NoRoom` if `what`, which needs `size` bytes, does not fit into the available memory."""
    limit = int(SHARE * available())
    if size > limit:
        raise NoRoom(f"memory: {what} needs {size / 2**30:.1f} GiB, must be at most {limit / 2**30:.1f} GiB here")
