r"""Moments of the population, exact.

Label blocks, every sequence with its own task [`population-moments`]: with $\beta_o = \nu\sum_n y_{n,o} x_n$,

$$E[\beta_o\beta_{o'}'] =
  \delta_{oo'}\big[(k_{nn}+k_n)\Lambda\Omega\Lambda + k_n(\operatorname{tr}\Lambda\Omega+\sigma^2)\Lambda\big],
  \quad E[y_o\beta_{o'}x_q'] = \delta_{oo'}\, j_n \Lambda\Omega\Lambda,$$

where $k_{nn}, k_n, k_0 = E[\nu^2 n^2], E[\nu^2 n], E[\nu^2]$ and $j_n, j_0 = E[\nu n], E[\nu]$ average over context
lengths. Only $D\times D$ matrices appear.

With K fixed tasks $\Omega$ becomes $\frac1K\sum_k w_{k,o}w_{k,o'}'$, which couples the outputs [`task-set-moments`].

All blocks, or shared task vectors [`all-block-moments`]: given the task vectors a context is Gaussian with
covariance $\Sigma = R\Lambda R' + \sigma^2 J$, $R = [I; w']$, so $S$ is a Wishart matrix plus the query's outer
product. Wick's theorem, first over tokens and then over $w$, gives every entry; no quadrature is needed. Over K fixed
tasks the second step is a mean.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.features import Blocks, attention_scale, feature_count
from iclflow.data.moments import Moments
from iclflow.data.spectrum import covariances, in_weight_task, task_vectors
from iclflow.errors import BadInput
from iclflow.system.memory import require

__all__ = ["population_moments"]

MOST_FEATURES = 5000  # a dense C of 200 MB


def population_moments(task: Task, normalize: str, blocks: Blocks, icl_fraction: float | None = None) -> Moments:
    """The moments of the training law, or of a test law (`icl_fraction` 1 or 0) of the same task."""
    fraction = task.icl_fraction if icl_fraction is None else icl_fraction
    lengths = length_averages(task, normalize)
    if blocks == "label" and fraction == 1:
        return label_moments(task, lengths) if task.tasks is None else task_set_label_moments(task, lengths)
    everything = all_block_moments(task, lengths, fraction)
    return everything.label_part() if blocks == "label" else everything


class LengthAverages(NamedTuple):
    """Averages over the context length: of nu^2 n^2, nu^2 n, nu^2, nu n and nu."""

    k_nn: float
    k_n: float
    k_0: float
    j_n: float
    j_0: float


def length_averages(task: Task, normalize: str) -> LengthAverages:
    """The averages over all context lengths with the prefix loss, otherwise the values at the full context."""
    n = np.arange(1, task.context + 1) if task.prefix_loss else np.array([task.context])
    nu = np.array([attention_scale(normalize, int(k)) for k in n])
    return LengthAverages(*(float(np.mean(a)) for a in (nu**2 * n**2, nu**2 * n, nu**2, nu * n, nu)))


def target_power(task: Task, signal: float) -> float:
    """The second moment of the query's labels, with their noise if they have any."""
    return signal + task.out_dim * task.label_noise * task.query_noise


def label_moments(task: Task, k: LengthAverages) -> Moments:
    """The moments of the label blocks, with $C$ as its two factors, whose product is never formed."""
    token, omega = covariances(task)[:2]
    dim, outputs = task.dim, task.out_dim
    drive, power = token @ omega @ token, float(np.trace(token @ omega))
    context = (k.k_nn + k.k_n) * drive + k.k_n * (power + task.label_noise) * token
    cross = np.einsum("op,de->opde", np.eye(outputs), k.j_n * drive).reshape(outputs, outputs * dim, dim)
    return Moments(
        np.kron(np.eye(outputs), context), token, cross, np.asarray(target_power(task, outputs * power)),
        dim=dim, blocks="label",
    )  # fmt: skip


def task_set_label_moments(task: Task, k: LengthAverages) -> Moments:
    """The same for K fixed tasks, whose second moments couple the outputs."""
    token, w = covariances(task).token, task_vectors(task)
    dim, outputs = task.dim, task.out_dim
    second = np.einsum("kod,kpe->opde", w, w) / len(w)
    drive, power = token @ second @ token, np.einsum("de,oped->op", token, second)
    scale = k.k_n * (power + task.label_noise * np.eye(outputs))
    context = k.k_nn * drive + k.k_n * drive.transpose(0, 1, 3, 2) + scale[:, :, None, None] * token
    return Moments(
        context.transpose(0, 2, 1, 3).reshape(outputs * dim, outputs * dim), token,
        k.j_n * drive.transpose(1, 0, 2, 3).reshape(outputs, outputs * dim, dim),
        np.asarray(target_power(task, float(np.trace(power)))), dim=dim, blocks="label",
    )  # fmt: skip


