r"""The loss from the sequences themselves, by automatic differentiation.

$$L = \frac1{PO}\sum_p |y_q - \hat y_q|^2,$$

for what moments cannot express: softmax, minibatches, fresh samples. Only the query's output is computed, never the
$(N+1)\times(N+1)$ scores. With the prefix loss every token behind the first is a query in turn; what stands behind it
is cut and its own label hidden.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.config import Model
from iclflow.data.sampled import attention_scale
from iclflow.models import kind

__all__ = ["TokenLoss", "prediction"]

Part = dict[str, Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TokenLoss:
    """Training and test losses on sequences; a step may be fed row numbers or sequences of its own."""

    weights: Part  # all blocks; the trained part is laid over them
    sequences: Float[Array, "P N+1 E"] | None
    tests: tuple[Float[Array, "Q N+1 E"], ...]
    mask: Part | None
    model: Model = field(metadata={"static": True})
    dim: int = field(metadata={"static": True})
    normalize: str = field(metadata={"static": True})
    prefix_loss: bool = field(metadata={"static": True})

    def loss_and_gradient(self, part: Part, feed: Array | None = None) -> tuple[Float[Array, ""], Part]:
        loss, gradient = jax.value_and_grad(self.mean_loss)(part, self.fed(feed))
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def fed(self, feed: Array | None) -> Float[Array, "P N+1 E"]:
        """All sequences, the rows that were asked for, or the sequences that were given."""
        if self.sequences is None:
            assert feed is not None, "fresh sequences must be fed"
            return feed
        return self.sequences if feed is None else self.sequences[feed]

    def test_losses(self, part: Part) -> Float[Array, " tests"]:
        return jnp.array([self.mean_loss(part, sequences) for sequences in self.tests])

    def mean_loss(self, part: Part, sequences: Float[Array, "P N+1 E"]) -> Float[Array, ""]:
        weights = dict(self.weights)
        for name, where in kind(self.model).trained(self.dim, "all").items():
            weights[name] = jnp.asarray(weights[name]).at[where].set(part[name])
        errors = jax.vmap(lambda sequence: self.squared_error(weights, sequence))(sequences)
        return jnp.mean(errors)

    def squared_error(self, weights: Part, sequence: Float[Array, "N+1 E"]) -> Float[Array, ""]:
        longest = sequence.shape[0] - 1
        if not self.prefix_loss:
            error = prediction(self.model, weights, sequence, self.dim, self.normalize) - sequence[-1, self.dim :]
            return jnp.mean(error**2)
        at = jnp.arange(1, longest + 1)
        scales = jnp.array([attention_scale(self.normalize, n) for n in range(1, longest + 1)], sequence.dtype)
        return jnp.mean(jax.vmap(lambda n, scale: self.prefix_error(weights, sequence, n, scale))(at, scales))

    def prefix_error(self, weights: Part, sequence: Float[Array, "N+1 E"], n: Array, scale: Array) -> Float[Array, ""]:
        present = jnp.arange(sequence.shape[0]) <= n
        query, target = sequence[n, : self.dim], sequence[n, self.dim :]
        tokens = jnp.where(present[:, None], sequence, 0).at[n, self.dim :].set(0)
        guess = kind(self.model).predict(weights, tokens, query, scale, self.model.softmax, present)
        return jnp.mean((guess - target) ** 2)


def prediction(
    model: Model, weights: Part, sequence: Float[Array, "N+1 E"], dim: int, normalize: str
) -> Float[Array, " O"]:
    """The model's label for the last token of one sequence, whose own label it does not see."""
    tokens = jnp.asarray(sequence).at[-1, dim:].set(0)
    scale = attention_scale(normalize, sequence.shape[0] - 1)
    return kind(model).predict(weights, tokens, sequence[-1, :dim], scale, model.softmax)
