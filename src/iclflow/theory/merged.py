r"""Attention with one key-query matrix per head: one plateau, one abrupt drop.

The reduced model $\hat y = \sum_i v_i\, \beta' U_i x_q$ is a two-layer linear network on $\beta x_q'$ and
flows by [`merged-flow`] (Eq. 8)

$$\tau \dot v_i = \langle U_i, G\rangle,\qquad \tau \dot U_i = v_i\, G,\qquad
  G = C_1 - B\Big(\sum_i v_i U_i\Big)\Lambda .$$

$C_1, B, \Lambda$ are those of a `Landscape`. With $O$ independent outputs, whose label blocks are $V_i =
(v_i/\sqrt O) I$, the same equations hold with $\sqrt O\, C_1$ for $C_1$; each output then carries $A = \sum_i
v_i U_i / \sqrt O$. Time is $t/\tau$ throughout.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy
from jaxtyping import Bool, Float

from iclflow.errors import BadInput
from iclflow.theory.landscape import Landscape

__all__ = [
    "Alignment",
    "Course",
    "MatrixCourse",
    "Quadratic",
    "alignment",
    "conserved",
    "course",
    "effective",
    "escape_rate",
    "escape_time",
    "expected_alpha",
    "flow",
    "half_time",
    "is_zero_fixed_point",
    "lowest_loss",
    "matrix_course",
    "minimiser",
    "predict",
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
    def curve(self, A: Matrix) -> Matrix: ...


def effective(L: Landscape, v: Values, U: Matrices) -> Matrix:
    r"""The matrix $A = \sum_i v_i U_i / \sqrt O$ that one output applies.

    Args:
        L: The population loss.
        v: Value weights, one per head.
        U: Key-query matrices, one per head.

    Returns:
        The effective matrix.
    """
    return np.einsum("h,hij->ij", v, U) / np.sqrt(L.outputs)


def flow(L: Landscape, v: Values, U: Matrices) -> tuple[Values, Matrices]:
    r"""$(\tau\dot v, \tau\dot U)$ on the population loss [`merged-flow`] (Eq. 8).

    Args:
        L: The population loss.
        v: Value weights, one per head.
        U: Key-query matrices, one per head.

    Returns:
        The time derivatives of `v` and `U`.
    """
    G = np.sqrt(L.outputs) * L.force(effective(L, v, U))
    return np.einsum("hij,ij->h", U, G), v[:, None, None] * G


def conserved(v: Values, U: Matrices) -> Float[np.ndarray, "H H"]:
    r"""$\langle U_i, U_j\rangle - v_i v_j$, constant for every pair of heads [`merged-conserved`].

    Args:
        v: Value weights, one per head.
        U: Key-query matrices, one per head.

    Returns:
        One number per pair of heads.
    """
    return np.einsum("hij,kij->hk", U, U) - np.outer(v, v)


def minimiser(L: Landscape) -> Matrix:
    r"""$A^\star = B^{-1} C_1 \Lambda^{-1}$ [`merged-minimum`] (Eq. 9b, 11).

    Least squares with finite-$N$ shrinkage. Directions that tokens never take are left at zero.

    Args:
        L: The population loss.

    Returns:
        The effective matrix of least loss.
    """
    return np.linalg.pinv(L.context, hermitian=True) @ L.cross @ np.linalg.pinv(L.query, hermitian=True)


def lowest_loss(L: Landscape) -> float:
    r"""$L(A^\star) = L_0 - \langle A^\star, C_1\rangle$ [`merged-minimum`].

    Args:
        L: The population loss.

    Returns:
        The loss.
    """
    return float(L.base - np.sum(minimiser(L) * L.cross))


def is_zero_fixed_point(L: Landscape, v: Values, U: Matrices, tolerance: float = 1e-9) -> bool:
    r"""Whether the weights rest at the zero function [`merged-zero-set`].

    That takes $v = 0$ and $\langle U_i, C_1\rangle = 0$ for every head. Eq. 9a of the paper lists $U = 0$
    alone; a key-query matrix orthogonal to $C_1$ rests there as well.

    Args:
        L: The population loss.
        v: Value weights, one per head.
        U: Key-query matrices, one per head.
        tolerance: Largest deviation that counts as zero.

    Returns:
        True if nothing moves.
    """
    overlap = np.einsum("hij,ij->h", U, L.cross)
    size = np.linalg.norm(L.cross) * max(1.0, float(np.abs(U).max()))
    return bool(np.abs(v).max() <= tolerance and np.abs(overlap).max() <= tolerance * size)


def zero_fixed_point_rates(L: Landscape, U: Matrices) -> tuple[Values, Values]:
    r"""Growth rates and decay rates of the flow around a zero-function fixed point [`merged-zero-set`].

    $$s_\pm = \tfrac12\Big(-\mu \pm \sqrt{\mu^2 + 4\|C_1\|_F^2}\Big),\qquad
      \mu \in \operatorname{eig}\, [\langle U_i, B U_j \Lambda\rangle]_{ij}$$

    Exactly $H$ directions grow, so all these points are strict saddles; every other rate is 0.

    Args:
        L: The population loss.
        U: Key-query matrices, one per head.

    Returns:
        Growth rates and decay rates, one of each per head.

    Raises:
        BadInput: If a head is not orthogonal to C_1.
    """
    if not is_zero_fixed_point(L, np.zeros(len(U)), U):
        raise BadInput("U: every head must be orthogonal to C_1 at a fixed point that computes zero")
    mu = np.linalg.eigvalsh(np.einsum("hij,kij->hk", U, L.context @ U @ L.query))
    spread = np.sqrt(mu**2 + 4 * escape_rate(L) ** 2)
    return (spread - mu) / 2, -(spread + mu) / 2


def escape_rate(L: Landscape) -> float:
    r"""$\sqrt O\,\|C_1\|_F$, the growth rate of small weights [`merged-escape`].

    Args:
        L: The population loss.

    Returns:
        The rate, in units of 1/tau.
    """
    return float(np.sqrt(L.outputs) * np.linalg.norm(L.cross))


def escape_time(L: Landscape, initial: float) -> float:
    r"""$\ln(1/w)/\|C_1\|_F$: how the plateau lengthens as initial weights shrink [`merged-escape`].

    The slope in $\ln(1/w)$ is exact, the constant is not: use `half_time` for that.

    Args:
        L: The population loss.
        initial: Size w of the initial weights.

    Returns:
        The time t/tau.

    Raises:
        BadInput: If `initial` is not positive.
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

    Args:
        L: The loss, of the population or of a sample.
        v: Value weights, one per head.
        U: Key-query matrices, one per head.

    Returns:
        Growing part, decaying part and the heads' shares.
    """
    y = np.einsum("hij,ij->h", U, L.cross) / np.linalg.norm(L.cross)
    growing = (v + y) / 2
    alpha = float(growing @ growing)
    share = growing / np.sqrt(alpha) if alpha > 0 else np.zeros_like(growing)
    return Alignment(alpha, float((v - y) @ (v - y)) / 4, share)


def expected_alpha(heads: int, scale: float) -> float:
    r"""$E\alpha = H\epsilon^2/2$ for entries of standard deviation $\epsilon$ [`merged-alpha`].

    Args:
        heads: Number of heads.
        scale: Standard deviation of the entries.

    Returns:
        The mean of alpha.
    """
    return heads * scale**2 / 2


class Course(NamedTuple):
    """Loss and weights along the flow; head `i` has `share[i]` of `value` and of `matrix`."""

    time: Times
    loss: Times
    value: Times  # |v|, over all heads
    gains: Float[np.ndarray, "T D"]  # u_d = e_d' U e_d, in falling order of the token eigenvalues
    matrix: Float[np.ndarray, "T D D"]  # U, over all heads


class Modes(NamedTuple):
    r"""Entries of $P'UQ$ that take part; $P, Q$ diagonalise $B$ and $\Lambda$, so forces are entrywise."""

    left: Matrix
    right: Matrix
    used: Bool[np.ndarray, "D D"]
    drive: Float[np.ndarray, " M"]
    curvature: Float[np.ndarray, " M"]

    def loss(self, L: Landscape, strengths: Float[np.ndarray, "*T M"]) -> Float[np.ndarray, "*T"] | float:
        change = (self.curvature * strengths - 2 * self.drive) * strengths
        return L.base + change.sum(-1) / L.outputs


