r"""Separate key and query of rank $R$: the reduced flow, what it conserves, and where it stops.

With $A = \sum_i v_i K_i'Q_i$ ($K_i, Q_i \in R^{R\times D}$) and the force $G = C_1 - BA\Lambda$ the flow is
(Eq. 14 for $R = 1$; `theory.equations` follows it) [`separate-flow`]

$$\tau\dot v_i = \mathrm{tr} K_i G Q_i',\quad \tau\dot K_i = v_i Q_i G',\quad \tau\dot Q_i = v_i K_i G.$$

It stops in function space exactly at the $2^D$ matrices $A_S = \sum_{d\in S}\alpha_d\,\ell_d r_d'$, one for
every set $S$ of directions (Eq. 16), with loss $L(S) = L_0 - \sum_{d\in S} T_d^2$ (Eq. 19), if all $T_d^2$
differ.

With $O$ outputs a head's label block is $V_i = (v_i/\sqrt O)\,I$; then the force on key and query is $\sqrt
O\,G$.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float

from iclflow.data.spectrum import root
from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions, Landscape

__all__ = [
    "Conditions",
    "SampleLandscape",
    "ansatz_weights",
    "conditions",
    "conserved",
    "effective_matrix",
    "escape_directions",
    "fixed_points",
    "hessian_spectrum",
    "rank_optimum",
    "sample_modes",
]

MOST_DIRECTIONS = 20  # at most 2^20 fixed points are listed

Mask = Bool[np.ndarray, " D"]
Matrix = Float[np.ndarray, "D D"]
Values = Float[np.ndarray, " H"]
Keys = Float[np.ndarray, "H R D"]


@dataclass(frozen=True)
class SampleLandscape:
    r"""The loss of the reduced model on a finite sample, as a mean over outputs [`sample-loss`].

    $$L(A) = L_0 - 2\sum A_{ac} C_{ac} + \sum A_{ac}\,\mathcal Q_{ac,bd}\,A_{bd},\qquad
      C_{ac} = \langle y_q\beta_a x_c\rangle,\quad \mathcal Q_{ac,bd} = \langle\beta_a x_c\beta_b
      x_d\rangle$$
    """

    cross: Float[np.ndarray, "D D"]
    quadratic: Float[np.ndarray, "D D D D"]  # indices a, c, b, d
    base: float
    outputs: int = 1
    asymmetry: float = 0.0  # size of the odd moments of the tasks, where they push on vector blocks that are left out
    features: Float[np.ndarray, "F F"] | None = None  # moments of all blocks, where they are followed (`all_blocks`)
    correlation: Float[np.ndarray, "O E E D"] | None = None  # of these features with the labels

    def loss(self, A: Matrix) -> float:
        r"""$L(A)$, a mean over outputs that all carry the same $A$."""
        return float(self.base - 2 * np.sum(A * self.cross) + np.sum(A * self.curve(A)))

    def force(self, A: Matrix) -> Matrix:
        r"""$G = -\tfrac12 \partial L/\partial A$."""
        return self.cross - self.curve(A)

    @no_type_check
    def curve(self, A: Float[np.ndarray, "*stack D D"]) -> Float[np.ndarray, "*stack D D"]:
        r"""$\mathcal Q A$, the part of the gradient that is linear in $A$."""
        D = A.shape[-1]
        return (A.reshape(-1, D * D) @ self.quadratic.reshape(D * D, D * D)).reshape(A.shape)


def effective_matrix(v: Values, K: Keys, Q: Keys) -> Matrix:
    r"""$A = \sum_i v_i K_i'Q_i$, so that $\hat y = \beta'Ax_q$ (one output; divide by $\sqrt O$ for more)."""
    return np.einsum("h,hrd,hre->de", v, K, Q)


def check_shapes(v: np.ndarray, K: np.ndarray, Q: np.ndarray) -> None:
    """Refuse weights whose shapes do not fit each other, or that are not finite."""
    if not all(np.isfinite(x).all() for x in (v, K, Q)):
        raise BadInput("v, K, Q: hold NaN or infinity; every weight must be finite")
    if K.ndim != 3 or K.shape != Q.shape or v.shape != K.shape[:1]:
        raise BadInput(f"v, K, Q: shapes {v.shape}, {K.shape}, {Q.shape} must be (H,), (H, R, D), (H, R, D)")


def conserved(v: Values, K: Keys, Q: Keys) -> tuple[Values, Float[np.ndarray, "H R R"]]:
    r"""$v_i^2 - \|K_i\|_F^2$ and $K_iK_i' - Q_iQ_i'$, constant along the flow [`conserved`]."""

    def gram(W):
        return W @ W.transpose(0, 2, 1)

    return v**2 - np.sum(K**2, axis=(1, 2)), gram(K) - gram(Q)


def check_distinct(d: Directions) -> None:
    """Fixed points are isolated in function space only if no two directions save the same loss."""
    saved = np.sort(d.saved)
    ties = np.diff(saved) <= 1e-9 * saved[-1]
    if ties.any():
        raise BadInput(
            f"spectrum: directions that save the same loss {saved[:-1][ties][0]:.6g} have continua of fixed"
            " points; all lambda_d * omega_d must differ"
        )


def check_commuting(d: Directions, what: str) -> None:
    if not d.commuting:
        raise BadInput(f"task_spectrum: {what} needs task and token covariance to share eigenvectors")


def fixed_points(d: Directions) -> Iterator[tuple[Mask, float]]:
    """Every set of learned directions and its loss, $2^D$ pairs [`fixed-points`]."""
    size = len(d.drive)
    if size > MOST_DIRECTIONS:
        raise BadInput(f"dim: {size} directions have 2^{size} fixed points; at most {MOST_DIRECTIONS} are listed")
    check_distinct(d)
    for code in range(2**size):
        learned = (code >> np.arange(size)) % 2 == 1
        yield learned, d.loss(learned)


def ansatz_weights(d: Directions, learned: Mask, heads: int, rank: int = 1) -> tuple[Values, Keys, Keys]:
    r"""Balanced weights of the fixed point $S$: $\kappa_d^2 = \alpha_d/v$ per direction (Eq. 20) [`ansatz`].

    Heads are filled in the order of learning, `rank` directions each, $v^3 = \sum_d\alpha_d$ over those that a head
    holds [`rank-strength`]; the others are zero.
    """
    chosen = [j for j in d.order if learned[j]]
    if len(chosen) > heads * rank:
        raise BadInput(f"heads: {heads} of rank {rank} cannot hold {len(chosen)} directions")
    size = len(d.drive)
    v, K, Q = np.zeros(heads), np.zeros((heads, rank, size)), np.zeros((heads, rank, size))
    for h in range(0, -(-len(chosen) // rank)):
        held = chosen[h * rank : (h + 1) * rank]
        v[h] = d.strength[held].sum() ** (1 / 3)
        for r, j in enumerate(held):
            K[h, r] = np.sqrt(d.strength[j] / v[h]) * d.left[:, j]
            Q[h, r] = np.sqrt(d.strength[j] / v[h]) * d.right[:, j]
    return v, K, Q


class Conditions(NamedTuple):
    """How far weights are from a fixed point; all zero, up to rounding, where they are one.

    The paper's C1 (Eq. 16), C2 (Eq. 17) and C3 (Eq. 18), relative to the size of what should vanish. C3 is
    sufficient, not necessary: a silent head, $v_i = 0$, only needs `silent` $= k_i'Gq_i = 0$.
    """

    matrix: float  # C1: A against A_S
    span: Values  # C2: part of key and query of a speaking head outside the learned span
    silent_span: Values  # C3: the smaller of the two parts for a silent head
    silent: Values  # tr(K G Q') of a silent head, relative to |K||G||Q|

    def hold(self, tolerance: float = 1e-8) -> bool:
        """Whether C1, C2 and the condition that silent heads really need hold."""
        return bool(max(self.matrix, self.span.max(), self.silent.max()) <= tolerance)

    def hold_as_published(self, tolerance: float = 1e-8) -> bool:
        """Whether C1, C2 and C3 hold, as the paper states them."""
        return bool(max(self.matrix, self.span.max(), self.silent_span.max()) <= tolerance)


def conditions(d: Directions, learned: Mask, v: Values, K: Keys, Q: Keys) -> Conditions:
    """The paper's conditions for weights to be the fixed point of a set of directions [`conditions`]."""
    check_shapes(v, K, Q)
    learned = np.asarray(learned, dtype=bool)
    target = (d.left * (d.strength * learned)) @ d.right.T
    A = effective_matrix(v, K, Q)
    spoken = np.abs(v) > 1e-12 * max(np.abs(v).max(), 1e-300)
    dual_left, dual_right = np.linalg.inv(d.left), np.linalg.inv(d.right)

    def inside(W, basis, dual):
        return W @ (dual.T * learned) @ basis.T

    def outside(W, basis, dual):
        return np.linalg.norm(W - inside(W, basis, dual), axis=(1, 2))

    def share(part, W):
        return part / np.maximum(np.linalg.norm(W, axis=(1, 2)), 1e-300)

    key, query = share(outside(K, d.left, dual_left), K), share(outside(Q, d.right, dual_right), Q)
    G = dual_left.T @ np.diag(d.drive * ~learned) @ dual_right
    felt = np.abs(np.einsum("hrd,de,hre->h", K, G, Q))
    scale = np.linalg.norm(K, axis=(1, 2)) * np.linalg.norm(Q, axis=(1, 2)) * max(np.linalg.norm(G), 1e-300)
    return Conditions(
        matrix=float(np.linalg.norm(A - target) / np.linalg.norm(d.strength)),
        span=np.where(spoken, np.maximum(key, query), 0.0),
        silent_span=np.where(spoken, 0.0, np.minimum(key, query)),
        silent=np.where(spoken, 0.0, felt / np.maximum(scale, 1e-300)),
    )


