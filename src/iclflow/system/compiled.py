"""`jax.jit` with the older of XLA's two ways to write loops for processors: the same programs in half the time.

Numbers agree bit for bit and programs are as fast, but a small one takes 0.15 instead of 0.3 seconds to compile. Every
program is compiled in one piece: cutting it up to 32 times, for as many cores, takes a quarter longer in all.
"""

from functools import partial

import jax
from jaxtyping import Array, Int, Shaped

__all__ = ["compiled", "put"]

compiled = partial(
    jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
)


def put(rows: Shaped[Array, "..."], place: int | Int[Array, ""], row: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """`rows.at[place].set(row)` for a place that exists, without the check of it, which takes longer to compile."""
    return jax.lax.dynamic_update_index_in_dim(rows, row, place, 0)
