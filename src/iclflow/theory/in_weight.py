r"""In-context versus in-weight learning.

A fraction $p$ of the sequences have their own task vectors; the others share one, $w_0$. A shared task
vector breaks the symmetry $w\to-w$, so all blocks of the weights take part: $\hat y = \nu \sum_{abc}
\Theta_{abc} S_{ab} x_c$ with $S = XX'$ and $\Theta_{abc} = \sum_i V_{i,a}\, KQ_{i,bc}$, the value row $V =
[\mathbf v, v]$ and the key-query block $KQ = [U; \mathbf u']$. Small merged weights grow along the leading
singular pair of the tensor [`iwl-cross`]

$$b_{abc} = E[y_q\, \nu S_{ab}\, x_c],\qquad a \;|\; (b, c).$$

On white tokens the drop itself is a flow of five numbers [`iwl-five`]: with $\hat w = w_0/\sqrt D$,

$$V = (s\hat w, v),\qquad U = f(I - \hat w\hat w') + h\,\hat w\hat w',\qquad \mathbf u = r\hat w .$$

The training law has $p$ = `icl_fraction`; for $0<p<1$ the context labels of in-weight sequences are those of
$w_0$. The two test laws are $p = 1$ (`in_context`) and $p = 0$ (`in_weight`), whose context labels are
$N(0,1)$ and carry no information. There is one output.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances, in_weight_task
from iclflow.errors import BadInput
from iclflow.theory.collinear import Modes
from iclflow.theory.landscape import block_force, length_mean
from iclflow.theory.laws.white import is_white
from iclflow.theory.solve import solve

__all__ = [
    "Course",
    "Escape",
    "Form",
    "RestingPoint",
    "coefficients",
    "course",
    "cross_tensor",
    "escape",
    "form",
    "global_minimum",
    "growing_part",
    "half_time",
    "in_context_loss_of_in_weight_solution",
    "in_weight_loss_of_in_context_solution",
    "in_weight_plateau",
    "late_drop_time",
    "resting_point",
]

# Six features are invariant under rotations about w_0. 0 is the direction of w_0, j the others, summed, y the label:
# S_00 x_0, S_0y x_0, S_yy x_0, S_0j x_j, S_yj x_j, S_jj x_0.
INVARIANTS = 6
LAWS = ("train", "in_context", "in_weight")


def cross_tensor(task: Task) -> Float[np.ndarray, "E E D"]:
    r"""$b_{abc}$ for any covariance [`iwl-cross`]: $p\,b(\text{own tasks}) + (1-p)\,b(w_0)$, `block_force`.

    Own tasks are as likely as their negatives and leave $b_{ybc} = \kappa_1(\Lambda\Omega\Lambda)_{bc}$. At $p = 0$
    context labels are noise of variance 1: $b_{ybc} = 0$ and $b_{yyc} = \kappa_1(1 + \sigma^2)(\Lambda w_0)_c$.
    """
    return mixed_cross(task, *covariances(task)[:2], shared_vector(task), task.icl_fraction)


def mixed_cross(
    task: Task,
    token: Float[np.ndarray, "D D"],
    omega: Float[np.ndarray, "D D"],
    w: Float[np.ndarray, " D"],
    p: float,
) -> Float[np.ndarray, "E E D"]:
    """The same for the shared task w and a fraction p of own tasks."""
    D, k1, b = len(token), length_mean(task, 1, 1), (1 - p) * block_force(task, token, w[None])
    own = k1 * p * token @ omega @ token
    b[D, :D], b[:D, D] = b[D, :D] + own, b[:D, D] + own
    if p == 0:
        b[D, :D] = b[:D, D] = 0.0
        b[D, D] = k1 * (1 + task.label_noise) * token @ w
    return b


class Escape(NamedTuple):
    """Singular values of the cross tensor, falling, and the weights that grow at these rates."""

    rates: Float[np.ndarray, " E"]
    value: Float[np.ndarray, "E E"]  # row k: the value row that grows at rates[k]
    key_query: Float[np.ndarray, "E E D"]  # entry k: its key-query block


def escape(task: Task) -> Escape:
    """How small merged weights leave zero [`iwl-escape`]: the escape time is `ln(1/w) / rates[0]`."""
    b = cross_tensor(task)
    left, rates, right = np.linalg.svd(b.reshape(len(b), -1), full_matrices=False)
    return Escape(rates, left.T, right.reshape(b.shape))


class Form(NamedTuple):
    r"""A law's loss as a form of the six coefficients: $L = P - 2\theta'b + \theta'C\theta$ [`iwl-form`]."""

    C: Float[np.ndarray, "6 6"]
    b: Float[np.ndarray, " 6"]
    power: float

    def loss(self, theta: Float[np.ndarray, "*T 6"]) -> Float[np.ndarray, "*T"] | float:
        r"""$L(\theta)$."""
        return self.power - 2 * theta @ self.b + np.einsum("...i,ij,...j->...", theta, self.C, theta)


