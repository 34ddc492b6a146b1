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
from iclflow.theory.landscape import length_factors, lengths
from iclflow.theory.laws.white import is_white
from iclflow.theory.merged import checked_time
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
    "expected_alpha",
    "form",
    "global_minimum",
    "growing_part",
    "half_time",
    "in_context_loss_of_in_weight_solution",
    "in_weight_loss_of_in_context_solution",
    "in_weight_plateau",
    "late_drop_time",
    "resting_point",
    "white_invariant_matrix",
    "white_perpendicular_rate",
]

# Six features are invariant under rotations about w_0. 0 is the direction of w_0, j the others, summed, y the label:
# S_00 x_0, S_0y x_0, S_yy x_0, S_0j x_j, S_yj x_j, S_jj x_0.
INVARIANTS = 6
LAWS = ("train", "in_context", "in_weight")


class Scales(NamedTuple):
    """Averages over context lengths of nu n, nu, nu^2 n^2, nu^2 n and nu^2."""

    j_n: float
    j_0: float
    k_nn: float
    k_n: float
    k_0: float


def scales(task: Task) -> Scales:
    _, rho = lengths(task)
    first, second, third = length_factors(task)
    return Scales(first, float(np.mean(1 / rho)), second, third, float(np.mean(1 / rho**2)))


def cross_tensor(task: Task) -> Float[np.ndarray, "E E D"]:
    r"""$b_{abc}$ for any covariance [`iwl-cross`]. With $\Lambda_0 = \Lambda w_0$ and $\nu = 1/N$:

    $$b_{ybc} = p(\Lambda\Omega\Lambda)_{bc} + (1-p)\Lambda_{0,b}\Lambda_{0,c},\qquad
      b_{yyc} = (1-p)(w_0'\Lambda w_0 + \sigma^2)\Lambda_{0,c},$$
    $$b_{abc} = (1-p)\big[(1 + \tfrac1N)\Lambda_{ab}\Lambda_{0,c}
      + \tfrac1N(\Lambda_{ac}\Lambda_{0,b} + \Lambda_{bc}\Lambda_{0,a})\big] .$$

    At $p = 0$ context labels are noise of variance 1: $b_{ybc} = 0$ and $b_{yyc} = (1 +
    \sigma^2)\Lambda_{0,c}$.
    """
    token, omega = covariances(task)[:2]
    k, p, w = scales(task), task.icl_fraction, shared_vector(task)
    pull, D = token @ w, task.dim
    b = np.zeros((D + 1, D + 1, D))
    query = np.einsum("ab,c->abc", token, pull)
    query = query + np.einsum("ac,b->abc", token, pull) + np.einsum("bc,a->abc", token, pull)
    b[:D, :D] = (1 - p) * (k.j_n * np.einsum("ab,c->abc", token, pull) + k.j_0 * query)
    if p > 0:
        b[D, :D] = b[:D, D] = k.j_n * (p * token @ omega @ token + (1 - p) * np.outer(pull, pull))
        b[D, D] = (1 - p) * k.j_n * (w @ pull + task.label_noise) * pull
    else:
        b[D, D] = k.j_n * (1 + task.label_noise) * pull
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


def white_invariant_matrix(task: Task) -> Float[np.ndarray, "2 3"]:
    r"""The cross tensor of white tokens, where it is invariant under rotations about $w_0$ [`iwl-white`].

    Rows are $(\hat w, y)$, columns $(I_\perp/\sqrt{D-1}, \hat w\hat w', \mathbf u = \hat w)$. For $\Lambda =
    cI$, $\Omega = I$, $0 < p \le 1$:

    $$c^2\begin{pmatrix} (1-p)\sqrt{D(D-1)}/N & (1-p)\sqrt D(1+3/N) & p+(1-p)D \\
      p\sqrt{D-1} & p+(1-p)D & (1-p)D^{3/2}\end{pmatrix}$$
    """
    c, omega = white_values(task)
    k, p, D = scales(task), task.icl_fraction, task.dim
    shared, own = (1 - p) * c**2 * np.sqrt(D), p * omega * c**2 * k.j_n
    both = own + (1 - p) * c**2 * D * k.j_n if p > 0 else 0.0
    power = c * D + task.label_noise if p > 0 else 1 + task.label_noise
    label = (1 - p) * power * c * np.sqrt(D) * k.j_n
    root = np.sqrt(D - 1)
    return np.array([[root * shared * k.j_0, shared * (k.j_n + 3 * k.j_0), both], [root * own, both, label]])


