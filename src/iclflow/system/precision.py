"""Double precision for our own calls, whatever the caller's JAX is set to.

JAX keeps the scope per thread: every thread that computes opens it for itself.
"""

from contextlib import AbstractContextManager

__all__ = ["double_precision"]


def double_precision() -> AbstractContextManager[None]:
    """JAX in float64 inside the `with` block, in this thread."""
    import jax

    return jax.enable_x64(True)
