"""How many cores this process may use."""

import os

__all__ = ["cores", "threads"]


def cores() -> int:
    """The cores that this process may run on; a queue or a container may grant fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The threads to start for parallel work: one per core, at most `OMP_NUM_THREADS`, as in BLAS."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores()
