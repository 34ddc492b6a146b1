r"""The sequences of a probe, and the averages that a predictor can compute from each context.

$$\hat\Lambda = \tfrac1N\sum_n x_nx_n',\qquad \beta_o = \tfrac1N\sum_n y_{n,o}x_n,\qquad
  \hat y_o = x_q'\,f(\hat\Lambda)\,\beta_o .$$

Least squares, ridge, principal component regression and gradient descent in context differ only in the filter $f$ on
the eigenvalues of $\hat\Lambda$ [`context-filters`], so one eigendecomposition per sequence serves all of them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.sequences import Law, Sample, as_array
from iclflow.system.memory import require

__all__ = ["Contexts", "Predictions", "Spectral", "draw", "read_contexts"]

STREAM = 601  # separates these sequences from all training data
MOST, LEAST, BYTES = 4096, 512, 2**27  # number of sequences; fewer if they are long

Sequences = Float[np.ndarray, "P tokens E"]
Predictions = Float[np.ndarray, "P O"]


@dataclass(frozen=True)
class Contexts:
    """Averages over each context, the query and its true label; in `tokens` that label is set to 0."""

    tokens: Sequences
    gram: Float[np.ndarray, "P D D"]
    beta: Float[np.ndarray, "P O D"]
    labels: Float[np.ndarray, "P O O"]
    query: Float[np.ndarray, "P D"]
    target: Float[np.ndarray, "P O"]

    @property
    def length(self) -> int:
        """The number of tokens before the query."""
        return self.tokens.shape[1] - 1

    @property
    def power(self) -> float:
        """The loss of the zero predictor."""
        return float(np.mean(self.target**2))

    def loss(self, predictions: Predictions) -> float:
        """The mean squared error of predictions."""
        return float(np.mean((predictions - self.target) ** 2, axis=(-2, -1)))

    def spectral(self, transform: Float[np.ndarray, "D D"] | None = None) -> "Spectral":
        r"""The eigendecomposition of every $\hat\Lambda$, after the tokens are mapped by a symmetric matrix."""
        gram, beta, query = self.gram, self.beta, self.query
        if transform is not None:
            gram, beta, query = transform @ gram @ transform, beta @ transform, query @ transform
        values, vectors = np.linalg.eigh(gram)
        parts = np.einsum("pod,pdk->pok", beta, vectors) * np.einsum("pd,pdk->pk", query, vectors)[:, None]
        return Spectral(np.clip(values[:, ::-1], 0, None), parts[:, :, ::-1])


@dataclass(frozen=True)
class Spectral:
    r"""Eigenvalues of $\hat\Lambda$, falling, and $(e_k'\beta)(e_k'x_q)$ for each of its eigenvectors."""

    values: Float[np.ndarray, "P D"]
    parts: Float[np.ndarray, "P O D"]

    def filtered(self, response: Float[np.ndarray, "P D"]) -> Predictions:
        r"""$\sum_k f(s_k)(e_k'\beta)(e_k'x_q)$ from the values of $f$ [`context-filters`]."""
        return np.einsum("pk,pok->po", response, self.parts)

    def inverse(self) -> Float[np.ndarray, "P D"]:
        """1/s, and 0 in directions in which the tokens of the context do not vary."""
        present = self.values > 1e-10 * self.values[:, :1]
        return np.where(present, 1 / np.where(present, self.values, 1.0), 0.0)

    def least_squares(self, components: int | None = None) -> Predictions:
        """Least squares in context, on the leading principal components of its tokens or on all."""
        inverse = self.inverse()
        if components is not None:
            inverse[:, components:] = 0.0
        return self.filtered(inverse)

    def ridge(self, penalty: float) -> Predictions:
        """Ridge regression in context."""
        if penalty == 0:
            return self.least_squares()
        return self.filtered(1 / (self.values + penalty))

    def descent(self, step: float, steps: int) -> Predictions:
        r"""$f(s) = \eta\sum_{j<k}(1-\eta s)^j$: gradient descent on the squared error of the context, from zero."""
        total = np.ones_like(self.values)
        for _ in range(steps - 1):
            total = 1 + (1 - step * self.values) * total
        return self.filtered(step * total)


def read_contexts(sequences: Sequences, out_dim: int) -> Contexts:
    """The averages over every context of some sequences."""
    dim, length = sequences.shape[2] - out_dim, sequences.shape[1] - 1
    x, y = sequences[:, :-1, :dim], sequences[:, :-1, dim:]
    hidden = np.array(sequences)
    hidden[:, -1, dim:] = 0.0
    across = y.transpose(0, 2, 1)
    return Contexts(
        tokens=hidden,
        gram=x.transpose(0, 2, 1) @ x / length,
        beta=across @ x / length,
        labels=across @ y / length,
        query=sequences[:, -1, :dim],
        target=sequences[:, -1, dim:],
    )


def draw(task: Task, most: int = MOST) -> Contexts:
    """Sequences of a task, always the same ones, with tokens centred and task vectors whitened as in training."""
    width = task.dim + task.out_dim
    size = 8 * width * (3 * (task.context + 1) + 4 * width)
    count = int(np.clip(BYTES // size, LEAST, most))
    require(count * size, f"{count} sequences to probe on")
    sample = Sample(Law.of(task), max(count, 2 * task.dim), (STREAM, task.task_seed))
    return read_contexts(as_array(sample), task.out_dim)