def hessian_spectrum(d: Directions, learned: Mask, heads: int) -> Float[np.ndarray, " n"]:
    r"""All eigenvalues of $-\tfrac12\partial^2 L$ at the rank-one ansatz, one head per direction [`hessian`].

    Rising order, $n = H(2D+1)$; a positive one is a direction of escape. With $v_i = \alpha_i^{1/3}$:

    * each $i\in S$: $-3m_iv_i^4, 0, 0$;
    * each pair $i, j\in S$: $-B_j\lambda_i(v_i^4+v_j^4)$, $-B_i\lambda_j(v_i^4+v_j^4)$, $0, 0$;
    * each $i\in S$, $d\notin S$: those of `exchange_block`;
    * each silent head: $2D+1$ zeros.

    With several outputs this is the block in which every $V_i$ is a multiple of the identity.
    """
    check_commuting(d, "the Hessian spectrum")
    inside, outside = (np.flatnonzero(np.asarray(learned) == held).tolist() for held in (True, False))
    if len(inside) > heads:
        raise BadInput(f"heads: {heads} cannot hold {len(inside)} directions at rank one")
    v4 = d.strength ** (4 / 3)
    values = [0.0] * ((heads - len(inside)) * (2 * len(d.drive) + 1))
    for n, i in enumerate(inside):
        values += [-3 * d.curvature[i] * v4[i], 0.0, 0.0]
        for j in inside[:n]:
            both = v4[i] + v4[j]
            values += [-d.context[j] * d.query[i] * both, -d.context[i] * d.query[j] * both, 0.0, 0.0]
        for j in outside:
            values += list(np.linalg.eigvalsh(exchange_block(d, i, j, d.strength[i] ** (1 / 3))))
    return np.sort(np.array(values))


