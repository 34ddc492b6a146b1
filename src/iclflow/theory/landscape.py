r"""The population loss of the reduced model and its directions: what all other theory builds on.

With $\hat y = \beta' A x_q$ and Gaussian tokens the loss is a quadratic form [`population-loss`]

$$L(A) = L_0 - 2\operatorname{tr}(A'C_1) + \operatorname{tr}(A' B A \Lambda),\qquad
  G = -\tfrac12 \partial L/\partial A = C_1 - B A \Lambda,$$
$$C_1 = \kappa_1 \Lambda\Omega\Lambda,\qquad
  B = (\kappa_2+\kappa_3)\Lambda\Omega\Lambda + \kappa_3(\operatorname{tr}\Lambda\Omega + \sigma^2)\Lambda .$$

The $\kappa$ say how context length and normaliser enter: $(1, 1, 1/N)$ for the paper's $1/N$. Every variant of the
task changes only two numbers per direction, the drive $g_d$ and the curvature $m_d$; the strength that is learned is
$\alpha_d = g_d/m_d$ and the loss it saves $T_d^2 = g_d^2/m_d$.

Weights are in the paper's units: for `normalize="none"` multiply them by $N^{1/p}$ first (`iclflow.units`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int

from iclflow.config import Task
from iclflow.data.spectrum import covariances, root
from iclflow.errors import BadInput

__all__ = [
    "Directions",
    "Landscape",
    "Remaining",
    "block_force",
    "component_count",
    "directions",
    "landscape",
    "length_factors",
    "length_mean",
    "minimum",
    "plateau_losses",
    "spans",
]


@dataclass(frozen=True)
class Landscape:
    """The quadratic form of one output; `outputs` copies of it are trained at once and averaged.

    Several may stand side by side, along a leading axis of runs.
    """

    cross: Float[np.ndarray, "*runs D D"]  # C_1
    context: Float[np.ndarray, "*runs D D"]  # B
    query: Float[np.ndarray, "*runs D D"]  # Lambda
    base: Any  # of each run: loss of the zero predictor
    outputs: int = 1

    def loss(self, A: Float[np.ndarray, "D D"]) -> float:
        r"""$L(A)$, a mean over outputs that all carry the same $A$."""
        return self.base - 2 * np.sum(A * self.cross) + np.sum(A * self.curve(A))

    def force(self, A: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"]:
        r"""$G = C_1 - B A \Lambda$."""
        return self.cross - self.curve(A)

    @no_type_check
    def curve(self, A: Float[np.ndarray, "*stack D D"]) -> Float[np.ndarray, "*stack D D"]:
        r"""$BA\Lambda$, the part of the gradient that is linear in $A$."""
        return self.context @ A @ self.query

    def beyond(self, A: Float[np.ndarray, "D D"]) -> "Remaining":
        r"""What is left to learn where heads rest that hold `A` [`remaining`].

        At rest $G(A)$ acts on neither the keys nor the queries of these heads, and they answer every push along them at
        once. So free heads feel, along what is orthogonal to both ($l$ and $r$), a loss of the same kind, with
        $C' = l'G(A)r$, $B' = (l'B^{-1}l)^{-1}$ and $\Lambda' = (r'\Lambda^{-1}r)^{-1}$.
        """
        _, _, left, right = spans(A)
        inner = lambda matrix, basis: np.linalg.inv(basis.T @ np.linalg.solve(matrix, basis))
        cross = left.T @ self.force(A) @ right
        context, query = inner(self.context, left), inner(self.query, right)
        return Remaining(left, right, Landscape(cross, context, query, float(self.loss(A)), self.outputs))


class Remaining(NamedTuple):
    """A landscape that others have left, and the directions of keys (`left`) and queries (`right`) on it."""

    left: Float[np.ndarray, "D rest"]
    right: Float[np.ndarray, "D rest"]
    landscape: Any  # of the same class


def spans(A: Float[np.ndarray, "D D"]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Orthonormal vectors along which a matrix acts, on either side, and such along which it does not."""
    u, s, wt = np.linalg.svd(A)
    rank = int(np.sum(s > 1e-10 * s[0]))
    return u[:, :rank], wt[:rank].T, u[:, rank:], wt[rank:].T


