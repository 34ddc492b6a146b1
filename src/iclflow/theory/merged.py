r"""Attention with one key-query matrix per head: one plateau, one abrupt drop.

The reduced model $\hat y = \sum_i v_i\, \beta' U_i x_q$ is a two-layer linear network on $\beta x_q'$ and
flows by Eq. 8 (`theory.collinear.flow`) in the force

$$G = C_1 - B\Big(\sum_i v_i U_i\Big)\Lambda .$$

$C_1, B, \Lambda$ are those of a `Landscape`. With $O$ independent outputs, whose label blocks are $V_i =
(v_i/\sqrt O) I$, the same equations hold with $\sqrt O\, C_1$ for $C_1$; each output then carries $A = \sum_i
v_i U_i / \sqrt O$. Time is $t/\tau$ throughout.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.collinear import Modes
from iclflow.theory.landscape import Landscape

__all__ = [
    "Alignment",
    "Quadratic",
    "alignment",
    "conserved",
    "escape_rate",
    "escape_time",
    "half_time",
    "is_zero_fixed_point",
    "lowest_loss",
    "minimiser",
    "modes",
    "zero_fixed_point_rates",
]

Matrix = Float[np.ndarray, "D D"]
Matrices = Float[np.ndarray, "H D D"]
Values = Float[np.ndarray, " H"]
Times = Float[np.ndarray, " T"]


@runtime_checkable
class Quadratic(Protocol):
    """Any quadratic loss of the reduced model, on the population or on a sample."""

    @property
    def cross(self) -> Matrix: ...
    @property
    def base(self) -> float: ...
    @property
    def outputs(self) -> int: ...

    def loss(self, A: Matrix) -> float: ...
    def force(self, A: Matrix) -> Matrix: ...
    def curve(self, A: Float[np.ndarray, "*stack D D"]) -> Float[np.ndarray, "*stack D D"]: ...


def conserved(v: Values, U: Matrices) -> Float[np.ndarray, "H H"]:
    r"""$\langle U_i, U_j\rangle - v_i v_j$, constant for every pair of heads [`merged-conserved`]."""
    return np.einsum("hij,kij->hk", U, U) - np.outer(v, v)


def minimiser(L: Landscape) -> Matrix:
    r"""$A^\star = B^{-1} C_1 \Lambda^{-1}$ [`merged-minimum`] (Eq. 9b, 11).

    Least squares with finite-$N$ shrinkage. Directions that tokens never take are left at zero.
    """
    return np.linalg.pinv(L.context, hermitian=True) @ L.cross @ np.linalg.pinv(L.query, hermitian=True)


def lowest_loss(L: Landscape) -> float:
    r"""$L(A^\star) = L_0 - \langle A^\star, C_1\rangle$ [`merged-minimum`]."""
    return float(L.base - np.sum(minimiser(L) * L.cross))


def is_zero_fixed_point(L: Landscape, v: Values, U: Matrices, tolerance: float = 1e-9) -> bool:
    r"""Whether the weights rest at the zero function [`merged-zero-set`].

    That takes $v = 0$ and $\langle U_i, C_1\rangle = 0$ for every head. Eq. 9a of the paper lists $U = 0$
    alone; a key-query matrix orthogonal to $C_1$ rests there as well.
    """
    overlap = np.einsum("hij,ij->h", U, L.cross)
    size = np.linalg.norm(L.cross) * max(1.0, float(np.abs(U).max()))
    return bool(np.abs(v).max() <= tolerance and np.abs(overlap).max() <= tolerance * size)


def zero_fixed_point_rates(L: Landscape, U: Matrices) -> tuple[Values, Values]:
    r"""Growth rates and decay rates of the flow around a zero-function fixed point [`merged-zero-set`].

    $$s_\pm = \tfrac12\Big(-\mu \pm \sqrt{\mu^2 + 4\|C_1\|_F^2}\Big),\qquad
      \mu \in \operatorname{eig}\, [\langle U_i, B U_j \Lambda\rangle]_{ij}$$

    Exactly $H$ directions grow, so all these points are strict saddles; every other rate is 0.
    """
    if not is_zero_fixed_point(L, np.zeros(len(U)), U):
        raise BadInput("U: every head must be orthogonal to C_1 at a fixed point that computes zero")
    mu = np.linalg.eigvalsh(np.einsum("hij,kij->hk", U, L.context @ U @ L.query))
    spread = np.sqrt(mu**2 + 4 * escape_rate(L) ** 2)
    return (spread - mu) / 2, -(spread + mu) / 2


def escape_rate(L: Landscape) -> float:
    r"""$\sqrt O\,\|C_1\|_F$, the growth rate of small weights [`merged-escape`]."""
    return float(np.sqrt(L.outputs) * np.linalg.norm(L.cross))


def escape_time(L: Landscape, initial: float) -> float:
    r"""$\ln(1/w)/\|C_1\|_F$: how the plateau lengthens as initial weights shrink [`merged-escape`].

    The slope in $\ln(1/w)$ is exact, the constant is not: use `half_time` for that.
    """
    if not initial > 0:
        raise BadInput(f"initial: {initial} must be greater than 0")
    return float(np.log(1 / initial) / escape_rate(L))


class Alignment(NamedTuple):
    """How much of the initial weights grows and how much decays, and each head's share in the growth."""

    alpha: float
    beta: float
    share: Values


