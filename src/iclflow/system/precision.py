"""Double precision inside this package, whatever the caller's JAX is set to.

JAX keeps this setting per thread, so every thread that computes must enter the block itself.
"""

from contextlib import AbstractContextManager

__all__ = ["double_precision"]


def double_precision() -> AbstractContextManager[None]:
    """JAX in float64 inside the `with` block, in this thread."""
    import jax

    return jax.enable_x64(True)
