"""What checks annotations at run time: beartype, at the first calls of every function in every test.

The hundredth call of a function is as right as the first, and checks would be a third of the time of what calls them a
hundred thousand times. A function inside another is made anew at every call, and to make its checks takes longer than
most of them run.
"""

import inspect
from collections import Counter
from functools import wraps

import jaxtyping
from beartype import beartype

__all__ = ["CALLS", "at_first"]

FIRST = 100
CALLS: Counter = Counter()  # of every function in the test that runs

always = jaxtyping.jaxtyped


def at_first(function, typechecker=beartype):
    """The function with checks at its first calls; classes and properties with checks at all of theirs."""
    if not inspect.isfunction(function):
        return always(function, typechecker=typechecker)
    if "<locals>" in function.__qualname__:
        return function
    checked = always(function, typechecker=typechecker)

    @wraps(function)
    def counted(*arguments, **named):
        CALLS[function] += 1
        return (checked if CALLS[function] <= FIRST else function)(*arguments, **named)

    return counted


# The import hook of jaxtyping writes `@jaxtyping.jaxtyped(typechecker=..)` above every function.
jaxtyping.jaxtyped = lambda typechecker: lambda function: at_first(function, typechecker)