class ContextLaw(NamedTuple):
    r"""What Wick's theorem needs of the law of $\Sigma(w)$ and of the target's weights."""

    mean: Float[np.ndarray, "E E"]  # E Sigma
    second: Float[np.ndarray, "E E E E"]  # E Sigma Sigma
    target: Float[np.ndarray, "O D E E"]  # E w_o Sigma
    target_mean: Float[np.ndarray, "O D"]  # E w_o
    power: float  # E |y|^2


def own_tasks(task: Task) -> ContextLaw:
    r"""$w_o \sim N(0, \Omega)$: rows $r_a$ of $R$ have mean $e_a$ (tokens) or 0 and covariance $K_{aa}\Omega$."""
    token, omega = covariances(task)[:2]
    dim, outputs = task.dim, task.out_dim
    m, q = padded(token, outputs), padded(token @ omega @ token, outputs)
    K = np.diag([0.0] * dim + [1.0] * outputs)
    t, t2 = float(np.trace(token @ omega)), float(np.trace(token @ omega @ token @ omega))
    noise = task.label_noise * K
    mean = m + t * K
    second = (
        outer(mean, mean)
        + swapped(K, q) + swapped(q, K)
        + t2 * swapped(K, K)
        + outer(mean, noise) + outer(noise, mean) + outer(noise, noise)
    )  # fmt: skip
    # E[w_o (x) Sigma_ab] = K_oa Omega Lambda e_b + K_ob Omega Lambda e_a
    half = np.einsum("oa,db->odab", K[dim:], np.pad(omega @ token, ((0, 0), (0, outputs))))
    return ContextLaw(mean + noise, second, half + half.transpose(0, 1, 3, 2), np.zeros((outputs, dim)), outputs * t)


def shared_task(task: Task, labels_tell: bool) -> ContextLaw:
    """All sequences share one task vector; unless `labels_tell`, the context labels are N(0, 1), independent of it."""
    token, w = covariances(task).token, in_weight_task(task)
    dim, outputs = task.dim, task.out_dim
    K = np.diag([0.0] * dim + [1.0] * outputs)
    rows = np.concatenate([np.eye(dim), w])
    sigma = rows @ token @ rows.T if labels_tell else padded(token, outputs) + K
    sigma = sigma + task.label_noise * K
    return ContextLaw(sigma, outer(sigma, sigma), np.einsum("od,ab->odab", w, sigma), w, float(np.sum((w @ token) * w)))


def fixed_tasks(task: Task) -> ContextLaw:
    """Every sequence has one of K task vectors: the mean of what `shared_task` is for one of them."""
    token, w = covariances(task).token, task_vectors(task)
    dim, outputs, count = task.dim, task.out_dim, len(w)
    rows = np.concatenate([np.broadcast_to(np.eye(dim), (count, dim, dim)), w], axis=1)
    sigma = rows @ token @ rows.transpose(0, 2, 1)
    sigma += task.label_noise * np.diag([0.0] * dim + [1.0] * outputs)
    width = dim + outputs
    flat = sigma.reshape(count, width * width)
    return ContextLaw(
        mean=sigma.mean(axis=0),
        second=(flat.T @ flat / count).reshape(4 * (width,)),
        target=(w.reshape(count, -1).T @ flat / count).reshape(outputs, dim, width, width),
        target_mean=w.mean(axis=0),
        power=float(np.sum((w @ token) * w) / count),
    )


def mixture(p: float, first: ContextLaw, second: ContextLaw) -> ContextLaw:
    """The moments of a draw from `first` with probability p, otherwise from `second`."""
    mix = lambda a, b: p * a + (1 - p) * b
    return ContextLaw(*(mix(a, b) for a, b in zip(first, second, strict=True)))


