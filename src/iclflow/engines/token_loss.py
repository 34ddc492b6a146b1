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

from iclflow.config import Task
from iclflow.data.moments import AnyArray
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.system.pytree import pytree

__all__ = ["TokenLoss", "check_predict"]


@pytree
@dataclass(frozen=True)
class TokenLoss:
    """Training and test losses on sequences; a step may bring row numbers or sequences of its own."""

    weights: Weights  # all blocks; the trained part is laid over them
    sequences: Float[AnyArray, "P tokens E"] | None
    tests: tuple[Float[AnyArray, "_ tokens E"], ...]
    mask: Weights | None
    model: Model = field(metadata={"static": True})
    task: Task = field(metadata={"static": True})  # what the model reads of it: `Model.compiled_for`

    def loss_and_gradient(self, trained: Weights, batch: AnyArray | None = None) -> tuple[Float[Array, ""], Weights]:
        loss, gradient = jax.value_and_grad(self.mean_loss)(trained, self.rows(batch))
        if self.mask is not None:
            gradient = {name: self.mask[name] * array for name, array in gradient.items()}
        return loss, gradient

    def rows(self, batch: AnyArray | None) -> Float[AnyArray, "P tokens E"]:
        """All sequences, the rows that were asked for, or the sequences that were given."""
        if self.sequences is None:
            assert batch is not None, "fresh sequences come with every step"
            return batch
        return self.sequences if batch is None else self.sequences[batch]

    def test_losses(self, trained: Weights) -> Float[Array, " tests"]:
        return jnp.array([self.mean_loss(trained, sequences) for sequences in self.tests])

    def mean_loss(self, trained: Weights, sequences: Float[AnyArray, "P tokens E"]) -> Float[Array, ""]:
        weights = dict(self.weights)
        for name, where in self.model.trained(self.task, "all").items():
            weights[name] = jnp.asarray(weights[name]).at[where].set(trained[name])
        errors = jax.vmap(lambda sequence: self.squared_error(weights, sequence))(sequences)
        return jnp.mean(errors)

    def squared_error(self, weights: Weights, sequence: Float[AnyArray, "tokens E"]) -> Float[Array, ""]:
        dim = self.task.dim
        if self.task.prefix_loss:
            errors = self.model.predict_prefixes(weights, sequence, self.task) - sequence[1:, dim:]
            return jnp.mean(jnp.mean(errors**2, axis=1))
        hidden = jnp.asarray(sequence).at[-1, dim:].set(0)
        error = self.model.predict(weights, hidden, self.task) - sequence[-1, dim:]
        return jnp.mean(error**2)


def check_predict(model: Model, task: Task, dtype: str = "float64") -> None:
    """Ask a model for the shape of its answer, and refuse it in one line if it has none or another one."""
    weights = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in model.shapes(task).items()}
    sequence = jax.ShapeDtypeStruct((task.context + 1, task.dim + task.out_dim), dtype)
    try:
        answer = jax.eval_shape(lambda w, s: jnp.asarray(model.predict(w, s, task)), weights, sequence)
    except Exception as error:  # a user's method can raise anything
        line = (str(error).splitlines() or [""])[0][:150]
        raise BadInput(f"model: {model.kind!r} cannot predict a sequence ({type(error).__name__}: {line})") from None
    if answer.shape != (task.out_dim,):
        raise BadInput(f"model: {model.kind!r} predicts shape {answer.shape}, must be ({task.out_dim},), one per label")
    if not jnp.issubdtype(answer.dtype, jnp.floating):
        raise BadInput(
            f"model: {model.kind!r} predicts {answer.dtype}, must be real numbers, not whole or complex ones"
        )
