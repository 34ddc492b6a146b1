"""What checks annotations at run time: beartype, for every function but those inside other functions.

A function inside another is made anew at every call, and to make its checks takes longer than most of them run.
"""

from beartype import beartype

__all__ = ["outside"]


def outside(function):
    return function if "<locals>" in getattr(function, "__qualname__", "") else beartype(function)
