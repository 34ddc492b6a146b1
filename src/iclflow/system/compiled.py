"""`jax.jit` with the older of XLA's two ways to write loops for processors: the same programs in half the time.

Numbers agree bit for bit and programs are as fast, but a small one takes 0.15 instead of 0.3 seconds to compile.
"""

from functools import partial

import jax

__all__ = ["compiled"]

compiled = partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})
