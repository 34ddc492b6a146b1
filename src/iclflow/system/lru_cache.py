"""A thread-safe cache of recent values, limited by count and bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["LRUCache"]


class LRUCache:
    """The last few values; each is made once, even if several threads need it.

    Args:
        most: how many values are kept.
        most_bytes: how large they are together.
        least: how many of the newest stay, however large.
    """

    def __init__(self, most: int, most_bytes: int, least: int = 0) -> None:
        self.most, self.most_bytes, self.least = most, most_bytes, least
        self.things: OrderedDict[Any, Any] = OrderedDict()
        self.made = 0
        self.lock = threading.RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of a key, computed by `make` if it is not kept."""
        with self.lock:
            if key not in self.things:
                self.things[key] = make()
                self.made += 1
            self.things.move_to_end(key)
            found = self.things[key]
            while len(self.things) > self.least and (len(self.things) > self.most or self.weight() > self.most_bytes):
                self.things.popitem(last=False)
            return found

    def weight(self) -> int:
        """The size of all values in bytes."""
        import jax

        return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(list(self.things.values())))
