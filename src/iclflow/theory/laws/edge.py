r"""The edge of stability: the largest step that is stable on each plateau.

Descent by steps $h$ of $t/\tau$ stays at a fixed point if $h\kappa < 2$, where the sharpness $\kappa$ is the largest
eigenvalue of $\tfrac12\partial^2L$ there [`edge`]. At $M_m$ of separate attention of rank one it is the largest of
$3m_iv_i^4$, $B_j\lambda_i(v_i^4+v_j^4)$ and the eigenvalues of the exchange blocks (`theory.separate`,
[`hessian`]); at the minimum of merged attention that of $J'(\Lambda\otimes B)J$ with $dA = J\,dW$. Heavy-ball momentum
allows $h\kappa < 2(1+\beta)$. Directions are learned in falling order of their drive, and the sharpness can rise with
a late drop: a step that was stable for three plateaus may fail on the fourth.

A single mode is the map $x \to x + \mu(x^2 - x^5)$, $\mu = hgc$, $x = v/c$ [`mode-map`]: it comes to rest for $\mu <
2/3$, doubles its period above, and is bounded up to about $1.43$.
"""

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput
from iclflow.theory.landscape import Directions, Landscape
from iclflow.theory.merged import minimiser
from iclflow.theory.separate import hessian_spectrum

__all__ = ["MODE_EDGE", "first_unstable", "largest_steps", "merged_sharpness", "mode_orbit", "sharpness"]

MODE_EDGE = 2 / 3  # of mu


def sharpness(d: Directions, heads: int) -> Float[np.ndarray, " plateaus"]:
    r"""$\kappa$ on every plateau of separate attention of rank one, from zero weights to full heads [`edge`]."""
    count = min(heads, len(d.drive))
    held = [np.isin(np.arange(len(d.drive)), d.order[:m]) for m in range(count + 1)]
    return np.array([max(-float(hessian_spectrum(d, learned, count)[0]), 0.0) for learned in held])


def merged_sharpness(L: Landscape) -> float:
    r"""$\kappa$ at the minimum of merged attention, whatever the number of heads [`edge`]."""
    A = np.sqrt(L.outputs) * minimiser(L)
    size = float(np.linalg.norm(A))
    unit = (A / size).ravel()
    reach = size * (np.eye(A.size) + np.outer(unit, unit))  # J J' of balanced heads
    stiffness = np.kron(L.context, L.query)  # of the rows of A, one below the other
    return float(np.max(np.linalg.eigvals(stiffness @ reach).real))


def largest_steps(sharp: Float[np.ndarray, " plateaus"], beta: float = 0.0) -> Float[np.ndarray, " plateaus"]:
    r"""The largest stable step $h = 2(1+\beta)/\kappa$ on every plateau; infinite where nothing is sharp [`edge`]."""
    if not 0 <= beta < 1:
        raise BadInput(f"beta: {beta} must be at least 0 and below 1")
    sharp = np.asarray(sharp, dtype=float)
    return np.where(sharp > 0, 2 * (1 + beta) / np.where(sharp > 0, sharp, 1.0), np.inf)


def first_unstable(steps: Float[np.ndarray, " plateaus"], step: float) -> int | None:
    """The number of the drop after which a step is no longer stable; `None` if it always is."""
    beyond = np.flatnonzero(step > np.asarray(steps))
    return int(beyond[0]) if len(beyond) else None


def mode_orbit(mu: float, start: float = 0.5, settle: int = 2000, keep: int = 64) -> Float[np.ndarray, " keep"]:
    r"""Where the map of a single mode, $x \to x + \mu(x^2 - x^5)$, ends up [`mode-map`]."""
    x, kept = float(start), np.full(keep, np.nan)
    for n in range(settle + keep):
        x = x + mu * (x**2 - x**5)
        if not abs(x) < 10:
            return np.full(keep, np.nan)
        if n >= settle:
            kept[n - settle] = x
    return kept
