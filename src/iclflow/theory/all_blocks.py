r"""The loss of all weight blocks: what the two channels leave out, and what makes a grown head settle.

With $z = (x, y)$ the tokens, labels included, and $S = \frac1\rho\big(\sum_n z_nz_n' + x_qx_q'\big)$ output $o$ of a
linear model is $\hat y_o = \langle\Theta_o, S\otimes x_q\rangle$. A head with value rows $\alpha_o = (a_o, V_o)$, keys
$\beta_r = (k_r, b_r)$ and queries $q_r$ adds $\sum_r \alpha_o\otimes\beta_r\otimes q_r$ to $\Theta_o$. Tasks are as
likely as their negatives, so only $\sqrt OA$ (`theory.equations`) correlates with the labels, and [`all-blocks`]

$$O\,L = O L_0 - 2\langle\sqrt OA, \sqrt OC_1\rangle + \sum_o\langle\Theta_o, \mathcal C\,\Theta_o\rangle,\qquad
  \mathcal C = E[S\otimes x_q\otimes S\otimes x_q].$$

Given its task vectors a context is Gaussian with covariance $\Gamma$, so Wick's theorem gives $\mathcal C$ from
$E[\Gamma\otimes\Gamma]$, which is known for Gaussian tasks. Through a drop this is all that a head feels. On a plateau
it vanishes: a head at rest has $\Theta$ in $A$ alone, with $a = b = 0$ (standard) or $v = k = 0$ (swapped).

On a finite sample every feature correlates with the labels, by $c_o = \langle y_o\,S\otimes x_q\rangle$: its tasks are
not quite as likely as their negatives. Vector blocks then drift from zero, about $P^{-1/2}$ as fast as the label blocks
grow. Both averages are those of the sample, so its flow is followed exactly.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import no_type_check

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.theory.equations import Layout
from iclflow.theory.landscape import lengths
from iclflow.theory.separate import SampleLandscape

__all__ = ["AllBlocks", "feature_moments"]

Rows = Float[np.ndarray, "H size"]
Force = Float[np.ndarray, "O E E D"]
FEW = 200  # features whose product with all moments takes less time than to pick the pairs that differ


def feature_moments(task: Task) -> Float[np.ndarray, "E E D E E D"]:
    r"""$\mathcal C$, symmetric in each pair of token indices, for Gaussian tasks [`all-blocks`]."""
    token, omega = covariances(task)[:2]
    O = task.out_dim
    n, rho = (x.astype(float) for x in lengths(task))
    k2, k3, k0 = (float(np.mean(x / rho**2)) for x in (n**2, n, np.ones_like(n)))
    mean, second = context_covariances(token, omega, O, task.label_noise)
    context = k2 * second + k3 * (second.transpose(0, 2, 1, 3) + second.transpose(0, 2, 3, 1))
    hidden = [(0, O)]  # the query's own label
    four = np.pad(pairings(token, 4), hidden * 2 + [(0, 0)] * 2)
    six = np.pad(pairings(token, 6), hidden * 4 + [(0, 0)] * 2)
    moments = np.einsum("abcd,ef->abecdf", context, token) + k0 * six.transpose(0, 1, 4, 2, 3, 5)
    return moments + k3 * (np.einsum("ab,cdef->abecdf", mean, four) + np.einsum("cd,abef->abecdf", mean, four))


def context_covariances(
    token: Float[np.ndarray, "D D"], omega: Float[np.ndarray, "D D"], outputs: int, noise: float
) -> tuple[Float[np.ndarray, "E E"], Float[np.ndarray, "E E E E"]]:
    r"""$E[\Gamma]$ and $E[\Gamma_{ab}\Gamma_{cd}]$ over Gaussian task vectors."""
    D, eye = len(token), np.eye(outputs)
    x, y = slice(0, D), slice(D, D + outputs)
    drive, power = token @ omega @ token, float(np.trace(token @ omega))
    mean = np.zeros((D + outputs, D + outputs))
    mean[x, x], mean[y, y] = token, (power + noise) * eye
    second = np.einsum("ab,cd->abcd", mean, mean)
    shared = float(np.trace(token @ omega @ token @ omega))
    second[y, y, y, y] += shared * (np.einsum("ac,bd->abcd", eye, eye) + np.einsum("ad,bc->abcd", eye, eye))
    both = np.einsum("ac,bd->abcd", drive, eye)  # of x_a y_b and x_c y_d
    second[x, y, x, y], second[y, x, y, x] = both, both.transpose(1, 0, 3, 2)
    second[x, y, y, x], second[y, x, x, y] = both.transpose(0, 1, 3, 2), both.transpose(1, 0, 2, 3)
    return mean, second


def pairings(token: Float[np.ndarray, "D D"], count: int) -> np.ndarray:
    """The moments of `count` Gaussian numbers: the sum over all ways to pair them."""
    letters = "abcdef"[:count]
    ways = {frozenset(frozenset(order[i : i + 2]) for i in range(0, count, 2)) for order in permutations(letters)}
    terms = sorted(",".join(sorted("".join(sorted(pair)) for pair in way)) for way in ways)  # the same order every time
    return np.sum([np.einsum(f"{term}->{letters}", *[token] * (count // 2)) for term in terms], axis=0)


@dataclass(frozen=True)
class AllBlocks:
    """The quadratic part of the loss on all blocks, and what heads feel of it."""

    layout: Layout
    folded_moments: Float[np.ndarray, "F F"]  # of the features that differ: one of each pair of token indices
    push: Force | None = None  # on a sample: what correlates with the labels beside A

    @classmethod
    def of(cls, layout: Layout, moments: Float[np.ndarray, "E E D E E D"]) -> "AllBlocks":
        """The same from the moments of all features."""
        first, second = np.triu_indices(len(moments))
        kept = moments[first, second][:, :, first, second]  # (pair, d, pair, e)
        return cls(layout, kept.reshape(len(first) * layout.dim, -1))

    @classmethod
    def of_sample(cls, layout: Layout, L: SampleLandscape) -> "AllBlocks":
        """Those of a sample: what correlates with the labels in A is a force of its own and left out of `push`."""
        assert L.features is not None
        assert L.correlation is not None
        push, D = L.correlation.copy(), layout.dim
        for o in range(layout.channels):
            push[o, D + o, :D] -= L.cross
            push[o, :D, D + o] -= L.cross
        return cls(layout, L.features, push)

    @cached_property
    def width(self) -> int:
        """E, tokens and labels."""
        return self.layout.dim + self.layout.channels

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of token indices in order."""
        return np.triu_indices(self.width)

    @cached_property
    def moments(self) -> Float[np.ndarray, "EED EED"]:
        """The moments of all features, both orders of a pair."""
        half = self.unfolded(self.folded_moments).reshape(len(self.folded_moments), -1)
        return self.unfolded(half.T).reshape(half.shape[1], -1)

    @no_type_check
    def curved(self, features: Float[np.ndarray, "*stack E E D"]) -> Float[np.ndarray, "*stack E E D"]:
        r"""$\mathcal C$ times features."""
        side = self.width**2 * self.layout.dim
        if side > FEW:
            return self.unfolded(self.folded(features) @ self.folded_moments)
        return (features.reshape(-1, side) @ self.moments).reshape(features.shape)

    @no_type_check
    def folded(self, features: Float[np.ndarray, "*stack E E D"]) -> Float[np.ndarray, "*stack F"]:
        """Features with those of both orders of a pair added up."""
        first, second = self.pairs
        both = features[..., first, second, :] + (first != second)[:, None] * features[..., second, first, :]
        return both.reshape(*features.shape[:-3], -1)

    @no_type_check
    def unfolded(self, values: Float[np.ndarray, "*stack F"]) -> Float[np.ndarray, "*stack E E D"]:
        """The same numbers for both orders of a pair."""
        (first, second), E, D = self.pairs, self.width, self.layout.dim
        full = np.empty((*values.shape[:-1], E, E, D))
        full[..., first, second, :] = full[..., second, first, :] = values.reshape(*values.shape[:-1], -1, D)
        return full

    @cached_property
    def turn(self) -> Float[np.ndarray, "size size"]:
        r"""The orthogonal matrix from $\alpha, \beta, q$ of a head to the numbers of its row."""
        parts, basis = self.layout.split(one := np.eye(self.layout.size)), self.layout.label_basis
        label = np.column_stack([parts.value, parts.mixing]) @ basis.reshape(len(basis), -1)
        pieces = (
            np.concatenate([parts.value_rows, label.reshape(-1, *basis.shape[1:])], axis=2),
            np.concatenate([parts.key, parts.key_labels], axis=2),
            parts.query,
        )
        return np.concatenate([piece.reshape(len(one), -1) for piece in pieces], axis=1)

    @no_type_check
    def native(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r"""$\alpha$ (H, O, E), $\beta$ (H, R, E) and $q$ (H, R, D) of every head."""
        O, E, D, R, H = self.layout.channels, self.width, self.layout.dim, self.layout.rank, len(rows)
        a, b, flat = O * E, O * E + R * E, rows @ self.turn
        return flat[:, :a].reshape(H, O, E), flat[:, a:b].reshape(H, R, E), flat[:, b:].reshape(H, R, D)

    @no_type_check
    def rows(self, alpha: np.ndarray, beta: np.ndarray, query: np.ndarray) -> Rows:
        """The rows of heads, or of their velocities, given by their parts."""
        H = len(alpha)
        return np.concatenate([alpha.reshape(H, -1), beta.reshape(H, -1), query.reshape(H, -1)], 1) @ self.turn.T

    @no_type_check
    def features(self, rows: Rows) -> Force:
        r"""$\Theta$ of these heads together."""
        alpha, beta, query = self.native(rows)
        H, O, E = alpha.shape
        inner = (beta.transpose(0, 2, 1) @ query).reshape(H, -1)
        return (alpha.reshape(H, -1).T @ inner).reshape(O, E, E, -1)

    def pull(self, rows: Rows) -> Force:
        r"""$\mathcal C\Theta$: what these heads take away from the force on all features, less the push."""
        taken = self.curved(self.features(rows))
        return taken if self.push is None else taken - self.push

    def cost(self, rows: Rows) -> float:
        r"""$\sum_o\langle\Theta_o, \mathcal C\Theta_o\rangle$, and what the push adds to the loss."""
        features = self.features(rows)
        return float(np.sum(features * (self.pull(rows) if self.push is None else self.pull(rows) - self.push)))

    @no_type_check
    def felt(self, rows: Rows, pull: Force) -> Rows:
        """The velocity of heads under this pull."""
        alpha, beta, query = self.native(rows)
        H, O, E = alpha.shape
        pull = pull.reshape(O * E, -1)
        inner = (beta.transpose(0, 2, 1) @ query).reshape(H, -1)
        outer = (alpha.reshape(H, -1) @ pull).reshape(H, E, -1)
        return -self.rows((inner @ pull.T).reshape(H, O, E), query @ outer.transpose(0, 2, 1), beta @ outer)

    def jacobian(self, rows: Rows) -> Float[np.ndarray, "n n"]:
        """The derivative of the velocity that these heads give each other."""
        H, size = rows.shape
        wide = (self.layout.channels, self.width, self.width, self.layout.dim)
        slopes = self.folded(self.slopes(rows).reshape(H * size, *wide))
        coupled = -slopes.reshape(H * size, -1) @ (slopes @ self.folded_moments).reshape(H * size, -1).T
        coupled.reshape(H, size, H, size)[np.arange(H), :, np.arange(H), :] -= self.bends(rows, self.pull(rows))
        return coupled

    def slopes(self, rows: Rows) -> Float[np.ndarray, "H size O E E D"]:
        r"""$\partial\Theta/\partial y$ for every number of every head."""
        alpha, beta, query = self.native(rows)
        H, O, E = alpha.shape
        D = query.shape[2]
        inner = beta.transpose(0, 2, 1) @ query
        pieces = (
            np.einsum("op,ik,hjd->hoipkjd", np.eye(O), np.eye(E), inner),
            np.einsum("hoi,jk,hrd->hrkoijd", alpha, np.eye(E), query),
            np.einsum("hoi,hrj,de->hreoijd", alpha, beta, np.eye(D)),
        )
        stacked = np.concatenate([piece.reshape(H, -1, O * E * E * D) for piece in pieces], axis=1)
        return (self.turn @ stacked).reshape(H, -1, O, E, E, D)

    def bends(self, rows: Rows, pull: Force) -> Float[np.ndarray, "H size size"]:
        r"""Second derivatives of $\langle\Theta, F\rangle$ within every head, $F$ the pull."""
        alpha, beta, query = self.native(rows)
        H, O, E = alpha.shape
        R = query.shape[1]
        a, b, q = O * E, O * E + R * E, self.layout.size
        upper = np.zeros((H, q, q))
        upper[:, :a, a:b] = np.einsum("oijd,hrd->hoirj", pull, query).reshape(H, a, b - a)
        upper[:, :a, b:] = np.einsum("oijd,hrj->hoird", pull, beta).reshape(H, a, q - b)
        felt = np.einsum("oijd,hoi->hjd", pull, alpha)
        upper[:, a:b, b:] = np.einsum("hjd,rs->hrjsd", felt, np.eye(R)).reshape(H, b - a, q - b)
        return self.turn @ (upper + upper.transpose(0, 2, 1)) @ self.turn.T
