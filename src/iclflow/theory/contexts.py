r"""The landscape of several layers: the loss of their label blocks over contexts, and its lowest point.

With the tokens fixed every layer leaves residual labels, $w \leftarrow (I - A_l'\hat\Lambda)\,w$, $A_l = \sum_h
v_{lh}k_{lh}q_{lh}'$ and $\hat\Lambda$ the covariance of the context. The loss, and the force on layer $l$, are
[`depth-loss`]

$$L = E\operatorname{tr}\Lambda M\Omega M',\quad M = \prod_l (I - A_l'\hat\Lambda),\qquad
  G_l = -\tfrac12\frac{\partial L}{\partial A_l} = E\,\hat\Lambda P_l\,\Omega\,M'\Lambda R_l,$$

$P_l$ the layers before and $R_l$ the layers behind $l$. The expectation runs over the Wishart law of $\hat\Lambda =
R'R/N$. The loss is a polynomial of degree $2L$ in it, so that in one or two dimensions a product of Gauss rules for the
entries of Bartlett's triangle $R$ is exact; else contexts that are spread evenly over the law stand for it. $N \to
\infty$ is the single context $\hat\Lambda = \Lambda$.

For white tokens the lowest loss is that of the best polynomial with $p(0) = 1$ on the eigenvalues of $W = \hat\Lambda/
\lambda$, and with their moments exact [`white-steps`],

$$\frac{L_{\min}}{L(0)} = \frac{1}{(H^{-1})_{00}},\qquad H_{ij} = \frac1D E\operatorname{tr}W^{i+j},\quad i, j \le L,$$

and where one layer holds everything at its best strength the drive on the others is [`relearning`]

$$\lambda^2\Big[\frac{M_3}{(1+x)^2} - 1\Big],\qquad x = \frac{D+1}{N},\quad M_3 = 1 + 3x + \frac{D^2+3D+4}{N^2}.$$
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput

__all__ = ["Contexts", "best_state", "best_steps", "contexts", "lowest_loss", "lowest_loss_and_error", "white_drive"]

EXACT, FEW = 25_000, 2048  # contexts for the lowest loss: the most of a product rule, and of a draw

Matrix = Float[np.ndarray, "D D"]
Layers = Float[np.ndarray, "L D D"]
Vector = Float[np.ndarray, " D"]
Stack = Float[np.ndarray, "G D D"]  # a matrix for every context


@dataclass(frozen=True)
class Contexts:
    r"""The loss over many $\hat\Lambda$, in the eigenbasis of $\Lambda$; `loops` counts passes through the layers."""

    covariance: Float[np.ndarray, "G D D"]
    token: Vector  # eigenvalues of Lambda
    task: Vector  # eigenvalues of Omega
    loops: int = 1
    weight: Float[np.ndarray, " G"] | None = None  # of every context; the same for all if none is given

    @property
    def dim(self) -> int:
        return len(self.token)

    @cached_property
    def means(self) -> Float[np.ndarray, "G 1 D"]:
        r"""The weight of every context in an expectation, times $\Omega$."""
        weight = np.full(len(self.covariance), 1 / len(self.covariance)) if self.weight is None else self.weight
        return weight[:, None, None] * self.task

    def loss(self, A: Layers) -> float:
        r"""$E\operatorname{tr}\Lambda M\Omega M'$ [`depth-loss`]."""
        return self.passed(A)[0]

    def loss_and_forces(self, A: Layers) -> tuple[float, Layers]:
        r"""The loss, and $G_l = -\frac12 \partial L/\partial A_l$ for every layer [`depth-loss`]."""
        loss, steps, before, weighted = self.passed(A)
        rows = lambda stack: stack.transpose(1, 0, 2).reshape(self.dim, -1)  # of all contexts, one beside the other
        behind = np.diag(self.token)  # Lambda R_l, from the last layer on
        forces = np.zeros((self.loops, *A.shape))
        for place, layer in reversed(list(enumerate(np.ndindex(self.loops, len(A))))):
            left, right = self.covariance @ before[place], weighted.transpose(0, 2, 1) @ behind
            forces[layer] = rows(left) @ right.reshape(-1, self.dim)
            behind = behind @ steps[place]
        return loss, forces.sum(axis=0)

    def stiffness(self, A: Layers) -> Float[np.ndarray, "L D D L D D"]:
        r"""$-\partial G_l/\partial A_m$, by the three places at which $A_m$ stands in a force [`depth-loss`].

        With $P_p$ before and $R_p$ behind the pass $p$, and $S_{pq}$ between two, it is the mean over contexts of

        $$\hat\Lambda P_p\Omega P_q'\hat\Lambda \otimes R_q'\Lambda R_p, \qquad
          \hat\Lambda S_{pq}\otimes\hat\Lambda P_q\Omega M'\Lambda R_p \;(q < p), \qquad
          \hat\Lambda P_p\Omega M'\Lambda R_q \otimes \hat\Lambda S_{qp} \;(q > p) .$$
        """
        _, steps, before, weighted = self.passed(A)
        turned, count, dim = weighted.transpose(0, 2, 1), len(steps), self.dim
        behind = [np.broadcast_to(np.eye(dim), self.covariance.shape)]  # R_p, from the last pass on
        for step in steps[:0:-1]:
            behind.insert(0, behind[0] @ step)
        reached = [self.covariance @ P for P in before[:-1]]
        pulled = [turned * self.token @ R for R in behind]
        mean = lambda left, right: left.reshape(len(left), -1).T @ right.reshape(len(right), -1)
        found = np.zeros((len(A), dim, dim, len(A), dim, dim))
        for p, q in np.ndindex(count, count):
            X, Y = (reached[p] * self.means) @ reached[q].transpose(0, 2, 1), behind[q].transpose(0, 2, 1) * self.token
            part = mean(X, Y @ behind[p]).reshape(dim, dim, dim, dim).transpose(0, 3, 1, 2)  # a c d b
            if p != q:
                between = self.covariance
                for step in steps[max(p, q) - 1 : min(p, q) : -1]:
                    between = between @ step
                U, V = (between, reached[q] @ pulled[p]) if q < p else (reached[p] @ pulled[q], between)
                part = part + mean(U, V).reshape(dim, dim, dim, dim).transpose(0, 3, 2, 1)  # a d c b
            found[p % len(A), :, :, q % len(A)] += part
        return found

    def passed(self, A: Layers) -> tuple[float, Float[np.ndarray, "passes G D D"], list[Stack], Stack]:
        r"""The loss, $I - A_l'\hat\Lambda$ of every pass, the products $P_l$ before each, and weighted $M\Omega$."""
        steps = np.eye(self.dim) - A.transpose(0, 2, 1)[:, None] @ self.covariance
        steps = np.tile(steps, (self.loops, 1, 1, 1))
        before = [np.broadcast_to(np.eye(self.dim), self.covariance.shape)]
        for step in steps:
            before.append(step @ before[-1])
        weighted = before[-1] * self.means
        loss = np.sum((weighted * before[-1]).sum(axis=(0, 2)) * self.token)
        return float(loss), steps, before, weighted


