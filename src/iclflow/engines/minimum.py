r"""What the moments alone say about where training can go: the lowest loss, and the largest stable step there.

The unconstrained optimum solves $C\theta = b$. A model with fewer than $D$ components reaches only the best $\Theta$
of its rank; with $C = B \otimes \Lambda$ that is a truncated singular value decomposition of
$B^{-1/2} C_1 \Lambda^{-1/2}$, otherwise it is found by a quasi-Newton search from there.

Descent with step $\eta$ is stable at a minimum if $\eta < 2/\lambda_{\max}$ of the Hessian of $L$ there; the minimum
taken is the balanced one that small initial weights lead to.
"""

import numpy as np
import scipy
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.moments import AnyArray, Moments
from iclflow.data.spectrum import root
from iclflow.engines.moment_loss import MomentLoss
from iclflow.models import Model, Weights
from iclflow.models.parts import take
from iclflow.system.cores import one_blas_thread

__all__ = ["balanced_part", "best_matrix", "fits_noise", "lowest_loss", "search", "size_of", "stable_step"]

RELATIVE_CUTOFF = 1e-11  # eigenvalues of C below this share of the largest count as zero


def pseudo_inverse(matrix: Float[AnyArray, "n n"]) -> Float[np.ndarray, "n n"]:
    return np.linalg.pinv(np.asarray(matrix), rcond=RELATIVE_CUTOFF, hermitian=True)


def unconstrained_loss(moments: Moments) -> float:
    r"""$(\sum_o E y_o^2 - b_o' C^+ b_o)/O$."""
    cross = np.asarray(moments.cross)
    solution = pseudo_inverse(moments.left) @ (cross.T if moments.right is None else cross)
    if moments.right is None:
        explained = np.sum(cross.T * solution)
    else:
        explained = np.sum(cross * (solution @ pseudo_inverse(moments.right)))
    return float((moments.power - explained) / moments.out_dim)


def fits_noise(half: Moments, other: Moments) -> bool:
    """Whether what the vector blocks learn on one half of the data is worth nothing on the other half."""
    label = held_out(half.label_part(), other.label_part()) + held_out(other.label_part(), half.label_part())
    return label <= held_out(half, other) + held_out(other, half)


def held_out(known: Moments, new: Moments) -> float:
    r"""The loss on `new` data of the coefficients that are best on `known` data, both with a dense $C$."""
    best = (pseudo_inverse(known.left) @ np.asarray(known.cross).T).T
    return float((new.power + np.sum(best * (new.residual(best) - new.cross))) / new.out_dim)


def best_matrix(moments: Moments, rank: int) -> Float[np.ndarray, "D D"]:
    r"""The best $A$ of a given rank (exact where $C$ is a Kronecker product), one matrix for all outputs."""
    label = moments.label_part()
    dim, outputs = label.dim, label.out_dim
    tensor = np.asarray(label.cross).reshape(outputs, outputs, dim, dim)
    cross = np.einsum("oode->de", tensor) / outputs
    if label.right is None:
        whole = np.asarray(label.left).reshape(outputs, dim, dim, outputs, dim, dim)
        quadratic = np.einsum("oabocd->abcd", whole) / outputs
        context, query = kronecker_factors(quadratic)
        if rank >= dim:
            flat = pseudo_inverse(quadratic.reshape(dim * dim, dim * dim)) @ cross.reshape(-1)
            return flat.reshape(dim, dim)
    else:
        context, query = np.asarray(label.left)[:dim, :dim], np.asarray(label.right)
    left, right = root(pseudo_inverse(context)), root(pseudo_inverse(query))
    u, s, vt = np.linalg.svd(left @ cross @ right)
    return left @ (u[:, :rank] * s[:rank]) @ vt[:rank] @ right


def kronecker_factors(
    quadratic: Float[np.ndarray, "D D D D"],
) -> tuple[Float[np.ndarray, "D D"], Float[np.ndarray, "D D"]]:
    r"""The Kronecker product nearest to a sampled $C$, which it is up to sampling noise."""
    dim = quadratic.shape[0]
    u, s, vt = np.linalg.svd(quadratic.transpose(0, 2, 1, 3).reshape(dim * dim, dim * dim))
    context, query = u[:, 0].reshape(dim, dim) * s[0], vt[0].reshape(dim, dim)
    sign = np.sign(np.trace(query))
    return sign * (context + context.T) / 2, sign * (query + query.T) / 2


