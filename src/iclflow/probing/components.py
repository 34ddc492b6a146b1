r"""Distances to predictors of the form $\sum_d s_d\,(\ell_d'\beta)(r_d'x_q)$.

$$E\Big(\hat y - \sum_d s_du_d\Big)^2 = E\hat y^2 - 2\,s'c + s'Qs,\qquad
  u_d = (\ell_d'\beta)(r_d'x_q),\quad c_d = E\hat yu_d,\quad Q_{dd'} = Eu_du_{d'}$$

[`component-distance`]. Zero, principal component regression, ridge and one step of descent are all of this form, in the
eigenvectors of $\Lambda$. On the population $c_d = \ell_d'BA\Lambda r_d$ and $Q_{dd'} = (\ell_d'B\ell_{d'})
(r_d'\Lambda r_{d'})$; on a sample both are averages.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from iclflow.probing.contexts import Contexts
from iclflow.probing.outputs import Outputs
from iclflow.theory.landscape import Landscape

__all__ = ["Components", "exact", "sampled"]

GOLDEN = (np.sqrt(5) - 1) / 2

Basis = Float[np.ndarray, "D D"]


@dataclass(frozen=True)
class Components:
    """The quadratic form of every snapshot; distances are relative to the loss of the zero predictor."""

    power: Float[np.ndarray, " T"]
    cross: Float[np.ndarray, "T D"]
    square: Float[np.ndarray, "D D"]

    def distance(self, strengths: Float[np.ndarray, "*snapshots D"]) -> Float[np.ndarray, " T"]:
        """The distance to given strengths, the same for all snapshots or one set for each [`component-distance`]."""
        s = np.broadcast_to(strengths, self.cross.shape)
        distance = self.power - 2 * np.sum(s * self.cross, axis=1) + np.einsum("td,de,te->t", s, self.square, s)
        return np.maximum(distance, 0.0)  # rounding of the three terms can make their sum negative

    def best_multiple(self, shape: Float[np.ndarray, " D"]) -> Float[np.ndarray, " T"]:
        r"""The factor $\eta \ge 0$ with which the strengths $\eta\,s$ are nearest: a step uphill is not descent."""
        return np.maximum(self.cross @ shape / (shape @ self.square @ shape), 0.0)

    def penalty_path(
        self, eigenvalues: Float[np.ndarray, " D"]
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K T"]]:
        """Penalties from far below to far above the eigenvalues, and the distance to ridge regression with each."""
        path = eigenvalues.mean() * np.geomspace(1e-4, 1e3, 71)
        return path, np.stack([self.distance(1 / (eigenvalues + p)) for p in path])

    def best_penalty(self, eigenvalues: Float[np.ndarray, " D"]) -> Float[np.ndarray, " T"]:
        r"""The $p$ with which $(\Lambda + pI)^{-1}$ is nearest, by a path of penalties and golden section."""
        at = lambda log_p: self.distance(1 / (eigenvalues + np.exp(log_p)[:, None]))
        path, along = self.penalty_path(eigenvalues)
        middle = np.clip(along.argmin(axis=0), 1, len(path) - 2)
        low, high = np.log(path[middle - 1]), np.log(path[middle + 1])
        for _ in range(45):
            a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            left = at(a) < at(b)
            low, high = np.where(left, low, a), np.where(left, b, high)
        return np.exp((low + high) / 2)


def exact(outputs: Outputs, population: Landscape, left: Basis, right: Basis) -> Components:
    """The quadratic form from the moments of the population; the predictions must be beta' A x_q."""
    pulled = population.context @ outputs.matrices @ population.query
    return Components(
        power=np.sum(outputs.matrices * pulled, axis=(1, 2)) / population.base,
        cross=np.einsum("id,tij,jd->td", left, pulled, right) / population.base,
        square=(left.T @ population.context @ left) * (right.T @ population.query @ right) / population.base,
    )


def sampled(outputs: Outputs, contexts: Contexts, base: float, left: Basis, right: Basis) -> Components:
    """The quadratic form from the predictions on the sample."""
    u = ((contexts.beta @ left) * (contexts.query @ right)[:, None]).reshape(-1, left.shape[1])
    flat = outputs.predictions.reshape(len(outputs.predictions), -1)
    count = flat.shape[1] * base
    return Components(np.sum(flat**2, axis=1) / count, flat @ u / count, u.T @ u / count)