def white_perpendicular_rate(task: Task) -> float:
    r"""The other singular value of that tensor, which occurs $D-1$ times and is never the largest [`iwl-white`].

    $$c^2\sqrt{(1-p)^2D\big[(1+\tfrac1N)^2+\tfrac1{N^2}\big] + p^2}$$
    """
    c, omega = white_values(task)
    k, p = scales(task), task.icl_fraction
    shared, own = (1 - p) * np.sqrt(task.dim), p * omega * k.j_n
    return float(c**2 * np.sqrt(shared**2 * ((k.j_n + k.j_0) ** 2 + k.j_0**2) + own**2))


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
    fractions = {"train": task.icl_fraction, "in_context": 1.0, "in_weight": 0.0}
    c, omega = white_values(task)
    p, D = fractions[law], task.dim
    shared = np.zeros(D)
    shared[0] = np.sqrt(D)
    if p == 0:
        sigma = np.diag([c] * D + [1 + task.label_noise])
        parts = [(1.0, conditional(task, c, sigma, shared))]
    else:
        parts = [(1 - p, conditional(task, c, context_covariance(task, c, shared), shared))]
        for weight, w in task_nodes(D, omega):
            parts.append((p * weight, conditional(task, c, context_covariance(task, c, w), w)))
    C = np.sum([weight * part[0] for weight, part in parts], axis=0)
    b = np.sum([weight * part[1] for weight, part in parts], axis=0)
    power = sum(weight * part[2] for weight, part in parts)
    return Form(C, b, power + task.label_noise * task.query_noise)


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


def conditional(
    task: Task, c: float, sigma: Float[np.ndarray, "E E"], w: Float[np.ndarray, " D"]
) -> tuple[Float[np.ndarray, "6 6"], Float[np.ndarray, " 6"], float]:
    r"""Moments of the six features for context covariance $\Sigma$ and target $w'x_q$.

    $S$ is a Wishart matrix plus $x_q x_q'$: a feature is $n\,\ell'x_q$ from the mean of the one, its
    fluctuation, and a cubic form of the query from the other.
    """
    D, k = task.dim, scales(task)
    T = invariant_tensors(D)
    cubic = T[:, :D, :D]
    cubic = (cubic + cubic.transpose(0, 2, 3, 1) + cubic.transpose(0, 3, 1, 2)) / 3
    linear = np.einsum("kabc,ab->kc", T, sigma)
    hook = 3 * c * np.einsum("kabb->ka", cubic)  # E[x q(x)] = Lambda hook
    around = np.einsum("kabc,bd,ldec,ea->kl", T, sigma, T, sigma, optimize=True)
    cross = linear @ hook.T
    C = c * (k.k_nn * linear @ linear.T + 2 * k.k_n * around + k.k_n * (cross + cross.T) + k.k_0 * hook @ hook.T)
    C += 6 * c**3 * k.k_0 * np.einsum("kabc,labc->kl", cubic, cubic)
    return C, c * (k.j_n * linear + k.j_0 * hook) @ w, float(c * w @ w)


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


def expected_alpha(task: Task, heads: int, scale: float) -> float:
    r"""$E\alpha$ for $v$ and $U$ with standard deviation `scale` and vector blocks zero [`iwl-alpha`]."""
    lead = escape(task)
    reached = lead.value[0, -1] ** 2 + np.sum(lead.key_query[0, :-1] ** 2)
    return float(heads * scale**2 * reached / 4)


class Course(NamedTuple):
    """Losses on the three laws along training, and the five numbers s, v, f, h, r."""

    time: Float[np.ndarray, " T"]
    train: Float[np.ndarray, " T"]
    in_context: Float[np.ndarray, " T"]
    in_weight: Float[np.ndarray, " T"]
    scalars: Float[np.ndarray, "T 5"]


def modes(task: Task) -> Modes:
    r"""The training loss of products of the value row $(s, v)$ and the block $(\sqrt{D-1}f, h, r)$, of rank one."""
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
    time, m = checked_time(time), modes(task)
    path = solve(m, m.start(alpha), max(float(time[-1]), 1e-9))
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

    Args:
        task: The task.
        alpha: Growing part of the initial weights.

    Returns:
        The time t/tau.

    Raises:
        BadInput: If `alpha` is not positive or too large, or the task is not white or has several outputs.
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
