r"""The effective matrix in the eigenvectors of the token covariance: which components are learned.

The gain of component $d$ is $e_d'Ae_d/\alpha_d$, 1 at the fixed point; a component counts as learned above one half,
where the fixed point with it becomes nearer than the one without. Entries off the diagonal mix components. The
effective rank is $\exp$ of the entropy of the singular values of the matrix of gains, $m$ at $M_m$ [`effective-rank`].
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from iclflow.probing.candidates import Sets
from iclflow.probing.setting import Setting
from iclflow.theory.algorithm import gain_matrix

__all__ = ["Gains", "effective_rank", "gains"]


@dataclass(frozen=True)
class Gains:
    """The gains along training."""

    matrix: Float[np.ndarray, "T D D"]  # gains on the diagonal, mixing beside it
    effective_rank: Float[np.ndarray, " T"]
    sets: Sets

    @property
    def gain(self) -> Float[np.ndarray, "T D"]:
        """The gain of every component."""
        return np.einsum("tdd->td", self.matrix)

    @property
    def mixing(self) -> Float[np.ndarray, " T"]:
        """The largest absolute entry off the diagonal."""
        return np.abs(self.matrix * (1 - np.eye(self.matrix.shape[1]))).max(axis=(1, 2))

    @property
    def learned(self) -> Int[np.ndarray, " T"]:
        """The number m(t) of learned components."""
        return self.sets.shrunk.sum(axis=1)


def gains(setting: Setting, matrices: Float[np.ndarray, "T D D"]) -> Gains:
    """The gains of the effective matrix of every snapshot."""
    d, cov = setting.directions, setting.covariances
    # `setting.strength` is in the units of the probe; the directions are in those of the task, with all outputs.
    unit = setting.strength[0] * np.sqrt(d.outputs) / d.strength[0]
    part = gain_matrix(d, matrices) / unit
    plain = np.einsum("id,tij,jd->td", cov.basis, matrices, cov.basis) * cov.eigenvalues
    shrunk = np.einsum("tdd->td", part) > 0.5
    return Gains(part, effective_rank(part), Sets(shrunk, plain > 0.5, d.order))


def effective_rank(matrix: Float[np.ndarray, "*T D D"]) -> Float[np.ndarray, "*T"]:
    r"""$\exp\big(-\sum_i p_i\ln p_i\big)$, $p_i = \sigma_i/\sum\sigma$ [`effective-rank`]; 0 for the zero matrix.

    Singular values below 0.01 do not count, because many small ones from noise would look like rank.
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    values = np.where(values < 0.01, 0.0, values)
    total = values.sum(axis=-1, keepdims=True)
    share = values / np.where(total > 0, total, 1.0)
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1)
    return np.where(total[..., 0] > 0, np.exp(entropy), 0.0)