def contexts(
    task: Task, draws: int = 4096, *, layers: int = 0, loops: int = 1, infinite: bool = False, seed: int = 0
) -> Contexts:
    r"""Contexts that stand for the law of $\hat\Lambda$: exactly for so many layers where `draws` allow it."""
    cov = covariances(task)
    omega = cov.basis.T @ cov.task @ cov.basis
    if np.abs(omega - np.diag(np.diag(omega))).max() > 1e-10 * np.abs(omega).max():
        raise BadInput("task_spectrum: must share its eigenvectors with the tokens in the theory of depth")
    if task.out_dim > 1 or task.label_noise > 0 or task.icl_fraction < 1:
        raise BadInput("layers: the theory of depth is for one output without noise, every sequence with its own task")
    if cov.eigenvalues.min() <= 0:
        raise BadInput("spectrum: must have positive eigenvalues in the theory of depth")
    roots, passes, weight = np.sqrt(cov.eigenvalues), layers * loops, None
    above = task.dim * (task.dim - 1) // 2
    if infinite:
        scatter = np.eye(task.dim)[None]
    elif passes and (passes + 1) ** task.dim * (2 * passes + 1) ** above <= draws:
        scatter, weight = gauss_wishart(task.dim, task.context, passes)
    else:
        scatter = even_wishart(task.dim, task.context, draws, seed)
    return Contexts(roots[:, None] * scatter * roots, cov.eigenvalues, np.diag(omega).copy(), loops, weight)