def size_of(moments: Moments) -> Task:
    """The sizes of the data, as a task."""
    return Task(dim=moments.dim, out_dim=moments.out_dim)


def balanced_part(model: Model, A: Float[np.ndarray, "D D"], moments: Moments) -> Weights:
    """The trained part of balanced weights that compute `A`."""
    task = size_of(moments)
    return take(model, model.balanced(A, task), task, moments.blocks)


def lowest_loss(loss: MomentLoss, label_only: bool) -> float:
    """The lowest loss that the model can reach on these moments; `label_only` leaves the vector blocks out."""
    model, moments = loss.model, loss.moments.label_part() if label_only else loss.moments
    rank, label = model.components(size_of(moments)), moments.blocks == "label"
    if (label and rank == moments.dim) or (not label and model.spans_all_blocks(size_of(moments))):
        return unconstrained_loss(moments)
    start = balanced_part(model, best_matrix(moments, rank), moments)
    if label and moments.right is not None:
        return float(MomentLoss(moments, (), None, model).loss(start))
    return search(MomentLoss(moments, (), None, model), start)[0]


def search(
    loss: MomentLoss, start: Weights, jitters: tuple[float, ...] = (1e-3, 0.1, 0.3), most: int = 3000
) -> tuple[float, Weights]:
    """The lowest loss, and its trained weights, that quasi-Newton finds from a few perturbations of `start`."""
    flat = Flat(loss, start)
    rng = np.random.default_rng(0)
    starts = [flat.start + scale * rng.standard_normal(len(flat.start)) for scale in jitters]
    options = {"maxiter": most, "maxfun": 2 * most, "ftol": 1e-13, "gtol": 1e-9}
    minimize = lambda x: scipy.optimize.minimize(flat.value_and_slope, x, jac=True, method="L-BFGS-B", options=options)
    with one_blas_thread():  # vectors so short that threads would only wait for each other
        best = min((minimize(x) for x in starts), key=lambda end: end.fun)
    return float(best.fun), flat.unpack(best.x)


def stable_step(loss: MomentLoss) -> float:
    r"""$2/\lambda_{\max}$ at the balanced minimum, by Lanczos on differences of the gradient."""
    model, moments = loss.model, loss.moments
    best = best_matrix(moments, model.components(size_of(moments)))
    flat = Flat(loss, balanced_part(model, best, moments))
    x, small = flat.start, 1e-5
    curvature = lambda d: (flat.slope(x + small * d) - flat.slope(x - small * d)) / (2 * small)
    operator = scipy.sparse.linalg.LinearOperator((len(x), len(x)), matvec=curvature, dtype=float)
    first = np.random.default_rng(0).standard_normal(len(x))
    if len(x) < 3:
        top = np.linalg.eigvalsh(np.stack([curvature(row) for row in np.eye(len(x))]))[-1]
    else:
        top = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=first, tol=1e-6, return_eigenvectors=False)[0]
    return float(2 / top) if top > 0 else np.inf


class Flat:
    """A loss as a function of one vector that holds all trained weights."""

    def __init__(self, loss: MomentLoss, trained: Weights):
        self.loss, self.shapes = loss, {name: array.shape for name, array in trained.items()}
        self.cuts = np.cumsum([array.size for array in trained.values()])[:-1]
        self.start = np.concatenate([array.reshape(-1) for array in trained.values()])

    def unpack(self, x: Float[np.ndarray, " n"]) -> Weights:
        pieces = np.split(x, self.cuts)
        return {name: piece.reshape(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}

    def value_and_slope(self, x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        value, gradient = self.loss.loss_and_gradient(self.unpack(x))
        return float(value), np.concatenate([np.asarray(gradient[name]).reshape(-1) for name in self.shapes])

    def slope(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return self.value_and_slope(x)[1]