def form(task: Task, law: str = "train") -> Form:
    """The quadratic form of the training law or of a test law, exact at finite `N` [`iwl-form`].

    Given its task vector, a context is Gaussian, so Wick's theorem gives its moments. The result is a polynomial
    of degree 4 in the task vector, which enters through its component along `w_0` and the length of the rest:
    three Gauss-Hermite nodes times two Gauss-Laguerre nodes integrate it exactly.
    """
    if law not in LAWS:
        raise BadInput(f"law: {law!r} must be one of {', '.join(LAWS)}")
    c, omega = white_values(task)
    p, D = {"train": task.icl_fraction, "in_context": 1.0, "in_weight": 0.0}[law], task.dim
    shared = np.sqrt(D) * np.eye(D)[0]
    parts = [(1 - p, context_covariance(task, c, shared))]
    if p == 0:
        parts = [(1.0, np.diag([c] * D + [1 + task.label_noise]))]
    if p > 0:
        parts += [(p * weight, context_covariance(task, c, w)) for weight, w in task_nodes(D, omega)]
    C = np.sum([weight * conditional(task, c, sigma) for weight, sigma in parts], axis=0)
    cross = mixed_cross(task, c * np.eye(D), omega * np.eye(D), shared, p)
    power = c * D * (p * omega + 1 - p) + task.label_noise * task.query_noise
    return Form(C, np.einsum("kabc,abc->k", invariant_tensors(D), cross), power)


def task_nodes(D: int, omega: float) -> list[tuple[float, Float[np.ndarray, " D"]]]:
    """Nodes and weights exact for invariant polynomials of degree 5 over N(0, omega I)."""
    along, along_weights = scipy.special.roots_hermitenorm(3)
    rest, rest_weights = scipy.special.roots_genlaguerre(2, (D - 3) / 2)
    nodes = []
    for x, a in zip(along, along_weights / along_weights.sum(), strict=True):
        for y, b in zip(2 * rest, rest_weights / rest_weights.sum(), strict=True):
            w = np.zeros(D)
            w[:2] = np.sqrt(omega) * np.array([x, np.sqrt(y)])
            nodes.append((float(a * b), w))
    return nodes


def context_covariance(task: Task, c: float, w: Float[np.ndarray, " D"]) -> Float[np.ndarray, "E E"]:
    rows = np.concatenate([np.eye(len(w)), w[None]])
    sigma = c * rows @ rows.T
    sigma[-1, -1] += task.label_noise
    return sigma


def invariant_tensors(D: int) -> Float[np.ndarray, "6 E E D"]:
    """The six tensors, symmetric in their first two indices."""
    T = np.zeros((INVARIANTS, D + 1, D + 1, D))
    T[0, 0, 0, 0] = T[1, 0, D, 0] = T[2, D, D, 0] = 1
    for j in range(1, D):
        T[3, 0, j, j] = T[4, D, j, j] = T[5, j, j, 0] = 1
    return (T + T.transpose(0, 2, 1, 3)) / 2