def modes(L: Landscape) -> Modes:
    right_values, right = np.linalg.eigh(L.query)
    left_values, left = np.einsum("id,ij,jd->d", right, L.context, right), right
    if np.abs(right.T @ L.context @ right - np.diag(left_values)).max() > 1e-10 * np.abs(left_values).max():
        left_values, left = np.linalg.eigh(L.context)
    drive = np.sqrt(L.outputs) * left.T @ L.cross @ right
    used = np.abs(drive) > 1e-12 * np.abs(drive).max()
    return Modes(left, right, used, drive[used], np.outer(left_values, right_values)[used])


def course(L: Landscape, alpha: float, time: Times) -> Course:
    r"""Loss and weights from a small start with growing part $\alpha$ [`merged-reduction`].

    After a short linear phase all heads are collinear and $U$ has an entry only where $C_1$ has one. When
    $\Lambda$ and $\Omega$ commute these are $D$ numbers $u_d$ beside the value $a$:

    $$\tau\dot a = \sum_d u_d\,(g_d - m_d\, a u_d),\qquad \tau\dot u_d = a\,(g_d - m_d\, a u_d),\qquad
      a(0) = \sqrt\alpha,\quad u(0) = \sqrt\alpha\; g/|g| .$$

    Integrated as $\ln a$ and $u/a$; $u/a$ is constant on the plateau, so a long plateau costs nothing.

    Args:
        L: The population loss.
        alpha: Growing part of the initial weights.
        time: Times t/tau.

    Returns:
        Loss and weights at every time.

    Raises:
        BadInput: If `alpha` or `time` is not valid.
    """
    time = checked_time(time)
    m = modes(L)
    path = integrate(m, alpha, time[-1] if time[-1] > 0 else 1.0, t_eval=time)
    value = np.exp(path.y[0])
    entries = value[:, None] * path.y[1:].T
    matrix = np.zeros((len(time), *m.used.shape))
    matrix[:, m.used] = entries
    matrix = m.left @ matrix @ m.right.T
    vectors = np.linalg.eigh(L.query)[1][:, ::-1]
    gains = np.einsum("id,tij,jd->td", vectors, matrix, vectors)
    return Course(time, np.asarray(m.loss(L, value[:, None] * entries)), value, gains, matrix)


