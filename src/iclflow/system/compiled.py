"""`jax.jit` for programs that often take longer to compile than to run.

They are written with the older of XLA's two ways to write loops for processors, which takes half the time, and in one
piece: cutting them up to 32 times, for as many cores, takes a quarter longer in all. Programs are as fast, and numbers
agree bit for bit. Where few numbers are at work a program can also do without optimisation, which takes two thirds of
the rest: it spends its time on calls, not loops. Last bits then differ, so what decides must not change along a run.
One that goes through a large array is optimised even if the flags of XLA say otherwise, as in the tests.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
from jaxtyping import Array, Int, Shaped

__all__ = ["compiled", "put"]

HOW = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
LEVEL = "xla_backend_optimization_level"
MANY = 2_000  # numbers in the largest argument of a program


def compiled(function: Callable[..., Any], few: int = 0, **options: Any) -> Callable[..., Any]:
    """The function as a program, optimised where it is called with more than a few numbers.

    Args:
        function: what to compile.
        few: numbers in all arguments up to which the program is not optimised.
        **options: those of `jax.jit`.
    """
    as_told = jax.jit(function, compiler_options=HOW, **options)
    quick, fast = (jax.jit(function, compiler_options={**HOW, LEVEL: level}, **options) for level in (0, 3))

    @wraps(function)
    def program(*arguments: Any, **named: Any) -> Any:
        numbers = [getattr(leaf, "size", 1) for leaf in jax.tree.leaves((arguments, named))]
        return (quick if sum(numbers) <= few else fast if max(numbers) > MANY else as_told)(*arguments, **named)

    return program


def put(rows: Shaped[Array, "..."], place: int | Int[Array, ""], row: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """`rows.at[place].set(row)` for a place that exists, without the check of it, which takes longer to compile."""
    return jax.lax.dynamic_update_index_in_dim(rows, row, place, 0)
