r"""More than one layer of linear attention: the residual stream, on tokens and on Gram matrices.

The stream starts as the tokens, one per column of $Z$, the query last with its label 0. Every layer subtracts what its
heads read off the context, and the prediction is minus the query's label entries after the last one [`depth`]:

$$Z \leftarrow Z - \nu \sum_h V_h\, S\, M_h\, Z,\qquad S = ZMZ',\qquad M = \operatorname{diag}(1, .., 1, 0),$$

with $M_h = K_h'Q_h$ where key and query are separate. The query is neither key nor value. Context and query are all
multiplied by the same matrix $T = I - \nu\sum_h V_hSM_h$, and $S$ becomes $TST'$: a sequence enters through its Gram
matrix and its query alone, so a step need not know how long the context is.

On the label blocks ($V_h$ has a label-label entry only, $M_h$ a token-token block) the tokens stay as they are and the
labels become residuals, $w \leftarrow (I - A'\hat\Lambda)\,w$: every layer is a step of preconditioned gradient descent
in context. All other entries are this module's vector blocks. At one layer the model of `models.attention` differs in
one thing, the query attends to itself there.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from iclflow.config import Task
from iclflow.data.features import Blocks, attention_scale
from iclflow.models.base import Shapes, Weights, Where
from iclflow.models.reduced import Reduced

__all__ = ["all_heads", "complaints", "layer_weights", "predict_from_gram", "predict_from_tokens", "vectors"]


@runtime_checkable
class Layered(Protocol):
    """What the stream needs of a model."""

    @property
    def layers(self) -> int: ...
    def shapes(self, task: Task) -> Shapes: ...
    def trained(self, task: Task, blocks: Blocks) -> Where: ...
    def normalize(self, task: Task) -> str: ...
    def layer(self, weights: Weights, gram: Any) -> Any: ...


def layer_weights(weights: Weights, layers: int) -> Iterator[Weights]:
    """The weights of one layer after the other; where they are looped, the same each time."""
    for number in range(layers):
        yield {name: array[number % len(array)] for name, array in weights.items()}


def predict_from_tokens(model: Layered, weights: Weights, sequence: Any, task: Task) -> Any:
    """The labels (O,) of the query, the last row of a sequence (N+1, E), from the stream of tokens [`depth`]."""
    scale = attention_scale(model.normalize(task), sequence.shape[0] - 1)
    stream = sequence
    for own in layer_weights(weights, model.layers):
        context = stream[:-1]
        stream = stream - scale * stream @ model.layer(own, context.T @ context).T
    return -stream[-1, task.dim :]


def predict_from_gram(model: Layered, weights: Weights, gram: Any, query: Any, task: Task) -> Any:
    """The same from the Gram matrix (E, E) of the context and the query (E,) [`depth`]."""
    import jax.numpy as jnp

    scale = attention_scale(model.normalize(task), task.context)
    *earlier, last = layer_weights(weights, model.layers)
    for own in earlier:
        step = jnp.eye(len(query), dtype=gram.dtype) - scale * model.layer(own, gram)
        gram, query = step @ gram @ step.T, step @ query
    labels = {**last, "value": last["value"][:, task.dim :]}
    return scale * model.layer(labels, gram) @ query - query[task.dim :]


def vectors(model: Layered, task: Task) -> Where:
    """All but the label-label entries of value and the token-token part of the other arrays, as masks."""
    masks = {}
    for name, shape in model.shapes(task).items():
        masks[name] = np.ones(shape, dtype=bool)
        masks[name][model.trained(task, "label")[name]] = False
    return masks


def all_heads(reduced: Reduced) -> Reduced:
    """The reduced form with the layer axis merged into that of the heads, first layer first."""
    place = np.ndim(reduced.value) - 2
    shaped = lambda array: np.reshape(array, (*array.shape[:place], -1, *array.shape[place + 2 :]))
    return reduced._replace(**{n: shaped(array) for n, array in reduced._asdict().items() if array is not None})


def complaints(softmax: bool, task: Task) -> Iterator[str]:
    """What more than one layer cannot be combined with, one line each."""
    if softmax:
        yield "softmax: has no meaning with layers above 1, whose attention is linear"
    if task.prefix_loss:
        yield "prefix_loss: must be off with layers above 1"
    if task.icl_fraction < 1:
        yield f"icl_fraction: {task.icl_fraction} must be 1 with layers above 1"
    if task.normalize == "tokens":
        yield "normalize: 'tokens' must be 'context' or 'none' with layers above 1, where the query is masked"
