"""What was made last of something slow, for those who ask for the same again: few results, and only small ones."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any

import jax

__all__ = ["Lately"]


class Lately:
    """The last `count` results of at most `most` bytes."""

    def __init__(self, count: int, most: int):
        self.count, self.most = count, most
        self.kept: OrderedDict[Hashable, Any] = OrderedDict()
        self.lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under this key, else what `make` gives."""
        with self.lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        made = make()
        if sum(leaf.nbytes for leaf in jax.tree.leaves(made)) <= self.most:
            with self.lock:
                self.kept[key] = made
                while len(self.kept) > self.count:
                    self.kept.popitem(last=False)
        return made