def all_block_moments(task: Task, k: LengthAverages, fraction: float) -> Moments:
    """The moments of all blocks, with a dense $C$."""
    dim, outputs = task.dim, task.out_dim
    side = feature_count(dim, outputs, "all")
    if side > MOST_FEATURES:
        raise BadInput(
            f"dim: {dim} gives {side} features, must be at most {MOST_FEATURES} for the population of all weight"
            " blocks; give samples, or keep the vector blocks at zero: with icl_fraction 1, and for fixed tasks with"
            " mirror_tasks or freeze_vectors"
        )
    needed = (
        6 * 8 * (side + outputs * dim) ** 2 + 3 * 8 * (task.tasks or 0) * (1 + task.mirror_tasks) * (dim + outputs) ** 2
    )
    require(needed, f"population moments of {side} features (dim {dim}, all blocks)")
    if task.tasks is not None:
        law = fixed_tasks(task)
    else:
        law = mixture(fraction, own_tasks(task), shared_task(task, labels_tell=fraction > 0))
    token = covariances(task).token
    rows, cols = np.triu_indices(dim + outputs)
    left = feature_products(law, token, k)[rows, cols][:, :, rows, cols]  # (pair, c, pair, c)
    cross = target_products(law, token, k)[:, rows, cols]
    return Moments(
        left.reshape(side, side), None, cross.reshape(outputs, side), np.asarray(target_power(task, law.power)),
        dim=dim, blocks="all",
    )  # fmt: skip


def feature_products(
    law: ContextLaw, token: Float[np.ndarray, "D D"], k: LengthAverages
) -> Float[np.ndarray, "E E D E E D"]:
    r"""$E[\nu^2 S_{ab} x_e\, S_{cd} x_f]$, $S = S_{\text{context}} + x_q x_q'$."""
    outputs = law.target_mean.shape[0]
    four = gaussian_four(token)
    wishart = k.k_nn * law.second + k.k_n * (law.second.transpose(0, 2, 1, 3) + law.second.transpose(0, 2, 3, 1))
    query_four = np.pad(four, [(0, outputs), (0, outputs), (0, 0), (0, 0)])  # x_a x_b x_e x_f, labels hidden
    query_six = np.pad(gaussian_six(token, four), [(0, outputs)] * 4 + [(0, 0)] * 2)
    products = np.einsum("abcd,ef->abecdf", wishart, token)
    products += k.k_n * np.einsum("ab,cdef->abecdf", law.mean, query_four)
    products += k.k_n * np.einsum("cd,abef->abecdf", law.mean, query_four)
    return products + k.k_0 * query_six.transpose(0, 1, 4, 2, 3, 5)


def target_products(
    law: ContextLaw, token: Float[np.ndarray, "D D"], k: LengthAverages
) -> Float[np.ndarray, "O E E D"]:
    r"""$E[y_o\, \nu S_{ab} x_e]$."""
    outputs = law.target_mean.shape[0]
    context = np.einsum("ocab,ce->oabe", law.target, token)
    query = np.einsum("oc,cabe->oabe", law.target_mean, gaussian_four(token))
    return k.j_n * context + k.j_0 * np.pad(query, [(0, 0), (0, outputs), (0, outputs), (0, 0)])


def padded(matrix: Float[np.ndarray, "D D"], outputs: int) -> Float[np.ndarray, "E E"]:
    """The matrix of the tokens with rows and columns of zeros for the labels."""
    return np.pad(matrix, (0, outputs))


def outer(a: Float[np.ndarray, "E E"], b: Float[np.ndarray, "E E"]) -> Float[np.ndarray, "E E E E"]:
    """The pairing that does not cross: a_ab b_cd."""
    return np.einsum("ab,cd->abcd", a, b)


def swapped(a: Float[np.ndarray, "E E"], b: Float[np.ndarray, "E E"]) -> Float[np.ndarray, "E E E E"]:
    """The two pairings that cross: a_ac b_bd + a_ad b_bc."""
    return np.einsum("ac,bd->abcd", a, b) + np.einsum("ad,bc->abcd", a, b)


def gaussian_four(c: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D D D"]:
    """E[x_a x_b x_c x_d]: three pairings."""
    return outer(c, c) + swapped(c, c)


def gaussian_six(c: Float[np.ndarray, "D D"], four: Float[np.ndarray, "D D D D"]) -> Float[np.ndarray, "D D D D D D"]:
    """E[x_a x_b x_c x_d x_e x_f]: pair the first with each of the other five."""
    return (
        np.einsum("ab,cdef->abcdef", c, four)
        + np.einsum("ac,bdef->abcdef", c, four)
        + np.einsum("ad,bcef->abcdef", c, four)
        + np.einsum("ae,bcdf->abcdef", c, four)
        + np.einsum("af,bcde->abcdef", c, four)
    )
