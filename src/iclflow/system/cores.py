"""How much of the machine is ours."""

import os

__all__ = ["cores", "threads"]


def cores() -> int:
    """Cores this process may run on: a queue or a container may have given it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads to start for work that can be shared: one a core, at most `OMP_NUM_THREADS`, as BLAS does."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores()
