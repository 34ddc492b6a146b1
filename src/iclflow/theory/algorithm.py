r"""What the network computes on each plateau: principal component regression with shrunk components.

After $m$ drops the reduced model predicts $\hat y = \beta' A_m x_q$ with [`plateau-algorithm`] (Eq. 22)

$$A_m = \sum_{d\le m} \alpha_d\, e_d e_d',\qquad
  \alpha_d = \frac{1}{\lambda_d (1+\epsilon_d)},\qquad
  \epsilon_d = \frac{1 + \operatorname{tr}\Lambda/\lambda_d}{N},$$

regression on the first $m$ principal components of the tokens, each shrunk because $N$ examples estimate it
with noise. Components are those of the population covariance and not of the tokens in the context. For $N \to
\infty$ it becomes $w' P_m x_q$, and at $m = D$ least squares.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions, Landscape, directions, landscape

__all__ = [
    "Descent",
    "Identified",
    "algorithms",
    "gain_matrix",
    "identify",
    "nearest",
    "one_step_descent",
    "pcr_distance",
    "pcr_matrix",
    "plateau_matrix",
    "prediction_distance",
    "shrinkage",
]


def plateau_matrix(task: Task, learned: int) -> Float[np.ndarray, "D D"]:
    r"""$A_m$ at the fixed point where the first `learned` directions are learned [`plateau-algorithm`]."""
    d = directions(task)
    first = d.order[: checked_count(task, learned)]
    strengths = np.zeros(task.dim)
    strengths[first] = d.strength[first]
    return d.matrix(strengths)


def pcr_matrix(task: Task, components: int) -> Float[np.ndarray, "D D"]:
    r"""$P_m \Lambda^{-1} = \sum_{d \le m} e_d e_d'/\lambda_d$: no shrinkage [`pcr-ideal`]."""
    cov = covariances(task)
    first = slice(checked_count(task, components))
    return (cov.basis[:, first] / cov.eigenvalues[first]) @ cov.basis[:, first].T


def shrinkage(task: Task) -> Float[np.ndarray, " D"]:
    r"""$\epsilon_d$: learning direction $d$ removes $1/(1+\epsilon_d)$ of its loss [`shrinkage`].

    $$\epsilon_d = \frac{\lambda_d\omega_d}{T_d^2} - 1 \;\overset{\Omega=I}{=}\;
      \frac{1+\operatorname{tr}\Lambda/\lambda_d}{N}$$
    """
    d, omega = directions(task), covariances(task).task
    if not d.commuting:
        raise BadInput("task_spectrum: must share its eigenvectors with the token covariance for principal components")
    return d.query * np.einsum("id,ij,jd->d", d.left, omega, d.left) / d.saved - 1


def pcr_distance(task: Task, learned: int) -> float:
    r"""How far the plateau is from ideal regression, of order $1/N$ [`pcr-distance`].

    $$E(\hat y - w'P_m x_q)^2 = \sum_{d\le m} \lambda_d\omega_d\, \frac{\epsilon_d}{1+\epsilon_d}$$

    The first $m$ directions are those learned first, whether or not they have the largest token variance.
    """
    d, epsilon = directions(task), shrinkage(task)
    return float((d.saved * epsilon)[d.order[: checked_count(task, learned)]].sum())


class Descent(NamedTuple):
    """One step of gradient descent on the context's squared error, from zero."""

    step: float
    loss: float


def one_step_descent(task: Task) -> Descent:
    r"""The best single step, $A = \eta I$ [`one-step-descent`].

    $$\eta = \operatorname{tr}C_1/\operatorname{tr}(B\Lambda),\qquad
      L = L_0 - (\operatorname{tr}C_1)^2/\operatorname{tr}(B\Lambda)$$

    Its loss can lie between two plateaus, so a loss alone does not say how many components are learned.
    """
    L = landscape(task)
    drive, curvature = np.trace(L.cross), np.trace(L.context @ L.query)
    return Descent(float(drive / curvature), float(L.base - drive**2 / curvature))


def prediction_distance(L: Landscape, A: Float[np.ndarray, "D D"], other: Float[np.ndarray, "D D"]) -> float:
    r"""$E(\beta'\Delta x_q)^2 = \operatorname{tr}(\Delta' B \Delta \Lambda)$ [`prediction-distance`]."""
    gap = A - other
    return float(np.sum(gap * (L.context @ gap @ L.query)))


def gain_matrix(d: Directions, A: Float[np.ndarray, "*T D D"]) -> Float[np.ndarray, "*T D D"]:
    r"""$A$ in the directions $\ell_d r_{d'}'$, in units of $\sqrt{\alpha_d\alpha_{d'}}$: diagonal 1 if learned."""
    strength = d.full_gain / np.sqrt(d.outputs)
    coordinates = np.linalg.solve(d.left, A) @ np.linalg.inv(d.right.T)
    return coordinates / np.sqrt(np.outer(strength, strength))


@dataclass(frozen=True)
class Identified:
    """Which directions a matrix has learned."""

    count: int
    learned: Bool[np.ndarray, " D"]  # in falling order of the token eigenvalues
    off_diagonal: float  # largest mixing of two directions, in units of the strengths
    clean: bool  # no mixing above the tolerance


def identify(task: Task, A: Float[np.ndarray, "D D"], tolerance: float = 0.1) -> Identified:
    r"""The directions with $e_d'Ae_d > \alpha_d/2$, and what is left off the diagonal [`identify`]."""
    part = gain_matrix(directions(task), A)
    learned = np.diag(part) > 0.5
    mixing = float(np.abs(part - np.diag(np.diag(part))).max())
    return Identified(int(learned.sum()), learned, mixing, mixing <= tolerance)


def algorithms(task: Task) -> dict[str, Float[np.ndarray, "D D"]]:
    """All algorithms that one matrix can express: plateaus, ideal regressions, one descent step."""
    counts = range(1, task.dim + 1)
    return {
        "zero": np.zeros((task.dim, task.dim)),
        **{f"plateau {m}": plateau_matrix(task, m) for m in counts},
        **{f"PCR {m}": pcr_matrix(task, m) for m in counts},
        "one descent step": one_step_descent(task).step * np.eye(task.dim),
    }


def nearest(task: Task, A: Float[np.ndarray, "D D"]) -> tuple[str, float]:
    """The algorithm whose predictions are nearest in mean square, and that distance [`identify`]."""
    L = landscape(task)
    distances = {name: prediction_distance(L, A, other) for name, other in algorithms(task).items()}
    name = min(distances, key=distances.__getitem__)
    return name, distances[name]


def checked_count(task: Task, count: int) -> int:
    if not 0 <= count <= task.dim:
        raise BadInput(f"learned: {count} must lie between 0 and dim = {task.dim}")
    return count
