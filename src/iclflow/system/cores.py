"""How many cores this process may use, and one thread of BLAS where more would only wait for each other."""

import os
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

__all__ = ["cores", "one_blas_thread", "threads"]


def cores() -> int:
    """The cores that this process may run on; a queue or a container may grant fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The threads to start for parallel work: one per core, at most `OMP_NUM_THREADS`, as in BLAS."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(wanted)) if wanted.isdecimal() and int(wanted) > 0 else cores()


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS takes one thread: for small matrices, and for bits that do not depend on cores."""
    return blas_libraries(len(sys.modules)).limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def blas_libraries(modules: int) -> Any:
    """The libraries of this process. To find them takes milliseconds, and new ones come only with new modules."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