def conditional(task: Task, c: float, sigma: Float[np.ndarray, "E E"]) -> Float[np.ndarray, "6 6"]:
    r"""Second moments of the six features for the context covariance $\Sigma$.

    $S$ is a Wishart matrix plus $x_q x_q'$: a feature is $n\,\ell'x_q$ from the mean of the one, its
    fluctuation, and a cubic form of the query from the other.
    """
    D, (k_nn, k_n, k_0) = task.dim, (length_mean(task, power, 2) for power in (2, 1, 0))
    T = invariant_tensors(D)
    cubic = T[:, :D, :D]
    cubic = (cubic + cubic.transpose(0, 2, 3, 1) + cubic.transpose(0, 3, 1, 2)) / 3
    linear = np.einsum("kabc,ab->kc", T, sigma)
    hook = 3 * c * np.einsum("kabb->ka", cubic)  # E[x q(x)] = Lambda hook
    around = np.einsum("kabc,bd,ldec,ea->kl", T, sigma, T, sigma, optimize=True)
    cross = linear @ hook.T
    C = c * (k_nn * linear @ linear.T + 2 * k_n * around + k_n * (cross + cross.T) + k_0 * hook @ hook.T)
    return C + 6 * c**3 * k_0 * np.einsum("kabc,labc->kl", cubic, cubic)


def coefficients(scalars: Float[np.ndarray, "*T 5"]) -> Float[np.ndarray, "*T 6"]:
    r"""The coefficients of $\Theta$ for $(s, v, f, h, r)$: $sh,\ vh+sr,\ vr,\ sf,\ vf,\ 0$ [`iwl-five`]."""
    s, v, f, h, r = np.moveaxis(np.asarray(scalars, dtype=float), -1, 0)
    return np.stack([s * h, v * h + s * r, v * r, s * f, v * f, 0 * s], axis=-1)


def growing_part(task: Task, value: Float[np.ndarray, "H E"], key_query: Float[np.ndarray, "H E D"]) -> float:
    r"""$\alpha = \sum_i \tfrac14 (\ell\cdot V_i + \langle\rho, KQ_i\rangle)^2$ [`iwl-alpha`].

    $(\ell, \rho)$ is the leading singular pair of the cross tensor.
    """
    lead = escape(task)
    along = value @ lead.value[0] + np.einsum("hbc,bc->h", key_query, lead.key_query[0])
    return float(along @ along) / 4


class Course(NamedTuple):
    """Losses on the three laws along training, and the five numbers s, v, f, h, r."""

    time: Float[np.ndarray, " T"]
    train: Float[np.ndarray, " T"]
    in_context: Float[np.ndarray, " T"]
    in_weight: Float[np.ndarray, " T"]
    scalars: Float[np.ndarray, "T 5"]


def modes(task: Task) -> Modes:
    r"""The training loss of products of the value row $(s, v)$ and the block $(\sqrt{D-1}f, h, r)$.

    The drive is the part of the cross tensor that is invariant under rotations about $w_0$ [`iwl-white`].
    """
    training = form(task)
    pairs = five_numbers(np.repeat(np.eye(2), 3, axis=0), np.tile(np.eye(3), (2, 1)), task.dim)
    reads = coefficients(pairs)  # one row for every entry of the product
    return Modes(training.power, 1, (reads @ training.b).reshape(2, 3), reads @ training.C @ reads.T)


def five_numbers(n: Float[np.ndarray, "*T 2"], k: Float[np.ndarray, "*T 3"], D: int) -> Float[np.ndarray, "*T 5"]:
    """(s, v, f, h, r) from the value row and the key-query block in orthonormal coordinates."""
    return np.concatenate([n, k[..., :1] / np.sqrt(D - 1), k[..., 1:]], axis=-1)


def unpacked(states: Float[np.ndarray, "*T 6"], D: int) -> Float[np.ndarray, "*T 5"]:
    """(s, v, f, h, r) of states of `modes`."""
    return np.exp(states[..., :1]) * five_numbers(states[..., 1:3], states[..., 3:], D)


def course(task: Task, alpha: float, time: Float[np.ndarray, " T"]) -> Course:
    """Training and test losses over time from a small start with growing part `alpha` [`iwl-five`]."""
    m = modes(task)
    path = solve(m, m.start(alpha), max(float(time.max()), 1e-9))
    scalars = unpacked(path.at(time), task.dim)
    train, own, shared = (np.asarray(form(task, law).loss(coefficients(scalars))) for law in LAWS)
    return Course(time, train, own, shared, scalars)


def half_time(task: Task, alpha: float) -> float:
    """The time at which half of the first drop, down to the resting point, is done [`iwl-five`]."""
    return modes(task).half_time(alpha, resting_point(task).train)