def exchange_block(d: Directions, i: int, j: int, value: float) -> Float[np.ndarray, "2 2"]:
    r"""Growth of key and query along $j$ in a head of value $v$ that holds $i$ [`hessian`, `rotation`].

    $$\begin{pmatrix}-v\alpha_iB_j\lambda_i & vg_j\\ vg_j & -v\alpha_iB_i\lambda_j\end{pmatrix},\qquad
      \text{top eigenvalue} > 0 \iff T_j^2 > T_i^2 .$$
    """
    hold = value * d.strength[i]
    return np.array(
        [
            [-hold * d.context[j] * d.query[i], value * d.drive[j]],
            [value * d.drive[j], -hold * d.context[i] * d.query[j]],
        ]
    )


def escape_directions(d: Directions, learned: Mask) -> int:
    r"""Index of the ansatz point: $\#\{(i\in S, j\notin S): T_j^2 > T_i^2\}$ [`index`].

    It is 0 wherever $S$ holds the largest $T_d^2$: the saddles that training visits have no negative
    curvature. Training leaves them through cubic terms, so a plateau lasts as long as $1/$init, not
    $\ln(1/$init$)$.
    """
    check_commuting(d, "the index")
    check_distinct(d)
    learned = np.asarray(learned, dtype=bool)
    return int(np.sum(d.saved[~learned][None, :] > d.saved[learned][:, None]))


