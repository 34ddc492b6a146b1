r"""Attention with one key-query matrix a head: one plateau, one abrupt drop.

The reduced model $\hat y = \sum_i v_i\, \beta' U_i x_q$ is a two-layer linear network on $\beta x_q'$ and
flows by [`merged-flow`] (Eq. 8)

$$\tau \dot v_i = \langle U_i, G\rangle,\qquad \tau \dot U_i = v_i\, G,\qquad
  G = C_1 - B\Big(\sum_i v_i U_i\Big)\Lambda .$$

$C_1, B, \Lambda$ are those of a `Landscape`. With $O$ independent outputs, whose label blocks are $V_i =
(v_i/\sqrt O) I$, the same equations hold with $\sqrt O\, C_1$ for $C_1$; each output then carries $A = \sum_i
v_i U_i / \sqrt O$. Time is $t/\tau$ throughout.
"""

from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import solve_ivp

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


class Quadratic(Protocol):
    """Any quadratic loss of the reduced model, a sample's among them."""

    cross: Float[np.ndarray, "D D"]
    base: float
    outputs: int

    def loss(self, A: Float[np.ndarray, "D D"]) -> float: ...
    def force(self, A: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"]: ...


def effective(scene: Landscape, v: Float[np.ndarray, " H"], U: Float[np.ndarray, "H D D"]) -> Float[np.ndarray, "D D"]:
    r"""The matrix $A = \sum_i v_i U_i / \sqrt O$ that one output applies."""
    return np.einsum("h,hij->ij", v, U) / np.sqrt(scene.outputs)


def flow(
    scene: Landscape, v: Float[np.ndarray, " H"], U: Float[np.ndarray, "H D D"]
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H D D"]]:
    r"""$(\tau\dot v, \tau\dot U)$ on the population loss [`merged-flow`] (Eq. 8)."""
    G = np.sqrt(scene.outputs) * scene.force(effective(scene, v, U))
    return np.einsum("hij,ij->h", U, G), v[:, None, None] * G


def conserved(v: Float[np.ndarray, " H"], U: Float[np.ndarray, "H D D"]) -> Float[np.ndarray, "H H"]:
    r"""$\langle U_i, U_j\rangle - v_i v_j$, constant for every pair of heads [`merged-conserved`]."""
    return np.einsum("hij,kij->hk", U, U) - np.outer(v, v)


def minimiser(scene: Landscape) -> Float[np.ndarray, "D D"]:
    r"""$A^\star = B^{-1} C_1 \Lambda^{-1}$ [`merged-minimum`] (Eq. 9b, 11).

    Least squares with finite-$N$ shrinkage. Directions that tokens never take are left at zero.
    """
    return np.linalg.pinv(scene.context, hermitian=True) @ scene.cross @ np.linalg.pinv(scene.query, hermitian=True)


def lowest_loss(scene: Landscape) -> float:
    r"""$L(A^\star) = L_0 - \langle A^\star, C_1\rangle$ [`merged-minimum`]."""
    return float(scene.base - np.sum(minimiser(scene) * scene.cross))


def is_zero_fixed_point(
    scene: Landscape, v: Float[np.ndarray, " H"], U: Float[np.ndarray, "H D D"], tolerance: float = 1e-9
) -> bool:
    r"""Whether the weights rest at the zero function [`merged-zero-set`].

    That takes $v = 0$ and $\langle U_i, C_1\rangle = 0$ for every head. Eq. 9a of the paper lists $U = 0$
    alone; a key-query matrix orthogonal to $C_1$ rests there as well.
    """
    overlap = np.einsum("hij,ij->h", U, scene.cross)
    size = np.linalg.norm(scene.cross) * max(1.0, float(np.abs(U).max()))
    return bool(np.abs(v).max() <= tolerance and np.abs(overlap).max() <= tolerance * size)


def zero_fixed_point_rates(
    scene: Landscape, U: Float[np.ndarray, "H D D"]
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"]]:
    r"""Growth rates and decay rates of the flow around a zero-function fixed point [`merged-zero-set`].

    $$s_\pm = \tfrac12\Big(-\mu \pm \sqrt{\mu^2 + 4\|C_1\|_F^2}\Big),\qquad
      \mu \in \operatorname{eig}\, [\langle U_i, B U_j \Lambda\rangle]_{ij}$$

    Exactly $H$ directions grow, so all these points are strict saddles; every other rate is 0.
    """
    if not is_zero_fixed_point(scene, np.zeros(len(U)), U):
        raise BadInput("U: every head must be orthogonal to C_1 at a fixed point that computes zero")
    mu = np.linalg.eigvalsh(np.einsum("hij,kij->hk", U, scene.context @ U @ scene.query))
    spread = np.sqrt(mu**2 + 4 * escape_rate(scene) ** 2)
    return (spread - mu) / 2, -(spread + mu) / 2


def escape_rate(scene: Landscape) -> float:
    r"""$\sqrt O\,\|C_1\|_F$, the growth rate of small weights [`merged-escape`]."""
    return float(np.sqrt(scene.outputs) * np.linalg.norm(scene.cross))


def escape_time(scene: Landscape, initial: float) -> float:
    r"""$\ln(1/w)/\|C_1\|_F$: how the plateau lengthens as initial weights shrink [`merged-escape`].

    The slope in $\ln(1/w)$ is exact, the constant is not: use `half_time` for that.
    """
    if not initial > 0:
        raise BadInput(f"initial: {initial} must be greater than 0")
    return float(np.log(1 / initial) / escape_rate(scene))


class Alignment(NamedTuple):
    """How much of the initial weights grows and how much decays, and each head's share in the growth."""

    alpha: float
    beta: float
    share: Float[np.ndarray, " H"]


def alignment(scene: Quadratic, v: Float[np.ndarray, " H"], U: Float[np.ndarray, "H D D"]) -> Alignment:
    r"""$\alpha = \tfrac14|v + y|^2$ and $\beta = \tfrac14|v - y|^2$ [`merged-alpha`].

    Here $y_i = \langle U_i, C_1\rangle/\|C_1\|_F$. Small weights grow along $v = y$ and shrink along $v =
    -y$. So $\alpha$ is what the paper's $w_{init}^2$ must mean: the norm of a layer misses the drop time by
    several per cent, $\alpha$ by less than the size of the weights.
    """
    y = np.einsum("hij,ij->h", U, scene.cross) / np.linalg.norm(scene.cross)
    growing = (v + y) / 2
    alpha = float(growing @ growing)
    share = growing / np.sqrt(alpha) if alpha > 0 else np.zeros_like(growing)
    return Alignment(alpha, float((v - y) @ (v - y)) / 4, share)


def expected_alpha(heads: int, scale: float) -> float:
    r"""$E\alpha = H\epsilon^2/2$ for entries of standard deviation $\epsilon$ [`merged-alpha`]."""
    return heads * scale**2 / 2


class Course(NamedTuple):
    """Loss and weights along the flow; head `i` has `share[i]` of `value` and of `matrix`."""

    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]
    value: Float[np.ndarray, " T"]  # |v|, over all heads
    gains: Float[np.ndarray, "T D"]  # u_d = e_d' U e_d, in falling order of the token eigenvalues
    matrix: Float[np.ndarray, "T D D"]  # U, over all heads


class Modes(NamedTuple):
    r"""Entries of $P'UQ$ that take part; $P, Q$ diagonalise $B$ and $\Lambda$, so forces are entrywise."""

    left: Float[np.ndarray, "D D"]
    right: Float[np.ndarray, "D D"]
    used: Bool[np.ndarray, "D D"]
    drive: Float[np.ndarray, " M"]
    curvature: Float[np.ndarray, " M"]

    def loss(self, scene: Landscape, strengths: Float[np.ndarray, "*T M"]) -> Float[np.ndarray, "*T"]:
        change = (self.curvature * strengths - 2 * self.drive) * strengths
        return scene.base + change.sum(-1) / scene.outputs


def modes(scene: Landscape) -> Modes:
    right_values, right = np.linalg.eigh(scene.query)
    left_values, left = (np.einsum("id,ij,jd->d", right, scene.context, right), right)
    if np.abs(right.T @ scene.context @ right - np.diag(left_values)).max() > 1e-10 * np.abs(left_values).max():
        left_values, left = np.linalg.eigh(scene.context)
    drive = np.sqrt(scene.outputs) * left.T @ scene.cross @ right
    used = np.abs(drive) > 1e-12 * np.abs(drive).max()
    return Modes(left, right, used, drive[used], np.outer(left_values, right_values)[used])


def course(scene: Landscape, alpha: float, time: Float[np.ndarray, " T"]) -> Course:
    r"""Loss and weights from a small start with growing part $\alpha$ [`merged-reduction`].

    After a short linear phase all heads are collinear and $U$ has an entry only where $C_1$ has one. When
    $\Lambda$ and $\Omega$ commute these are $D$ numbers $u_d$ beside the value $a$:

    $$\tau\dot a = \sum_d u_d\,(g_d - m_d\, a u_d),\qquad \tau\dot u_d = a\,(g_d - m_d\, a u_d),\qquad
      a(0) = \sqrt\alpha,\quad u(0) = \sqrt\alpha\; g/|g| .$$

    Integrated as $\ln a$ and $u/a$, which stand still on the plateau, so its length costs nothing.
    """
    time = checked_time(time)
    m = modes(scene)
    path = integrate(m, alpha, time[-1] if time[-1] > 0 else 1.0, t_eval=time)
    value = np.exp(path.y[0])
    entries = value[:, None] * path.y[1:].T
    matrix = np.zeros((len(time), *m.used.shape))
    matrix[:, m.used] = entries
    matrix = m.left @ matrix @ m.right.T
    vectors = np.linalg.eigh(scene.query)[1][:, ::-1]
    gains = np.einsum("id,tij,jd->td", vectors, matrix, vectors)
    return Course(time, m.loss(scene, value[:, None] * entries), value, gains, matrix)


def predict(
    scene: Landscape,
    v: Float[np.ndarray, " H"],
    U: Float[np.ndarray, "H D D"],
    time: Float[np.ndarray, " T"],
) -> Course:
    r"""`course` from given initial weights, through their $\alpha$ [`merged-reduction`]."""
    return course(scene, alignment(scene, v, U).alpha, time)


def half_time(scene: Landscape, alpha: float) -> float:
    r"""When half of the drop from $L_0$ to $L(A^\star)$ is done [`merged-half-time`]."""
    m = modes(scene)
    middle = (scene.base + lowest_loss(scene)) / 2

    def above(_, state):
        return m.loss(scene, np.exp(2 * state[0]) * state[1:]) - middle

    above.terminal = True  # type: ignore[attr-defined]
    horizon = 1e6 * (abs(np.log(alpha)) + 1) / escape_rate(scene) if alpha > 0 else 1.0
    path = integrate(m, alpha, horizon, events=above)
    start = m.loss(scene, alpha * m.drive / np.linalg.norm(m.drive))
    if not middle < start <= scene.base or not len(path.t_events[0]):
        raise BadInput(f"alpha: {alpha} must be small enough to start above half of the drop")
    return float(path.t_events[0][0])


def integrate(m: Modes, alpha: float, end: float, **options):
    if not (alpha > 0 and np.isfinite(alpha)):
        raise BadInput(f"alpha: {alpha} must be a finite number greater than 0")

    def field(_, state):
        ratio = state[1:]
        # A trial step may overshoot far beyond any strength; the cap keeps it finite until it is rejected.
        pull = m.drive - m.curvature * np.exp(min(2 * state[0], 100.0)) * ratio
        growth = ratio @ pull
        return np.concatenate([[growth], pull - ratio * growth])

    start = np.concatenate([[np.log(alpha) / 2], m.drive / np.linalg.norm(m.drive)])
    path = solve_ivp(field, (0.0, end), start, method="LSODA", rtol=1e-9, atol=1e-11, **options)
    if path.status < 0:
        raise BadInput(f"alpha: {alpha} gives a flow that cannot be integrated ({path.message})")
    return path


class MatrixCourse(NamedTuple):
    """Loss and value weight along the flow, and when half of the drop to `lowest` is done."""

    loss: Float[np.ndarray, " T"]
    value: Float[np.ndarray, " T"]  # |v|, over all heads
    half_time: float


def matrix_course(scene: Quadratic, alpha: float, lowest: float, time: Float[np.ndarray, " T"]) -> MatrixCourse:
    r"""`course` for a loss that no basis makes diagonal, such as a sample's [`merged-sample`].

    All heads are collinear after the linear phase here too, so $a$ and one matrix $U$ remain, started along $C_1$:
    $\tau\dot a = \langle U, G\rangle$, $\tau\dot U = a\,G$, integrated as $\ln a$ and $U/a$.
    """
    if not (alpha > 0 and np.isfinite(alpha)):
        raise BadInput(f"alpha: {alpha} must be a finite number greater than 0")
    time, root = checked_time(time), np.sqrt(scene.outputs)
    dim, middle = len(scene.cross), (scene.base + lowest) / 2

    def matrix(state):
        return np.exp(min(2 * state[0], 100.0)) * state[1:].reshape(dim, dim) / root

    def field(_, state):
        pull = (root * scene.force(matrix(state))).ravel()
        growth = state[1:] @ pull
        return np.concatenate([[growth], pull - state[1:] * growth])

    def above(_, state):
        return scene.loss(matrix(state)) - middle

    start = np.concatenate([[np.log(alpha) / 2], (scene.cross / np.linalg.norm(scene.cross)).ravel()])
    horizon = max(float(time[-1]), 4 * abs(np.log(alpha)) / (root * np.linalg.norm(scene.cross)))
    path = solve_ivp(field, (0.0, horizon), start, method="LSODA", rtol=1e-9, atol=1e-11, t_eval=time, events=above)
    if path.status < 0:
        raise BadInput(f"alpha: {alpha} gives a flow that cannot be integrated ({path.message})")
    half = float(path.t_events[0][0]) if len(path.t_events[0]) else np.inf
    return MatrixCourse(np.array([scene.loss(matrix(x)) for x in path.y.T]), np.exp(path.y[0]), half)


def checked_time(time: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    time = np.asarray(time, dtype=float)
    if time.ndim != 1 or not len(time) or not np.isfinite(time).all() or time[0] < 0 or (np.diff(time) < 0).any():
        raise BadInput("time: must be a rising sequence of finite numbers from 0 on")
    return time