class RestingPoint(NamedTuple):
    """Where the five-number flow ends: one effective head, a saddle when `icl_fraction` < 1."""

    scalars: Float[np.ndarray, " 5"]
    train: float
    in_context: float
    in_weight: float
    late_rate: float  # largest singular value of the remaining gradient; 0 at the minimum
    pre_rate: float  # growth of the same weights before the first drop


def resting_point(task: Task) -> RestingPoint:
    """The rank-one critical point that training reaches first, and how it is left [`iwl-rest`].

    It is left by the weights that grow fastest there, which are among those of `modes` or orthogonal to w_0.
    """
    m, training = modes(task), form(task)
    state = solve(m, m.start(1e-8), 1e5 / escape(task).rates[0]).states[-1]
    scalars = unpacked(state, task.dim)
    theta = coefficients(scalars)
    train, own, shared = (float(form(task, law).loss(theta)) for law in LAWS)
    left, rates, right = np.linalg.svd(m.drive - m.curve(m.split(state)[2]))
    late, early = float(rates[0]), float(abs(left[:, 0] @ m.drive @ right[0]))
    across = [float(np.linalg.norm(g[3:])) / (task.dim - 1) for g in (training.b - training.C @ theta, training.b)]
    late_rate, pre_rate = (late, early) if late > across[0] else across
    return RestingPoint(scalars, train, own, shared, late_rate, pre_rate)


def late_drop_time(task: Task, alpha: float) -> float:
    r"""$t_1 + [\ln(1/w) - \sigma_{pre}t_1]/\sigma_{res}$: the approximate time of the next drop [`iwl-late`].

    $w = \sqrt\alpha$, $t_1$ the first drop, and $\sigma_{pre}, \sigma_{res}$ the growth rates before and
    after it of the weights that grow next. Accurate to 10 per cent; infinite if the resting point is the minimum.
    """
    rest, first = resting_point(task), half_time(task, alpha)
    if rest.late_rate < 1e-9 * escape(task).rates[0]:
        return float("inf")
    return first + max(np.log(1 / alpha) / 2 - rest.pre_rate * first, 0.0) / rest.late_rate


def global_minimum(task: Task) -> float:
    r"""The lowest training loss over all $\Theta$, with enough heads, $P - b'C^{-1}b$ [`iwl-levels`]."""
    training = form(task)
    return float(training.power - training.b @ np.linalg.pinv(training.C, hermitian=True) @ training.b)


def in_weight_plateau(context: int) -> float:
    r"""$2/(N+2)$: loss at $p = 0$ after its first drop, relative to the start [`iwl-levels`].

    The map $w_0'x_q$ is read out through the mean squared label, whose fluctuations remain.
    """
    return 2 / (context + 2)


def in_context_loss_of_in_weight_solution(dim: int, context: int) -> float:
    r"""$1 + \frac{D+2}{D}/(1 + \frac2N)$: in-context test loss there, trace 1 [`iwl-levels`]."""
    return 1 + (dim + 2) / dim / (1 + 2 / context)


def in_weight_loss_of_in_context_solution(dim: int, context: int) -> float:
    r"""$1 + \sigma_\infty^2c^2D/N$ with $c = 1/D$ [`iwl-levels`].

    $\sigma_\infty = D/(1 + (1+D)/N)$, the gain at the minimum for white tokens of trace 1.
    """
    return 1 + dim / (1 + (1 + dim) / context) ** 2 / context


def shared_vector(task: Task) -> Float[np.ndarray, " D"]:
    if task.out_dim > 1:
        raise BadInput(f"out_dim: {task.out_dim} must be 1 for the theory of in-weight learning")
    return in_weight_task(task)[0]


def white_values(task: Task) -> tuple[float, float]:
    """The variances of tokens and of task vectors; refuses a task that is not symmetric about w_0."""
    shared_vector(task)
    if task.dim < 2:
        raise BadInput(f"dim: {task.dim} must be at least 2 for the five-number reduction")
    token, omega = covariances(task)[:2]
    for field, matrix in (("spectrum", token), ("task_spectrum", omega)):
        if not is_white(matrix):
            raise BadInput(f"{field}: {getattr(task, field)!r} must be white for the five-number reduction")
    return float(token[0, 0]), float(omega[0, 0])
