"""(d) One step of descent on moments against the bare product with their matrix, y <- C y.

All blocks of the published models: C has side D E (E+1) / 2, 60 at D = 4 and 360 at D = 8, float64 as is the
default. Both run in one compiled loop of 4000; smallest of 9, in turn.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from benchmarks.settings import FIGURE_1, FIGURE_4, Published
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call, smallest
from benchmarks.warm_step import experiment, prepare, seconds_per_step

__all__ = ["against_product"]

STEPS, ROUNDS = 4000, 9


def against_product(quick: bool) -> list[Row]:
    rows = []
    runs = [(FIGURE_1, None), (FIGURE_4[1], 2.5), (FIGURE_4[8], 2.5)]
    for run, target in runs[:2] if quick else runs:
        rows += compare(run, target)
    return rows


def compare(run: Published, target: float | None) -> list[Row]:
    say(f"one step and one product, {run.name}")
    ready = prepare(experiment(run, samples=5000))
    matrix = ready.loss.moments.left
    rounds = [(seconds_per_step(ready, STEPS, 1), seconds_per_product(matrix)) for _ in range(ROUNDS)]
    step, product = (min(times) for times in zip(*rounds, strict=True))
    ratio, name = step / product, f"{run.name} (D {run.dim}, side {len(matrix)})"
    held = ("", None) if target is None else (f"at most {target}x", ratio <= target)
    return [
        Row(f"{name}: step", seconds(step), step),
        Row(f"{name}: bare product", seconds(product), product),
        Row(f"{name}: step over product", f"{ratio:.2f}x", ratio, *held),
    ]


def seconds_per_product(matrix: Float[Array, "J J"]) -> float:
    """C is scaled to norm 1, so that a long power iteration neither overflows nor dies."""
    matrix = matrix / np.linalg.norm(np.asarray(matrix), 2)
    start = jnp.ones(len(matrix), matrix.dtype)
    first_call(lambda: power(matrix, start, jnp.asarray(STEPS)))
    return smallest(lambda: power(matrix, start, jnp.asarray(STEPS)), 1) / STEPS


@jax.jit
def power(matrix: Float[Array, "J J"], start: Float[Array, " J"], count: Array) -> Float[Array, " J"]:
    return jax.lax.fori_loop(0, count, lambda i, y: matrix @ y, start)
