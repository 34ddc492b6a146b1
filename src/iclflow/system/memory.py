"""Ask before allocating: what would not fit is refused with a sentence."""

import os

from iclflow.errors import NoRoom

__all__ = ["available", "require"]

SHARE = 0.8  # of the memory that is free now


def available() -> int:
    """Bytes that can be had without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require(size: int, what: str) -> None:
    """Refuse `what` if its `size` in bytes exceeds what this machine can give."""
    limit = int(SHARE * available())
    if size > limit:
        raise NoRoom(f"memory: {what} needs {size / 2**30:.1f} GiB, must be at most {limit / 2**30:.1f} GiB here")