@dataclass(frozen=True)
class Directions:
    r"""Rank-one directions $\ell_d r_d'$ of $A$ in which the landscape decouples [`directions`].

    `commuting` says that $\Lambda$ and $\Omega$ share eigenvectors: then $\ell_d = r_d = e_d$, in falling order of
    $\lambda_d$, and the statements about dynamics are exact. Otherwise they are the singular pairs of
    $T = B^{-1/2} C_1 \Lambda^{-1/2}$, in falling order of $T_d$, and only the statements about fixed points are.
    """

    left: Float[np.ndarray, "D D"]  # columns l_d: where keys grow
    right: Float[np.ndarray, "D D"]  # columns r_d: where queries grow
    drive: Float[np.ndarray, " D"]  # g_d, with the factor sqrt(O) of O outputs
    context: Float[np.ndarray, " D"]  # B_d = l_d' B l_d
    query: Float[np.ndarray, " D"]  # lambda_d = r_d' Lambda r_d
    base: float
    outputs: int
    commuting: bool

    @property
    def curvature(self) -> Float[np.ndarray, " D"]:
        r"""$m_d = B_d \lambda_d$."""
        return self.context * self.query

    @property
    def strength(self) -> Float[np.ndarray, " D"]:
        r"""$\alpha_d = g_d / m_d$: the value at which direction $d$ stops learning."""
        return self.drive / self.curvature

    @property
    def full_gain(self) -> Float[np.ndarray, " D"]:
        """The strength, by which parts are divided to make gains; infinite for directions without drive: no gain."""
        return np.where(self.drive > 0, self.strength, np.inf)

    @property
    def saved(self) -> Float[np.ndarray, " D"]:
        r"""$T_d^2 = g_d^2 / m_d$, as a mean over outputs: the loss that direction $d$ takes away."""
        return self.drive**2 / self.curvature / self.outputs

    @property
    def order(self) -> Int[np.ndarray, " D"]:
        """The order in which small initial weights learn the directions: by falling drive."""
        return np.argsort(-self.drive, kind="stable")

    def matrix(self, strengths: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"]:
        r"""$A = \sum_d s_d\, \ell_d r_d' / \sqrt O$, the effective matrix of one output."""
        return (self.left * (strengths / np.sqrt(self.outputs))) @ self.right.T

    def loss(self, learned: Bool[np.ndarray, " D"]) -> float:
        r"""$L(S) = L_0 - \sum_{d\in S} T_d^2$ [`plateau`]."""
        return float(self.base - self.saved[np.asarray(learned, dtype=bool)].sum())


def length_factors(task: Task) -> tuple[float, float, float]:
    r"""$(\kappa_1, \kappa_2, \kappa_3) = E[n/\rho],\, E[n^2/\rho^2],\, E[n/\rho^2]$ [`length-factors`].

    $n$ is the context length, $N$ or uniform on $1..N$ with the prefix loss, and $\rho$ the normaliser in the paper's
    units: $n$ (`context`), $n+1$ (`tokens`), $N$ (`none`, after weights are rescaled).
    """
    return length_mean(task, 1, 1), length_mean(task, 2, 2), length_mean(task, 1, 2)


def length_mean(task: Task, power: int, divided: int) -> float:
    r"""$E[n^a/\rho^b]$ over context lengths $n$."""
    n, rho = (x.astype(float) for x in lengths(task))  # the square of a long context is no integer of 64 bits
    return float(np.mean(n**power / rho**divided))


def lengths(task: Task) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    r"""Every context length $n$ that counts in the loss, and its normaliser $\rho$."""
    n = np.arange(1, task.context + 1) if task.prefix_loss else np.array([task.context])
    return n, {"tokens": n + 1, "none": np.full(n.shape, task.context)}.get(task.normalize or "context", n)


def block_force(task: Task, token: Float[np.ndarray, "D D"], w: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "E E D"]:
    r"""$b_{abc} = E[y_q\,S_{ab}\,x_c]/\rho$, a mean over given tasks: the force on all blocks at zero [`odd-drive`].

    $$b_{abc} = (\kappa_1+\kappa_0)\Lambda_{ab}(\Lambda\bar w)_c
        + \kappa_0\big[\Lambda_{ac}(\Lambda\bar w)_b + \Lambda_{bc}(\Lambda\bar w)_a\big],$$
    $$b_{ybc} = \kappa_1(\Lambda S_K\Lambda)_{bc},\qquad
      b_{yyc} = \kappa_1\,\tfrac1K\textstyle\sum_k(w_k'\Lambda w_k + \sigma^2)(\Lambda w_k)_c,
      \qquad \kappa_0 = E[1/\rho].$$
    """
    D, k1, k0 = len(token), length_mean(task, 1, 1), length_mean(task, 0, 1)
    pulled = w @ token
    mean, b = pulled.mean(axis=0), np.zeros((D + 1, D + 1, D))
    crossed = np.einsum("ac,b->abc", token, mean)
    b[:D, :D] = (k1 + k0) * np.einsum("ab,c->abc", token, mean) + k0 * (crossed + crossed.transpose(1, 0, 2))
    b[D, :D] = b[:D, D] = k1 * pulled.T @ pulled / len(w)
    b[D, D] = k1 * (np.sum(pulled * w, axis=1) + task.label_noise) @ pulled / len(w)
    return b


def landscape(task: Task) -> Landscape:
    r"""The population loss of the label blocks [`population-loss`].

    Each sequence has its own task vector, or one of K: then $\Omega$ is their second moment [`task-set-loss`].

    Args:
        task: The task.

    Returns:
        The quadratic form of the loss.

    Raises:
        BadInput: If `icl_fraction` < 1, or K fixed tasks have several outputs.
    """
    if task.icl_fraction < 1:
        raise BadInput(
            f"icl_fraction: {task.icl_fraction} must be 1 here; `theory.in_weight` treats shared task vectors"
        )
    if task.tasks is not None and task.out_dim > 1:
        raise BadInput(f"out_dim: {task.out_dim} must be 1 for the theory of K fixed tasks, which couple the outputs")
    token, omega = covariances(task)[:2]
    k1, k2, k3 = length_factors(task)
    drive, power = token @ omega @ token, float(np.trace(token @ omega))
    return Landscape(
        cross=k1 * drive,
        context=(k2 + k3) * drive + k3 * (power + task.label_noise) * token,
        query=token,
        base=power + task.label_noise * task.query_noise,
        outputs=task.out_dim,
    )


def directions(task: Task) -> Directions:
    """The decoupled directions of a task; its token and task covariance must have full rank.

    K fixed tasks span at most K directions; the drive of the others is zero.

    Args:
        task: The task.

    Returns:
        The directions with their drive and curvature.

    Raises:
        BadInput: If a covariance does not have full rank, or `icl_fraction` < 1.
    """
    L, cov = landscape(task), covariances(task)
    for name, matrix in (("spectrum", cov.token), ("task_spectrum", covariances(task.new_tasks).task)):
        values = np.linalg.eigvalsh(matrix)
        if values[0] <= 1e-12 * values[-1]:
            raise BadInput(f"{name}: must have full rank for theory; smallest eigenvalue is {values[0]:.3g}")
    rotated = cov.basis.T @ cov.task @ cov.basis
    commuting = bool(np.abs(rotated - np.diag(np.diag(rotated))).max() <= 1e-10 * np.abs(rotated).max())
    left, right = (cov.basis, cov.basis) if commuting else singular_directions(L)
    along = lambda matrix, a, b: np.einsum("id,ij,jd->d", a, matrix, b)
    spanned = np.arange(task.dim) < component_count(task)
    return Directions(
        left=left,
        right=right,
        drive=np.where(spanned, np.sqrt(task.out_dim) * along(L.cross, left, right), 0.0),
        context=along(L.context, left, left),
        query=along(L.query, right, right),
        base=L.base,
        outputs=task.out_dim,
        commuting=commuting,
    )


def component_count(task: Task) -> int:
    """The number of directions that the tasks drive: D, or K if there are fewer fixed tasks."""
    return task.dim if task.tasks is None else min(task.tasks, task.dim)


def singular_directions(L: Landscape) -> tuple[Float[np.ndarray, "D D"], Float[np.ndarray, "D D"]]:
    r"""Unit vectors along $B^{-1/2}u_d$ and $\Lambda^{-1/2}w_d$, $(u_d, w_d)$ the singular pairs of $T$."""
    inverse_context, inverse_query = np.linalg.inv(root(L.context)), np.linalg.inv(root(L.query))
    u, _, wt = np.linalg.svd(inverse_context @ L.cross @ inverse_query)
    left, right = inverse_context @ u, inverse_query @ wt.T
    return left / np.linalg.norm(left, axis=0), right / np.linalg.norm(right, axis=0)


def plateau_losses(task: Task) -> Float[np.ndarray, " levels"]:
    r"""The losses $L(M_0), \dots, L(M_D)$ of the fixed points visited in order of learning [`plateau`].

    $$L(M_m) = L_0 - \sum_{d \le m} T_d^2
      \;\overset{\Omega = I}{=}\;
      \operatorname{tr}\Lambda - \sum_{d\le m} \frac{\lambda_d}{1 + (1 + \operatorname{tr}\Lambda/\lambda_d)/N}$$

    Args:
        task: The task.

    With K fixed tasks they are the lowest losses of rank $m$, up to $\min(K, D)$ (`theory.task_sets`).

    Returns:
        D + 1 losses, falling; min(K, D) + 1 with K fixed tasks.

    Raises:
        BadInput: If a covariance does not have full rank, or `icl_fraction` < 1.
    """
    d = directions(task)
    order = d.order if task.tasks is None else np.argsort(-d.saved, kind="stable")
    return d.base - np.concatenate([[0.0], np.cumsum(d.saved[order[: component_count(task)]])])


def minimum(task: Task) -> float:
    r"""The lowest population loss, $L_0 - \sum_d T_d^2$ [`minimum`].

    Args:
        task: The task.

    Returns:
        The loss.

    Raises:
        BadInput: If a covariance does not have full rank, or `icl_fraction` < 1.
    """
    return float(plateau_losses(task)[-1])