def rank_optimum(L: Landscape | SampleLandscape, rank: int) -> Matrix:
    r"""The matrix of least loss with rank at most `rank` [`rank-optimum`].

    Population: $A_m = B^{-1/2}[T]_m\Lambda^{-1/2}$, $[T]_m$ the best rank-$m$ part of $T =
    B^{-1/2}C_1\Lambda^{-1/2}$. Sample: alternating least squares over $A = XY'$, started at what that formula
    gives with averages over $\mathcal Q$.
    """
    D = len(L.cross)
    if not 0 <= rank <= D:
        raise BadInput(f"rank: {rank} must lie between 0 and {D}")
    if rank == 0:
        return np.zeros((D, D))
    if isinstance(L, Landscape):
        free = np.linalg.solve(L.context, np.linalg.solve(L.query, L.cross.T).T)
        return weighted_leading(free, L.context, L.query, rank)
    moments = L.quadratic.reshape(D * D, D * D)
    context, query = np.einsum("acbc->ab", L.quadratic), np.einsum("acad->cd", L.quadratic)
    if np.linalg.matrix_rank(moments, hermitian=True) < D * D:
        spanned = min(int(np.linalg.matrix_rank(part, hermitian=True)) for part in (context, query))
        if spanned < D:
            raise BadInput(f"spectrum: must have full rank for theory; the tokens span {spanned} of {D} directions")
        raise BadInput(f"samples: too few for theory; the {D * D} features beta_a x_c must be independent")
    free = np.linalg.solve(moments, L.cross.ravel()).reshape(D, D)
    if rank == D:
        return free
    return alternate(L, weighted_leading(free, context, query, rank), rank)


def weighted_leading(matrix: Matrix, context: Matrix, query: Matrix, rank: int) -> Matrix:
    r"""Best part of rank `rank` in the norm $\operatorname{tr}(A'BA\Lambda)$."""
    left, right = root(context), root(query)
    u, s, wt = np.linalg.svd(left @ matrix @ right)
    return np.linalg.solve(left, (u[:, :rank] * s[:rank]) @ np.linalg.solve(right, wt[:rank].T).T)


def alternate(L: SampleLandscape, A: Matrix, rank: int, sweeps: int = 500) -> Matrix:
    """Least squares for one factor at a time until the loss no longer falls."""
    loss = L.loss(A)
    for _ in range(sweeps):
        Y = np.linalg.svd(A)[2][:rank].T
        A = half_step(L.quadratic, L.cross, Y) @ Y.T
        X = np.linalg.svd(A)[0][:, :rank]
        A = X @ half_step(L.quadratic.transpose(1, 0, 3, 2), L.cross.T, X).T
        previous, loss = loss, L.loss(A)
        if previous - loss <= 1e-13 * abs(L.base):
            break
    return A


def half_step(
    quadratic: Float[np.ndarray, "D D D D"], cross: Matrix, Y: Float[np.ndarray, "D m"]
) -> Float[np.ndarray, "D m"]:
    """The best $X$ for a fixed $Y$ in $A = XY'$."""
    D, m = Y.shape
    small = np.tensordot(np.tensordot(quadratic, Y, axes=(3, 0)), Y, axes=(1, 0))  # a, b, m(of d), m(of c)
    system = small.transpose(0, 3, 1, 2).reshape(D * m, D * m)
    return np.linalg.solve(system, (cross @ Y).ravel()).reshape(D, m)


def sample_modes(L: Landscape | SampleLandscape, count: int) -> list[tuple[float, float]]:
    """Drive and curvature of the first drops: those of the strongest force on the plateau before each."""
    found = []
    for m in range(count):
        left, drive, right = np.linalg.svd(L.force(rank_optimum(L, m)))
        pair = np.outer(left[:, 0], right[0])
        found.append((float(np.sqrt(L.outputs) * drive[0]), float(np.sum(pair * L.curve(pair)))))
    return found