def even_wishart(dim: int, context: int, draws: int, seed: int) -> Stack:
    """Sample covariances of standard normal tokens, spread evenly over their law."""
    from scipy.special import gammaincinv, ndtri
    from scipy.stats import qmc

    R = np.zeros((draws, min(dim, context), dim))
    columns = iter(qmc.Sobol(dim * (dim + 1) // 2, seed=seed).random_base2(max(draws - 1, 1).bit_length())[:draws].T)
    for row in range(R.shape[1]):
        R[:, row, row] = np.sqrt(2 * gammaincinv((context - row) / 2, next(columns)))
        for col in range(row + 1, dim):
            R[:, row, col] = ndtri(next(columns))
    return R.transpose(0, 2, 1) @ R / context


def gauss_wishart(dim: int, context: int, passes: int) -> tuple[Stack, Float[np.ndarray, " G"]]:
    r"""Nodes and weights that are exact for all polynomials of degree $2L + 1$ in $\hat\Lambda$."""
    rows = min(dim, context)
    places = [(row, col) for row in range(rows) for col in range(row, dim)]
    rules = []
    for row, col in places:
        count = passes + 1 if row == col else 2 * passes + 1
        k, alpha = np.arange(count), (context - row) / 2 - 1
        centre, side = (2 * k + 1 + alpha, k * (k + alpha)) if row == col else (0.0 * k, 1.0 * k)
        nodes, modes = np.linalg.eigh(np.diag(centre) + np.diag(np.sqrt(side[1:]), -1))  # three-term recursion
        rules.append(list(zip(np.sqrt(2 * nodes) if row == col else nodes, modes[0] ** 2, strict=True)))
    grid = np.array(list(product(*rules)))  # context, entry, (node, weight)
    R = np.zeros((len(grid), rows, dim))
    R[:, *np.transpose(places)] = grid[:, :, 0]
    return R.transpose(0, 2, 1) @ R / context, grid[:, :, 1].prod(axis=1)


@lru_cache(maxsize=4096)
def trace_moment(powers: tuple[int, ...], dim: int, context: int) -> int:
    r"""$E\prod_j\operatorname{tr}S^{a_j}$ of a Wishart matrix $S$ with unit covariance, by parts in its tokens."""
    if not powers:
        return 1
    if powers[0] == 0:
        return dim * trace_moment(powers[1:], dim, context)
    a, others = powers[-1], powers[:-1]
    mean = lambda *more: trace_moment(tuple(sorted((*others, *more))), dim, context)
    total = (context + a - 1) * mean(a - 1) + sum(mean(s + 1, a - 2 - s) for s in range(a - 1))
    for j, b in enumerate(others):
        joined = tuple(sorted((*others[:j], *others[j + 1 :], a + b - 1)))
        total += 2 * b * trace_moment(joined, dim, context)
    return total


def white_steps(dim: int, context: int, layers: int) -> float:
    """The lowest loss of so many layers on white tokens and tasks, relative to that at zero [`white-steps`].

    >>> round(white_steps(5, 20, 3), 7)
    0.0267217
    """
    moments = [Fraction(trace_moment((n,), dim, context), dim * context**n) for n in range(2 * layers + 1)]
    H = np.array([[moments[i + j] for j in range(layers + 1)] for i in range(layers + 1)])
    for last in range(layers, 0, -1):
        H = H[:last, :last] - np.outer(H[:last, last], H[last, :last]) / H[last, last]
    return float(H[0, 0])


def white_drive(dim: int, context: int) -> float:
    r"""Relearning drive over $\lambda^2$ for white tokens where one layer holds all directions [`relearning`].

    >>> round(white_drive(3, 31), 4)
    0.1061
    """
    x = (dim + 1) / context
    third = 1 + 3 * x + (dim**2 + 3 * dim + 4) / context**2
    return third / (1 + x) ** 2 - 1


def best_state(source: Contexts, start: Layers, diagonal: bool = False) -> tuple[float, Layers]:
    """The matrices of lowest loss that a quasi-Newton search finds from a start, among diagonal ones or all."""
    from scipy.optimize import minimize

    free = np.broadcast_to(np.eye(source.dim, dtype=bool) | (not diagonal), start.shape)
    A = start.copy()

    def value_and_slope(x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        A[free] = x
        loss, forces = source.loss_and_forces(A)
        return loss, -2 * forces[free]

    A[free] = minimize(value_and_slope, start[free], jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 2000}).x
    return source.loss(A), A


def best_steps(task: Task, layers: int, looped: bool = False, draws: int = 4096, seed: int = 0) -> tuple[float, Layers]:
    """The best preconditioned gradient descent in context with so many steps.

    The matrices of separate layers are diagonal. That of looped layers is not: with a part that turns, equal steps
    cancel more of the residual than without.
    """
    source = contexts(task, draws, layers=1 if looped else layers, loops=layers if looped else 1, seed=seed)
    turned = 0.1 * looped * (np.triu(np.ones((task.dim, task.dim)), 1) - np.tril(np.ones((task.dim, task.dim)), -1))
    root = 1 / np.sqrt(source.token * (1 + task.dim / task.context))
    inverse = root[:, None] * (np.eye(task.dim) + turned) * root
    spread = np.linspace(0.8, 1.25, layers) if layers > 1 and not looped else np.ones(1)
    loss, A = best_state(source, spread[:, None, None] * inverse, diagonal=not looped)
    return loss, np.repeat(A, layers // len(A), axis=0)


def lowest_loss(task: Task, layers: int, looped: bool = False) -> float:
    """The lowest loss of so many layers on the label blocks: the best preconditioned gradient descent in context.

    Args:
        task: the task.
        layers: number of layers.
        looped: one matrix for all layers.

    Returns:
        The loss.

    Raises:
        BadInput: if theory does not cover the task.
    """
    return lowest_loss_and_error(task, layers, looped)[0]


def lowest_loss_and_error(task: Task, layers: int, looped: bool = False) -> tuple[float, float]:
    """The lowest loss, and how far it may be off: not at all where the expectation is exact.

    Elsewhere it is that on drawn contexts, times what white tokens on the same contexts have to be corrected by. The
    error is twice this correction, and twice the distance between two draws.
    """
    source = contexts(task, EXACT, layers=1 if looped else layers, loops=layers if looped else 1)
    base, white = float(source.token @ source.task), white_steps(task.dim, task.context, layers)
    if not looped and max(np.ptp(source.token) / source.token[0], np.ptp(source.task) / source.task[0]) < 1e-12:
        return base * white, 0.0
    if source.weight is not None:
        return best_steps(task, layers, looped, EXACT)[0], 0.0
    even = task.replace(spectrum="white", task_spectrum="white")
    drawn = np.array([best_steps(even, layers, False, FEW, seed)[0] / white for seed in (0, 1)])
    found = np.array([best_steps(task, layers, looped, FEW, seed)[0] for seed in (0, 1)]) / drawn
    loss = float(found.mean())
    return loss, 2 * float(np.ptp(found) + loss * np.abs(drawn - 1).mean())