def predict(L: Landscape, v: Values, U: Matrices, time: Times) -> Course:
    r"""`course` from given initial weights, through their $\alpha$ [`merged-reduction`].

    Args:
        L: The population loss.
        v: Value weights, one per head.
        U: Key-query matrices, one per head.
        time: Times t/tau.

    Returns:
        Loss and weights at every time.

    Raises:
        BadInput: If no part of the weights grows, or `time` is not valid.
    """
    return course(L, alignment(L, v, U).alpha, time)


def half_time(L: Landscape, alpha: float) -> float:
    r"""The time at which half of the drop from $L_0$ to $L(A^\star)$ is done [`merged-half-time`].

    Args:
        L: The population loss.
        alpha: Growing part of the initial weights.

    Returns:
        The time t/tau.

    Raises:
        BadInput: If `alpha` is not positive, or too large to start above half of the drop.
    """
    m = modes(L)
    middle = (L.base + lowest_loss(L)) / 2

    def above(_, state):
        return m.loss(L, np.exp(2 * state[0]) * state[1:]) - middle

    above.terminal = True  # type: ignore[attr-defined]
    horizon = 1e6 * (abs(np.log(alpha)) + 1) / escape_rate(L) if alpha > 0 else 1.0
    path = integrate(m, alpha, horizon, events=above)
    start = m.loss(L, alpha * m.drive / np.linalg.norm(m.drive))
    if not middle < start <= L.base or not len(path.t_events[0]):
        raise BadInput(f"alpha: {alpha} must be small enough to start above half of the drop")
    return float(path.t_events[0][0])


