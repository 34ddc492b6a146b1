r"""The baseline: attention as usually written, every token a query, trained by automatic differentiation.

$$Y = X + \nu \sum_h \mathrm{scores}_h\, X V_h', \qquad \mathrm{scores}_h[n, m] = x_m' W^{KQ}_h x_n
  \text{ or } (K_h x_m)'(Q_h x_n),$$

all $(N+1)\times(N+1)$ scores of every head, all $E$ entries of every output; the loss reads the label of
the last one. With softmax, each row of the scores passes through it. One step is `jax.value_and_grad` and
an update, jitted, float32, over the whole batch.

How it was made fast. Three ways to order the products are timed and the fastest is *the* baseline:

- `values first`: $(\mathrm{scores}_h)(X V_h')$, head by head, the way most code is written;
- `mix first`: $(\mathrm{scores}_h X) V_h'$, which has no sum over heads inside the large product;
- `stacked`: `mix first` with the queries of all heads under each other, so that a sequence takes one
  $H(N+1)\times E$ product instead of $H$ small ones (keys and queries are multiplied into one matrix first).

*In blocks*: the last two again, but over a few sequences at a time with gradients added up, so that the
scores stay in the cache. The published models are not written like this; the fastest of all is reported as
the optimised baseline beside the other. Tried and dropped, slower throughout: values of all heads stacked
and summed with the scores in one product, and the batch as the fastest axis.

Operations are counted for `mix first`, whatever the order timed (exponentials of the softmax not counted, nor
gradients with respect to the tokens, which nobody needs):

$$2PH\,[4n^2E + 5nE^2] \text{ (merged)}, \qquad
  2PH\,[n^2(2E + 3R) + 3nE^2 + 4nER] \text{ (separate)}, \qquad n = N+1.$$
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from benchmarks.settings import Published
from benchmarks.table import Row, say, seconds
from benchmarks.timing import first_call, smallest

__all__ = ["Baseline", "baseline", "baseline_rows"]

Weights = dict[str, Array]
Forward = Callable[[Weights, Array, bool], Array]
BLOCKS = (25, 125)  # sequences at a time


def scores_by_head(weights: Weights, X: Float[Array, "P n E"]) -> Float[Array, "P H n n"]:
    if "key_query" in weights:
        asked = jnp.einsum("hef,pnf->phne", weights["key_query"], X)
        return jnp.einsum("phne,pme->phnm", asked, X)
    key = jnp.einsum("hre,pme->phmr", weights["key"], X)
    query = jnp.einsum("hre,pne->phnr", weights["query"], X)
    return jnp.einsum("phnr,phmr->phnm", query, key)


def attend(scores: Array, softmax: bool) -> Array:
    return jax.nn.softmax(scores, axis=-1) if softmax else scores


def values_first(weights: Weights, X: Float[Array, "P n E"], softmax: bool) -> Float[Array, "P n E"]:
    scores = attend(scores_by_head(weights, X), softmax)
    values = jnp.einsum("hoe,pme->phmo", weights["value"], X)
    return X + jnp.einsum("phnm,phmo->pno", scores, values)


def mix_first(weights: Weights, X: Float[Array, "P n E"], softmax: bool) -> Float[Array, "P n E"]:
    scores = attend(scores_by_head(weights, X), softmax)
    mixed = jnp.einsum("phnm,pme->phne", scores, X)
    return X + jnp.einsum("phne,hoe->pno", mixed, weights["value"])


def stacked(weights: Weights, X: Float[Array, "P n E"], softmax: bool) -> Float[Array, "P n E"]:
    count, n, width = X.shape
    key_query = weights.get("key_query")
    if key_query is None:
        key_query = jnp.einsum("hre,hrf->hef", weights["key"], weights["query"])
    heads = key_query.shape[0]
    asked = X.reshape(count * n, width) @ key_query.reshape(heads * width, width).T
    scores = attend(asked.reshape(count, n * heads, width) @ X.transpose(0, 2, 1), softmax)
    mixed = (scores @ X).reshape(count * n, heads * width)
    value = weights["value"].transpose(0, 2, 1).reshape(heads * width, width)
    return X + (mixed @ value).reshape(count, n, width)


WHOLE: dict[str, Forward] = {"values first": values_first, "mix first": mix_first, "stacked": stacked}
BLOCKED: dict[str, Forward] = {"mix first": mix_first, "stacked": stacked}


def mean_loss(forward: Forward, softmax: bool) -> Callable[[Weights, Array, Array], Array]:
    return lambda weights, X, y: jnp.mean((y - forward(weights, X, softmax)[:, -1, -1]) ** 2)


def step_whole(forward: Forward, softmax: bool, lr: float) -> Callable:
    """One update from all sequences at once."""

    @jax.jit
    def step(weights: Weights, X: Array, y: Array) -> tuple[Array, Weights]:
        loss, gradient = jax.value_and_grad(mean_loss(forward, softmax))(weights, X, y)
        return loss, jax.tree.map(lambda w, g: w - lr * g, weights, gradient)

    return step


def step_in_blocks(forward: Forward, softmax: bool, lr: float, block: int) -> Callable:
    """One update from all sequences, a block of them after the other."""

    @jax.jit
    def step(weights: Weights, X: Array, y: Array) -> tuple[Array, Weights]:
        blocks = X.reshape(-1, block, *X.shape[1:]), y.reshape(-1, block)
        gradient_of = jax.value_and_grad(mean_loss(forward, softmax))

        def add(total: tuple[Array, Weights], part: tuple[Array, Array]) -> tuple[tuple[Array, Weights], None]:
            return jax.tree.map(jnp.add, total, gradient_of(weights, *part)), None

        nothing = jnp.zeros((), X.dtype), jax.tree.map(jnp.zeros_like, weights)
        (loss, gradient), _ = jax.lax.scan(add, nothing, blocks)
        count = blocks[0].shape[0]
        return loss / count, jax.tree.map(lambda w, g: w - lr * g / count, weights, gradient)

    return step


def operations(run: Published) -> float:
    """Floating-point operations of one step on the whole sample."""
    n, width, heads = run.context + 1, run.dim + 1, run.shape["heads"]
    if run.model == "Merged":
        a_head = 4 * n**2 * width + 5 * n * width**2
    else:
        rank = run.shape.get("rank", 1)
        a_head = n**2 * (2 * width + 3 * rank) + 3 * n * width**2 + 4 * n * width * rank
    return 2.0 * run.samples * heads * a_head


def random_weights(run: Published) -> Weights:
    """Values do not matter to the time, as long as nothing overflows."""
    heads, width, rank = run.shape["heads"], run.dim + 1, run.shape.get("rank", 1)
    shapes = {"value": (heads, width, width)}
    if run.model == "Merged":
        shapes["key_query"] = (heads, width, width)
    else:
        shapes["key"] = shapes["query"] = (heads, rank, width)
    rng = np.random.default_rng(0)
    return {k: jnp.asarray(0.1 * rng.standard_normal(shape), jnp.float32) for k, shape in shapes.items()}


def random_sequences(run: Published, count: int) -> tuple[Float[Array, "P n E"], Float[Array, " P"]]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((count, run.context + 1, run.dim + 1)) / np.sqrt(run.dim)
    y = X[:, -1, -1].copy()
    X[:, -1, -1] = 0
    return jnp.asarray(X, jnp.float32), jnp.asarray(y, jnp.float32)


@dataclass(frozen=True)
class Baseline:
    """Seconds of one step on the whole sample, by formulation."""

    run: Published
    whole: dict[str, float]
    blocked: dict[str, float]
    timed_samples: int

    @property
    def seconds(self) -> float:
        """The baseline: the fastest formulation over the whole batch."""
        return min(self.whole.values())

    @property
    def optimised(self) -> float:
        """The fastest of all, blocks included."""
        return min(self.seconds, *self.blocked.values())

    def describe(self, value: float) -> str:
        return f"{seconds(value)}, {operations(self.run) / value / 1e9:.1f} GFLOP/s"


def baseline(run: Published, quick: bool, part: int = 1, softmax: bool = False) -> Baseline:
    """Time all formulations on `samples / part` sequences, scaled up to all of them."""
    largest = max(BLOCKS)
    count = max(largest, run.samples // part // largest * largest)
    X, y = random_sequences(run, count)
    weights, scale, repeats = random_weights(run), run.samples / count, 2 if quick else 3

    def time_step(name: str, step: Callable) -> float:
        compiling = first_call(lambda: step(weights, X, y))
        taken = scale * smallest(lambda: step(weights, X, y), repeats)
        say(f"all positions, {run.name}, {name}: {seconds(taken)} a step (first call {seconds(compiling)})")
        return taken

    whole = {name: time_step(name, step_whole(f, softmax, run.lr)) for name, f in WHOLE.items()}
    blocked = {
        f"{name}, blocks of {block}": time_step(f"{name}, blocks of {block}", step_in_blocks(f, softmax, run.lr, block))
        for name, f in BLOCKED.items()
        for block in (BLOCKS[:1] if quick else BLOCKS)
    }
    return Baseline(run, whole, blocked, count)


def baseline_rows(base: Baseline) -> list[Row]:
    """The baseline's own table."""
    timed = f"timed on {base.timed_samples} sequences"
    if base.timed_samples != base.run.samples:
        timed += f", scaled to {base.run.samples}"
    fastest = {base.seconds: "<- baseline", base.optimised: "<- optimised baseline"}
    count = operations(base.run)
    rows = [
        Row(f"{base.run.name}: all positions, {name}", base.describe(value), value, fastest.get(value, ""))
        for name, value in (*base.whole.items(), *base.blocked.items())
    ]
    what = f"{base.run.name}: operations a step ({timed})"
    return [Row(what, f"{count / 1e9:.2f} GFLOP", count), *rows]
