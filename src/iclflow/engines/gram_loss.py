r"""The loss from Gram matrices and queries, by automatic differentiation.

$$L = \frac1{PO}\sum_p |y_q - \hat y(S_p, x_q)|^2,$$

for models that read a sequence through its Gram matrix alone (`models.deep`): a step costs the same for every length
of the context. Sequences are worked through in chunks, so that memory stays bounded whatever their number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iclflow.config import Task
from iclflow.data.features import Blocks
from iclflow.data.moments import AnyArray
from iclflow.models import Model, Weights
from iclflow.system.pytree import pytree

__all__ = ["CHUNK", "GramLoss"]

CHUNK = 1024  # sequences; their arrays stay in the cache


@pytree
@dataclass(frozen=True)
class GramLoss:
    """Training and test losses on Gram matrices; a step may bring row numbers or matrices of its own."""

    weights: Weights  # all blocks; the trained part is laid over them
    grams: Float[AnyArray, "P E columns"] | None  # `data.grams`: the query behind the matrix, with its true label
    tests: tuple[Float[AnyArray, "_ E columns"], ...]
    mask: Weights | None
    model: Model = field(metadata={"static": True})
    task: Task = field(metadata={"static": True})  # what the model reads of it: `Model.compiled_for`
    blocks: Blocks = field(default="all", metadata={"static": True})

    light: ClassVar[bool] = False  # a gradient visits every sequence

    def loss_and_gradient(self, trained: Weights, batch: AnyArray | None = None) -> tuple[Float[Array, ""], Weights]:
        loss, gradient = over_chunks(jax.value_and_grad(self.summed), trained, self.rows(batch))
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def loss(self, trained: Weights) -> Float[Array, ""]:
        return over_chunks(self.summed, trained, self.rows(None))

    def test_losses(self, trained: Weights) -> Float[Array, " tests"]:
        return jnp.array([over_chunks(self.summed, trained, grams) for grams in self.tests])

    def rows(self, batch: AnyArray | None) -> Float[AnyArray, "P E columns"]:
        """All sequences, the rows that were asked for, or the matrices that were given."""
        if self.grams is None:
            assert batch is not None, "fresh matrices come with every step"
            return batch
        return self.grams if batch is None else self.grams[batch]

    def summed(self, trained: Weights, grams: Float[AnyArray, "P E columns"]) -> Float[Array, ""]:
        """The sum of the squared errors of some sequences, each the mean over its labels."""
        weights = dict(self.weights)
        for name, where in self.model.trained(self.task, self.blocks).items():
            weights[name] = jnp.asarray(weights[name]).at[where].set(trained[name])
        return jnp.sum(jax.vmap(lambda gram: self.squared_error(weights, gram))(grams))

    def squared_error(self, weights: Weights, gram: Float[AnyArray, "E columns"]) -> Float[Array, ""]:
        dim = self.task.dim
        hidden = jnp.asarray(gram[:, -1]).at[dim:].set(0)
        error = self.model.gram(weights, gram[:, :-1], hidden, self.task) - gram[dim:, -1]
        return jnp.mean(error**2)


def over_chunks(
    function: Callable[[Weights, AnyArray], Any], trained: Weights, grams: Float[AnyArray, "P E columns"]
) -> Any:
    """The mean over all sequences of a function that sums over some, in chunks of equal size and what is left."""
    count = grams.shape[0]
    chunks = -(-count // CHUNK)
    size = count // chunks
    total = function(trained, grams[chunks * size :]) if chunks * size < count else None
    if chunks == 1:
        total = function(trained, grams)
    else:
        rows = lambda number: jax.lax.dynamic_slice_in_dim(grams, number * size, size)  # `grams[..]` copies them
        zeros = lambda one: jnp.zeros(one.shape, one.dtype)
        start = jax.tree.map(zeros, jax.eval_shape(function, trained, grams[:size])) if total is None else total
        add = lambda sums, number: (jax.tree.map(jnp.add, sums, function(trained, rows(number))), None)
        total = jax.lax.scan(add, start, jnp.arange(chunks))[0]
    return jax.tree.map(lambda sums: sums / count, total)
