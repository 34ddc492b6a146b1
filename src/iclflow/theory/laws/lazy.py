r"""Large initial weights: the kernel hardly moves and the loss decays as a sum of exponentials.

The effective matrix obeys $\tau\dot A = \mathcal K[G]$ with a kernel of the weights [`lazy-kernel`]

$$\mathcal K_{merged}[G] = \sum_i v_i^2\, G + U_i \langle U_i, G\rangle,\qquad
  \mathcal K_{sep}[G] = \sum_i v_i^2\,(G\, Q_i'Q_i + K_i'K_i\, G) + K_i'Q_i\, \langle K_i'Q_i, G\rangle .$$

When the kernel is large compared with $|A^\star|$, fitting the task hardly changes it. Frozen at its start it
gives the loss in closed form: no plateau, and the fastest fall at $t = 0$. Matrices are vectorised by rows,
one output.
"""

import numpy as np
from jaxtyping import Float

from iclflow.data.spectrum import root
from iclflow.errors import BadInput
from iclflow.theory.landscape import Landscape
from iclflow.theory.merged import Matrices, Matrix, Times, Values, lowest_loss, minimiser
from iclflow.theory.separate import Keys

__all__ = [
    "frozen_loss",
    "kernel_merged",
    "kernel_separate",
    "rate_merged",
    "rate_separate",
]


def kernel_merged(v: Values, U: Matrices) -> Float[np.ndarray, "DD DD"]:
    r"""$\mathcal K$ of merged attention as a matrix on $\operatorname{vec} G$ [`lazy-kernel`]."""
    flat = U.reshape(len(U), -1)
    return v @ v * np.eye(flat.shape[1]) + flat.T @ flat


def kernel_separate(v: Values, K: Keys, Q: Keys) -> Float[np.ndarray, "DD DD"]:
    r"""$\mathcal K$ of separate attention as a matrix on $\operatorname{vec} G$ [`lazy-kernel`]."""
    eye = np.eye(K.shape[-1])
    keys, queries = np.einsum("h,hri,hrj->ij", v**2, K, K), np.einsum("h,hri,hrj->ij", v**2, Q, Q)
    product = np.einsum("hri,hrj->hij", K, Q).reshape(len(v), -1)
    return np.kron(keys, eye) + np.kron(eye, queries) + product.T @ product


def rate_merged(heads: int, value: float, matrix: float) -> float:
    r"""$H(s_v^2 + s_U^2)$: the mean kernel over Gaussian entries is this times the identity [`lazy-rate`]."""
    return heads * (value**2 + matrix**2)


def rate_separate(heads: int, rank: int, value: float, key: float, query: float) -> float:
    r"""$HR(s_v^2s_k^2 + s_v^2s_q^2 + s_k^2s_q^2)$, the same for separate attention [`lazy-rate`]."""
    return heads * rank * ((value * key) ** 2 + (value * query) ** 2 + (key * query) ** 2)


def frozen_loss(L: Landscape, kernel: float | Float[np.ndarray, "DD DD"], start: Matrix, time: Times) -> Times:
    r"""The loss from $A(0)$ = `start` under a kernel, number or matrix, that stays as it is [`lazy-loss`].

    $$L(t) = L_{min} + \sum_{dd'} m_{dd'}\,(A_0 - A^\star)_{dd'}^2\; e^{-2\,rate\; m_{dd'} t/\tau},\qquad
      m_{dd'} = B_d\lambda_{d'}$$

    for a kernel $rate \cdot I$ in the eigenbases of $B$ and $\Lambda$; in general the exponents are the
    eigenvalues of $M^{1/2}\mathcal K M^{1/2}$ with $M = B\otimes\Lambda$.
    """
    if L.outputs > 1:
        raise BadInput(f"out_dim: {L.outputs} must be 1 for the lazy regime")
    half = np.kron(root(L.context), root(L.query))
    full = kernel * np.eye(len(half)) if np.ndim(kernel) == 0 else np.asarray(kernel)
    rates, vectors = np.linalg.eigh(half @ full @ half)
    weights = (vectors.T @ half @ (start - minimiser(L)).ravel()) ** 2
    return lowest_loss(L) + np.exp(-2 * np.outer(time, rates)) @ weights
