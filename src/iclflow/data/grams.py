r"""All that a model of the residual stream reads of a sequence: the Gram matrix of its context, and its query.

$$G = \big[\,S \;\big|\; z_q\,\big],\qquad S = \sum_{n\le N} z_nz_n',\qquad z = (x, y),$$

an array (E, E+1) whatever the number of tokens; the query holds its true label, which models never see. For the law of
the task $S$ is drawn without drawing tokens: $\sum_n (x_n, \epsilon_n)(x_n, \epsilon_n)'$ is a Wishart matrix $R'R$
with $N$ degrees of freedom, $R$ upper triangular with $\chi_{N-i}$ on and normal numbers above its diagonal
(Bartlett), and labels are a linear map of tokens and noise [`bartlett`].

Draws that stand for the population are balanced: every matrix and query has the exact law, but they are spread evenly
over it. The entries of $R$ and the lengths of $w$ and $x_q$ come from a scrambled Sobol sequence, and each Wishart
matrix meets the $D^2$ pairs of two orthogonal frames of directions of $w$ and $x_q$. On the label blocks the error is
linear in $w$ and in $x_q$, only their second moments matter, and with equal lengths the frames give them exactly: what
is left is an expectation over Wishart matrices alone. K fixed tasks are drawn independently.
"""

import numpy as np
from jaxtyping import Float

from iclflow.data.sequences import Law, Sequences, over_chunks

__all__ = ["balanced_grams", "fresh_grams", "grams_of"]


def grams_of(sequences: Sequences) -> Float[np.ndarray, "P E E+1"]:
    """The Gram matrix and the query of every sequence, chunk by chunk."""
    sequences.prepare()
    return np.concatenate(list(over_chunks(lambda index: gram_and_query(sequences.chunk(index)), sequences)))


def gram_and_query(chunk: Float[np.ndarray, "P tokens E"]) -> Float[np.ndarray, "P E E+1"]:
    context = chunk[:, :-1]
    return np.concatenate([np.matmul(context.transpose(0, 2, 1), context), chunk[:, -1, :, None]], axis=2)


def fresh_grams(law: Law, seed: tuple[int, ...], index: int, size: int) -> Float[np.ndarray, "P E E+1"]:
    """Batch `index` of an endless supply, all independent."""
    rng = np.random.default_rng([*seed, index])
    scatter = wishart(law, rng.random((size, triangle(law))))
    if law.task_set is None:
        w = rng.standard_normal((size, law.out_dim, law.dim)) @ law.task_root
    else:
        w = law.task_set[rng.integers(len(law.task_set), size=size)]
    return labelled(law, scatter, w, rng.standard_normal((size, law.dim)) @ law.token_root, rng)


def balanced_grams(
    law: Law, count: int, seed: tuple[int, ...], equal_lengths: bool = False
) -> Float[np.ndarray, "P E E+1"]:
    """`count` of them that stand for the population; `equal_lengths` where only second moments of w and x matter."""
    rng, dim, outputs = np.random.default_rng(list(seed)), law.dim, law.out_dim
    groups, entries = -(-count // dim**2), triangle(law)
    even = evenly_spread(rng, groups, entries + outputs + 1)
    length = lambda column: None if equal_lengths else even[:, entries + column]
    if law.task_set is None:
        frames = [gaussian_frames(rng, groups, dim, length(o)) @ law.task_root for o in range(outputs)]
        w = np.stack(frames, axis=2)
    else:
        w = law.task_set[rng.integers(len(law.task_set), size=(groups, dim))]
    x = gaussian_frames(rng, groups, dim, length(outputs)) @ law.token_root
    every = lambda array, axis: np.broadcast_to(np.expand_dims(array, axis), (groups, dim, dim, *array.shape[2:]))
    pairs = lambda array: array.reshape(groups * dim**2, *array.shape[3:])
    scatter = np.repeat(wishart(law, even[:, :entries]), dim**2, axis=0)
    return labelled(law, scatter, pairs(every(w, 2)), pairs(every(x, 1)), rng)[:count]


def triangle(law: Law) -> int:
    """The number of random entries of Bartlett's triangle for tokens and label noise."""
    width = law.dim + (law.out_dim if law.label_noise > 0 else 0)
    return width * (width + 1) // 2


def wishart(law: Law, uniform: Float[np.ndarray, "P entries"]) -> Float[np.ndarray, "P E E"]:
    r"""$\sum_n (x_n, \epsilon_n)(x_n, \epsilon_n)'$ from uniform numbers [`bartlett`]; without noise, zero for it."""
    from scipy.special import gammaincinv, ndtri

    dim, outputs = law.dim, law.out_dim
    width = dim + (outputs if law.label_noise > 0 else 0)
    rows, cols = np.triu_indices(width)
    R = np.zeros((len(uniform), width, width))
    for entry, (row, col) in enumerate(zip(rows, cols, strict=True)):
        if row < law.context:  # a context shorter than E has fewer rows
            u = uniform[:, entry]
            R[:, row, col] = ndtri(u) if row != col else np.sqrt(2 * gammaincinv((law.context - row) / 2, u))
    whole = np.zeros((len(uniform), width, dim + outputs))
    whole[:, :, :dim] = R[:, :, :dim] @ law.token_root
    if law.label_noise > 0:
        whole[:, :, dim:] = np.sqrt(law.label_noise) * R[:, :, dim:]
    return whole.transpose(0, 2, 1) @ whole


def labelled(
    law: Law,
    scatter: Float[np.ndarray, "P E E"],
    w: Float[np.ndarray, "P O D"],
    x: Float[np.ndarray, "P D"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "P E E+1"]:
    """Labels y = w'x + noise put in the place of the noise, in the context and at the query."""
    dim, outputs = law.dim, law.out_dim
    label = np.broadcast_to(np.eye(dim + outputs), scatter.shape).copy()
    label[:, dim:, :dim] = w
    y = np.einsum("pod,pd->po", w, x)
    if law.query_noise:
        y = y + np.sqrt(law.label_noise) * rng.standard_normal(y.shape)
    query = np.concatenate([x, y], axis=1)
    return np.concatenate([label @ scatter @ label.transpose(0, 2, 1), query[:, :, None]], axis=2)


def gaussian_frames(
    rng: np.random.Generator, groups: int, dim: int, uniform: Float[np.ndarray, " groups"] | None
) -> Float[np.ndarray, "groups D D"]:
    r"""Groups of D orthogonal vectors with the length of a normal vector, or $\sqrt D$ where no number is given."""
    from scipy.special import gammaincinv

    q, r = np.linalg.qr(rng.standard_normal((groups, dim, dim)))
    directions = (q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]).transpose(0, 2, 1)
    lengths = np.full(groups, np.sqrt(dim)) if uniform is None else np.sqrt(2 * gammaincinv(dim / 2, uniform))
    return directions * lengths[:, None, None]


def evenly_spread(rng: np.random.Generator, count: int, columns: int) -> Float[np.ndarray, "count columns"]:
    """Points of the unit cube from a scrambled Sobol sequence: each uniform, all together nearly even."""
    from scipy.stats import qmc

    points = qmc.Sobol(columns, seed=rng).random_base2(max(count - 1, 1).bit_length())[:count]
    return np.clip(points, 1e-12, 1 - 1e-12)