def integrate(m: Modes, alpha: float, end: float, **options: Any) -> "scipy.optimize.OptimizeResult":
    r"""The flow of the modes as $\ln a$ and $u/a$."""

    def field(_, state):
        ratio = state[1:]
        # A trial step may overshoot far beyond any strength; the cap keeps it finite until it is rejected.
        pull = m.drive - m.curvature * np.exp(min(2 * state[0], 100.0)) * ratio
        growth = ratio @ pull
        return np.concatenate([[growth], pull - ratio * growth])

    return solve(field, alpha, m.drive / np.linalg.norm(m.drive), end, **options)


def solve(
    field: Callable[..., np.ndarray], alpha: float, unit: Float[np.ndarray, " n"], end: float, **options: Any
) -> "scipy.optimize.OptimizeResult":
    r"""Integrate a flow of the logarithm of a norm and a direction, from the norm $\sqrt\alpha$ along `unit`."""
    start = np.concatenate([[np.log(checked_alpha(alpha)) / 2], unit])
    path = scipy.integrate.solve_ivp(field, (0.0, end), start, method="LSODA", rtol=1e-9, atol=1e-11, **options)
    if path.status < 0:
        raise BadInput(f"alpha: {alpha} gives a flow that cannot be integrated ({path.message})")
    return path


def checked_alpha(alpha: float) -> float:
    if not (alpha > 0 and np.isfinite(alpha)):
        raise BadInput(f"alpha: {alpha} must be a finite number greater than 0")
    return alpha


class MatrixCourse(NamedTuple):
    """Loss and value weight along the flow, and when half of the drop to `lowest` is done."""

    loss: Times
    value: Times  # |v|, over all heads
    half_time: float


def matrix_course(L: Quadratic, alpha: float, lowest: float, time: Times) -> MatrixCourse:
    r"""`course` for a loss that no basis makes diagonal, such as a sample's [`merged-sample`].

    All heads are collinear after the linear phase here too, so $a$ and one matrix $U$ remain, started along $C_1$:
    $\tau\dot a = \langle U, G\rangle$, $\tau\dot U = a\,G$, integrated as $\ln a$ and $U/a$.

    Args:
        L: The loss, of the population or of a sample.
        alpha: Growing part of the initial weights.
        lowest: Loss at the end of the drop.
        time: Times t/tau.

    Returns:
        Loss and value weight at every time, and the half time.

    Raises:
        BadInput: If `alpha` or `time` is not valid.
    """
    alpha, time, root = checked_alpha(alpha), checked_time(time), np.sqrt(L.outputs)
    dim, middle = len(L.cross), (L.base + lowest) / 2

    def matrix(state):
        return np.exp(min(2 * state[0], 100.0)) * state[1:].reshape(dim, dim) / root

    def field(_, state):
        pull = (root * L.force(matrix(state))).ravel()
        growth = state[1:] @ pull
        return np.concatenate([[growth], pull - state[1:] * growth])

    def above(_, state):
        return L.loss(matrix(state)) - middle

    horizon = max(float(time[-1]), 4 * abs(np.log(alpha)) / (root * np.linalg.norm(L.cross)))
    unit = (L.cross / np.linalg.norm(L.cross)).ravel()
    path = solve(field, alpha, unit, horizon, t_eval=time, events=above)
    half = float(path.t_events[0][0]) if len(path.t_events[0]) else np.inf
    return MatrixCourse(np.array([L.loss(matrix(x)) for x in path.y.T]), np.exp(path.y[0]), half)


def checked_time(time: Times) -> Times:
    time = np.asarray(time, dtype=float)
    if time.ndim != 1 or not len(time) or not np.isfinite(time).all() or time[0] < 0 or (np.diff(time) < 0).any():
        raise BadInput("time: must be a rising sequence of finite numbers from 0 on")
    return time