def alignment(L: Quadratic, v: Values, U: Matrices) -> Alignment:
    r"""$\alpha = \tfrac14|v + y|^2$ and $\beta = \tfrac14|v - y|^2$ [`merged-alpha`].

    Here $y_i = \langle U_i, C_1\rangle/\|C_1\|_F$. Small weights grow along $v = y$ and shrink along $v =
    -y$. So $\alpha$ is what the paper's $w_{init}^2$ must mean: the norm of a layer misses the drop time by
    several per cent, $\alpha$ by less than the size of the weights.
    """
    y = np.einsum("hij,ij->h", U, L.cross) / np.linalg.norm(L.cross)
    growing = (v + y) / 2
    alpha = float(growing @ growing)
    share = growing / np.sqrt(alpha) if alpha > 0 else np.zeros_like(growing)
    return Alignment(alpha, float((v - y) @ (v - y)) / 4, share)


def modes(L: Quadratic, decay: float = 0.0) -> Modes:
    r"""The modes in which the loss is diagonal: entries of $U$, or eigenvectors of the form [`merged-sample`].

    After a short linear phase all heads are collinear and $U$ has an entry only where $C_1$ has one, in bases that
    diagonalise $B$ and $\Lambda$. When $\Lambda$ and $\Omega$ commute these are $D$ numbers [`merged-reduction`].
    """
    root, along = np.sqrt(L.outputs), lambda form, basis: np.einsum("id,ij,jd->d", basis, form, basis)
    if isinstance(L, Landscape):
        left = right = np.linalg.eigh(L.query)[1]
        form = right.T @ L.context @ right
        if np.abs(form - np.diag(np.diag(form))).max() > 1e-10 * np.abs(form).max():
            left = np.linalg.eigh(L.context)[1]
        drive, curvature = root * left.T @ L.cross @ right, np.outer(along(L.context, left), along(L.query, right))
        used = np.abs(drive) > 1e-12 * np.abs(drive).max()
        return Modes(L.base, L.outputs, drive[used], curvature[used], decay)
    units = np.eye(L.cross.size)
    curvature, vectors = np.linalg.eigh(L.curve(units.reshape(-1, *L.cross.shape)).reshape(units.shape))
    return Modes(L.base, L.outputs, root * (L.cross.ravel() @ vectors), curvature, decay)


def half_time(L: Quadratic, alpha: float, decay: float = 0.0) -> float:
    r"""The time at which half of the drop to where the weights rest is done [`merged-half-time`]."""
    m = modes(L, decay)
    return m.half_time(alpha, float(m.loss(m.rest())))
