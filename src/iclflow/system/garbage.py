"""Python's search for objects that only refer to each other, which goes through everything that was ever imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["searched_rarely"]

NEW_OBJECTS = 500_000  # between two searches; Python's own number is 700


@contextmanager
def searched_rarely() -> Iterator[None]:
    """Search for such objects rarely inside the block: the search takes a sixth of a short command."""
    usual = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
