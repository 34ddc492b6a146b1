"""Seconds, taken as the smallest of a few repeats: other work on the machine can only add to them."""

import time
from collections.abc import Callable
from typing import Any

import jax

__all__ = ["first_call", "smallest"]


def smallest(call: Callable[[], Any], repeats: int) -> float:
    """The shortest of `repeats` calls; waits for what JAX computes behind the caller's back."""
    return min(one_call(call) for _ in range(repeats))


def first_call(call: Callable[[], Any]) -> float:
    """A single call, for what happens only once: compilation, drawing a sample."""
    return one_call(call)


def one_call(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begun
