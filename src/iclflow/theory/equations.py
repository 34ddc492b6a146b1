r"""The equations that training follows: gradient flow of separate key and query, with all that acts on it.

A head has a value weight $v = \operatorname{tr} V/\sqrt O$, keys $k_r$ and queries $q_r$. Its vector blocks are the
token rows $a_o$ of the value of output $o$ and the label entries $b_{ro}$ of the keys. Together they act through
[`two-channels`]

$$\sqrt O A = \sum_h\sum_r p_r q_r',\qquad p_r = v k_r + \frac{1}{\sqrt O}\sum_o b_{ro} a_o,$$

and with the force $\hat G = \sqrt O\,G(A)$ gradient flow is (Eq. 14 where there are no vector blocks)

$$\tau\dot v = \sum_r k_r'\hat Gq_r,\quad \tau\dot k_r = v\hat Gq_r,\quad \tau\dot q_r = \hat G'p_r,\quad
  \tau\dot a_o = \tfrac{1}{\sqrt O}\sum_r b_{ro}\hat Gq_r,\quad \tau\dot b_{ro} = \tfrac{1}{\sqrt O}a_o'\hat Gq_r .$$

The products $a_o'\hat\Lambda k_r$ and $v b_{ro}$, which are even in the task vector, do not correlate with the label
and are left out here; `theory.all_blocks` has them.

Weight decay adds $-\gamma y$ to this field $f$. Descent by steps $y_{n+1} = y_n + h f(y_n)$ lies on the flow of a field
near $f$ [`descent-field`],

$$\tilde f = f - \tfrac h2 f'f + O(h^2),$$

so that one solver for flows also predicts descent, its lag and the winners of near ties included, without taking its
steps. No fixed point moves. Derivatives along $f$ are central differences: the fields are polynomials of low degree.

All numbers of one head stand in one row: $v, K, Q, a, b$, and what the label block of several outputs has
beside $v$. What a solver calls ten thousand times is not checked at run time (`no_type_check`); what calls it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float

from iclflow.theory.landscape import Landscape
from iclflow.theory.separate import SampleLandscape
from iclflow.theory.solve import Resolvent, Solve, dense_resolvent

__all__ = ["Flow", "Layout", "Parts"]

SMALL = 64  # numbers of all heads, up to which one inverse takes less time than its parts
NUDGE = 1e-4  # of the largest number of the state, for differences

Rows = Float[np.ndarray, "H size"]
Matrix = Float[np.ndarray, "D D"]
Vector = Float[np.ndarray, " n"]  # all heads, one after the other


class Parts(NamedTuple):
    """What a row holds; the last two have no entries where there are no vector blocks."""

    value: Float[np.ndarray, " H"]
    key: Float[np.ndarray, "H R D"]
    query: Float[np.ndarray, "H R D"]
    value_rows: Float[np.ndarray, "H O D"]  # a
    key_labels: Float[np.ndarray, "H R O"]  # b
    mixing: Float[np.ndarray, "H rest"]  # the rest of the label block V along `label_basis`: O O - 1 numbers

    @classmethod
    def plain(
        cls, value: Float[np.ndarray, " H"], key: Float[np.ndarray, "H R D"], query: Float[np.ndarray, "H R D"]
    ) -> "Parts":
        """Heads without vector blocks."""
        heads, rank, dim = key.shape
        return cls(value, key, query, np.zeros((heads, 0, dim)), np.zeros((heads, rank, 0)), np.zeros((heads, 0)))


@dataclass(frozen=True)
class Layout:
    """How rows are laid out, and the equations on them."""

    rank: int
    dim: int
    channels: int  # the outputs whose vector blocks are followed: 0 or O
    weight: float  # 1/sqrt(O)

    @classmethod
    def of(cls, parts: Parts, outputs: int) -> "Layout":
        """The layout of these weights."""
        return cls(parts.key.shape[1], parts.key.shape[2], parts.value_rows.shape[1], 1 / np.sqrt(outputs))

    @cached_property
    def size(self) -> int:
        """Numbers per head."""
        return 1 + 2 * self.rank * self.dim + self.channels * (self.dim + self.rank) + max(self.channels**2 - 1, 0)

    @property
    def feature_count(self) -> int:
        r"""How many features $S\otimes x_q$ there are for one output."""
        return (self.dim + self.channels) ** 2 * self.dim if self.channels else 0

    @cached_property
    def label_basis(self) -> Float[np.ndarray, "m O O"]:
        r"""An orthonormal basis of label blocks; the first is $I/\sqrt O$, whose part is the value weight."""
        eye = np.eye(self.channels).ravel()
        basis = np.linalg.qr(np.column_stack([eye, np.eye(eye.size)]))[0].T
        basis[0] = eye / np.sqrt(self.channels)  # without a sign of its own
        return basis.reshape(-1, self.channels, self.channels)

    @no_type_check
    def join(self, parts: Parts) -> Rows:
        """Rows from their parts."""
        return np.concatenate([part.reshape(len(parts.value), -1) for part in parts], axis=1)

    @no_type_check
    def split(self, rows: Rows) -> Parts:
        """The parts of rows."""
        R, D, O, H = self.rank, self.dim, self.channels, len(rows)
        k, q, a = 1 + R * D, 1 + 2 * R * D, 1 + 2 * R * D + O * D
        b = a + R * O
        return Parts(
            rows[:, 0],
            rows[:, 1:k].reshape(H, R, D),
            rows[:, k:q].reshape(H, R, D),
            rows[:, q:a].reshape(H, O, D),
            rows[:, a:b].reshape(H, R, O),
            rows[:, b:],
        )

    @no_type_check
    def effective_keys(self, parts: Parts) -> Float[np.ndarray, "H R D"]:
        """$p_r$ of every head."""
        keys = parts.value[:, None, None] * parts.key
        return keys + self.weight * (parts.key_labels @ parts.value_rows) if self.channels else keys

    @no_type_check
    def matrices(self, rows: Rows) -> Float[np.ndarray, "H D D"]:
        r"""Every head's share of $\sqrt O A$."""
        parts = self.split(rows)
        return self.effective_keys(parts).transpose(0, 2, 1) @ parts.query

    @no_type_check
    def matrix(self, rows: Rows) -> Matrix:
        r"""$\sqrt O A$; without vector blocks rows may have a leading axis of runs."""
        if not self.channels:
            dim, wide, runs = self.dim, 1 + self.rank * self.dim, rows.shape[:-2]
            keys = (rows[..., :1] * rows[..., 1:wide]).reshape(*runs, -1, dim)
            return keys.swapaxes(-1, -2) @ rows[..., wide:].reshape(*runs, -1, dim)
        parts = self.split(rows)
        return self.effective_keys(parts).reshape(-1, self.dim).T @ parts.query.reshape(-1, self.dim)

    def turned(
        self, rows: Rows, left: Float[np.ndarray, "D new"], right: Float[np.ndarray, "D new"]
    ) -> Float[np.ndarray, "H turned"]:
        """The same heads in other coordinates: key and value rows times `left`, queries times `right`."""
        v, K, Q, a, b, rest = self.split(rows)
        return self.join(Parts(v, K @ left, Q @ right, a @ left, b, rest))

    @no_type_check
    def velocity(self, rows: Rows, force: Matrix, taken: Callable[[Matrix], Matrix] | None = None) -> Rows:
        """The velocity in a force [`two-channels`], less what the heads take away of it by their own matrix."""
        if not self.channels:
            return self.label_velocity(rows, force, taken)
        parts = self.split(rows)
        keys = self.effective_keys(parts)
        if taken is not None:
            force = force - taken(keys.reshape(-1, self.dim).T @ parts.query.reshape(-1, self.dim))
        return self.moving(parts, parts.query @ force.T, keys @ force)

    @no_type_check
    def diagonal_velocity(self, rows: Rows, drive: Float[np.ndarray, " D"]) -> Rows:
        """The velocity where the force is diagonal."""
        if not self.channels:
            return self.label_velocity(rows, drive, diagonal=True)
        parts = self.split(rows)
        return self.moving(parts, parts.query * drive, self.effective_keys(parts) * drive)

    @no_type_check
    def label_velocity(
        self,
        rows: Float[np.ndarray, "*runs H size"],
        force: Float[np.ndarray, "*any D"],
        taken: Callable[[Matrix], Matrix] | None = None,
        diagonal: bool = False,
    ) -> Float[np.ndarray, "*runs H size"]:
        """The same without vector blocks, in as few operations as there can be: forecasts spend their time here.

        Rows and force may have a leading axis of runs.
        """
        dim, wide, runs = self.dim, 1 + self.rank * self.dim, rows.shape[:-2]
        value, key = rows[..., :1], rows[..., 1:wide]
        keys, query = (value * key).reshape(*runs, -1, dim), rows[..., wide:].reshape(*runs, -1, dim)
        if taken is not None:
            force = force - taken(keys.swapaxes(-1, -2) @ query)
        felt, pull = (query * force, keys * force) if diagonal else (query @ force.swapaxes(-1, -2), keys @ force)
        moved, felt = np.empty(rows.shape), felt.reshape(key.shape)
        np.add.reduce(key * felt, axis=-1, out=moved[..., 0])
        np.multiply(value, felt, out=moved[..., 1:wide])
        moved[..., wide:] = pull.reshape(key.shape)
        return moved

    @no_type_check
    def moving(self, parts: Parts, felt: Float[np.ndarray, "H R D"], pull: Float[np.ndarray, "H R D"]) -> Rows:
        r"""The velocity from $\hat Gq_r$ (`felt`) and $\hat G'p_r$ (`pull`) of every head."""
        v, K, _, a, b, rest = parts
        value, key = (K * felt).sum(axis=(1, 2)), v[:, None, None] * felt
        tokens = self.weight * (b.transpose(0, 2, 1) @ felt)
        labels = self.weight * (felt @ a.transpose(0, 2, 1))
        return self.join(Parts(value, key, pull, tokens, labels, np.zeros_like(rest)))

    def jacobian(self, landscape: Landscape | SampleLandscape, rows: Rows, force: Matrix) -> Float[np.ndarray, "n n"]:
        r"""The derivative of the velocity of all heads together; symmetric, because the flow is a gradient.

        $$J = \frac{\partial^2\langle\sqrt OA, \hat G\rangle}{\partial y^2}\Big|_{\hat G}
          - \frac{\partial A}{\partial y}\,\mathcal Q\,\frac{\partial A}{\partial y}'.$$
        """
        n = len(rows) * self.size
        slopes = self.slopes(rows).reshape(n, self.dim, self.dim)
        return self.driven_jacobian(rows, force) - slopes.reshape(n, -1) @ landscape.curve(slopes).reshape(n, -1).T

    def resolvent(self, landscape: Landscape | SampleLandscape, rows: Rows, force: Matrix) -> Resolvent:
        r"""The inverse of $s - J$ for any shift $s$, by the parts of $J$ [`rosenbrock`].

        $J = B - SQS'$, with $B$ of every head by itself and $S$ as wide as $A$ has entries, so that no matrix over all
        heads is needed: $(s-J)^{-1} = P - PS\,(1 + QS'PS)^{-1}\,QS'P$ with $P = (s - B)^{-1}$.
        """
        heads, wide = len(rows), self.dim**2
        if heads * self.size <= max(wide, SMALL):
            return dense_resolvent(self.jacobian(landscape, rows, force))
        slopes, bends, eye = self.slopes(rows), self.bends(rows, force), np.eye(self.size)
        curved = landscape.curve(slopes).reshape(-1, wide).T  # Q S'
        slopes = slopes.reshape(heads, self.size, wide)

        @no_type_check
        def at(shift: float) -> Solve:
            apart = np.linalg.inv(shift * eye - bends)
            reach = (apart @ slopes).reshape(-1, wide)
            back = np.linalg.solve(np.eye(wide) + curved @ reach, curved)

            @no_type_check
            def solve(right: Vector) -> Vector:
                alone = (apart @ right.reshape(heads, self.size, 1)).ravel()
                return alone - reach @ (back @ alone)

            return solve

        return at

    @no_type_check
    def driven_jacobian(self, rows: Rows, force: Matrix) -> Float[np.ndarray, "n n"]:
        """The same in a force that does not change: every head by itself."""
        H = len(rows)
        apart = np.zeros((H, self.size, H, self.size))
        apart[np.arange(H), :, np.arange(H), :] = self.bends(rows, force)
        return apart.reshape(H * self.size, H * self.size)

    @no_type_check
    def slopes(self, rows: Rows) -> Float[np.ndarray, "H size D D"]:
        r"""$\partial(\sqrt OA)/\partial y$ for every number of every head."""
        parts, R, D, O, H = self.split(rows), self.rank, self.dim, self.channels, len(rows)
        v, K, Q, a, b, _ = parts
        slopes = np.zeros((H, self.size, D, D))
        slopes[:, 0] = K.transpose(0, 2, 1) @ Q
        wide, place = (
            R * D,
            lambda begin, shape: slopes[:, begin : begin + int(np.prod(shape))].reshape(H, *shape, D, D),
        )
        np.einsum("hrdde->hrde", place(1, (R, D)))[...] = v[:, None, None, None] * Q[:, :, None]
        np.einsum("hrdcd->hrdc", place(1 + wide, (R, D)))[...] = self.effective_keys(parts)[:, :, None]
        if O:
            pulled = self.weight * b.transpose(0, 2, 1) @ Q
            np.einsum("hodde->hode", place(1 + 2 * wide, (O, D)))[...] = pulled[:, :, None]
            place(1 + 2 * wide + O * D, (R, O))[...] = self.weight * np.einsum("hoc,hre->hroce", a, Q)
        return slopes

    @no_type_check
    def bends(self, rows: Rows, force: Matrix) -> Float[np.ndarray, "H size size"]:
        r"""Second derivatives of $\langle\sqrt OA, \hat G\rangle$ within every head."""
        v, K, Q, a, b, _ = self.split(rows)
        R, D, O, H = self.rank, self.dim, self.channels, len(rows)
        key = slice(1, 1 + R * D)
        query = slice(key.stop, key.stop + R * D)
        upper = np.zeros((H, self.size, self.size))
        felt = Q @ force.T
        upper[:, 0, key] = felt.reshape(H, -1)
        upper[:, 0, query] = (K @ force).reshape(H, -1)
        upper[:, key, query] = np.einsum("h,rs,de->hrdse", v, np.eye(R), force).reshape(H, R * D, R * D)
        if O:
            tokens, labels = slice(query.stop, query.stop + O * D), slice(query.stop + O * D, query.stop + O * (D + R))
            same = np.eye(O)
            upper[:, tokens, labels] = self.weight * np.einsum("hrd,op->hodrp", felt, same).reshape(H, O * D, R * O)
            upper[:, query, tokens] = self.weight * np.einsum("hro,de->hreod", b, force).reshape(H, R * D, O * D)
            pulled = np.einsum("hoe,rs->hreso", a @ force, np.eye(R)).reshape(H, R * D, R * O)
            upper[:, query, labels] = self.weight * pulled
        return upper + upper.transpose(0, 2, 1)


@dataclass(frozen=True)
class Flow:
    """The gradient flow of heads on a landscape; weight decay and finite steps are terms of its field.

    Landscape and rows may have a leading axis of runs; `force` is that of zero weights, unless another one is given.
    """

    landscape: Landscape | SampleLandscape
    layout: Layout
    blocks: Any = None  # an `AllBlocks`, where vector blocks are followed exactly
    decay: float = 0.0  # gamma, per t/tau
    step: float = 0.0  # h of descent, in t/tau; 0 for the flow

    @cached_property
    def opening(self) -> Float[np.ndarray, "*runs D D"]:
        """The force at zero."""
        return np.sqrt(self.landscape.outputs) * self.landscape.cross

    @no_type_check
    def downhill(self, rows: Rows, force: Matrix | None = None) -> Rows:
        """The velocity down the gradient of the loss."""
        force = self.opening if force is None else force
        if self.blocks is None:
            return self.layout.velocity(rows, force, self.landscape.curve)
        return self.layout.velocity(rows, force) + self.blocks.felt(rows, self.blocks.pull(rows))

    @no_type_check
    def velocity(self, rows: Rows, force: Matrix | None = None) -> Rows:
        """The velocity with decay and steps; `force` is without what the heads take away themselves."""
        return self.stepped(lambda rows: self.downhill(rows, force), rows)

    @no_type_check
    def stepped(self, downhill: Callable[[Rows], Rows], rows: Rows) -> Rows:
        """The field with decay that steps down a gradient follow [`descent-field`]."""
        field = (lambda rows: downhill(rows) - self.decay * rows) if self.decay else downhill
        velocity = field(rows)
        if self.step == 0:
            return velocity
        return velocity - self.step / 2 * along(lambda t: field(rows + t * velocity), rows, velocity)

    @no_type_check
    def passive(self, small: Rows, active: Rows, force: Matrix) -> Rows:
        """The velocity of heads that only feel what others leave of the force."""

        def velocity(small: Rows, active: Rows) -> Rows:
            if self.blocks is None:
                moved = self.layout.velocity(small, force - self.landscape.curve(self.layout.matrix(active)))
            else:
                moved = self.layout.velocity(small, force) + self.blocks.felt(small, self.blocks.pull(active))
            return moved - self.decay * small

        first = velocity(small, active)
        if self.step == 0:
            return first
        others = self.downhill(active, force) - self.decay * active
        later = lambda t: velocity(small + t * first, active + t * others)
        return first - self.step / 2 * along(later, active, others)

    def jacobian(self, rows: Rows, force: Matrix) -> Float[np.ndarray, "n n"]:
        r"""The derivative of the velocity; with steps $J - \tfrac h2(J^2 + J'f)$, $J'f$ that of $J$ along $f$."""

        def plain(rows: Rows) -> Float[np.ndarray, "n n"]:
            if self.blocks is None:
                J = self.layout.jacobian(self.landscape, rows, force - self.landscape.curve(self.layout.matrix(rows)))
            else:
                J = self.layout.driven_jacobian(rows, force) + self.blocks.jacobian(rows)
            return J - self.decay * np.eye(len(J))

        J = plain(rows)
        if self.step == 0:
            return J
        velocity = self.downhill(rows, force) - self.decay * rows
        return J - self.step / 2 * (J @ J + along(lambda t: plain(rows + t * velocity), rows, velocity))

    @no_type_check
    def resolvent(self, rows: Rows, force: Matrix) -> Resolvent:
        """The inverse of a shift minus the derivative of the velocity."""
        if self.blocks is not None or self.step > 0:
            return dense_resolvent(self.jacobian(rows, force))
        remains = force - self.landscape.curve(self.layout.matrix(rows))
        inverse = self.layout.resolvent(self.landscape, rows, remains)
        return (lambda shift: inverse(shift + self.decay)) if self.decay else inverse

    @no_type_check
    def loss(self, rows: Rows, A: Matrix) -> Float[np.ndarray, "*runs"]:
        """The loss on the data of all heads, whose matrix is A."""
        L = self.landscape
        if self.blocks is not None:
            return L.base + (self.blocks.cost(rows) - 2 * np.sum(A * self.opening)) / L.outputs
        return L.base + np.sum(A * (L.curve(A) - 2 * self.opening), axis=(-2, -1)) / L.outputs


@no_type_check
def along(function: Callable[[float], np.ndarray], state: Rows, velocity: Rows) -> np.ndarray:
    """The derivative of a function of time, at time 0, at which the state has this velocity."""
    fastest = np.abs(velocity).max((-2, -1), keepdims=True, initial=0.0)
    largest = np.abs(state).max((-2, -1), keepdims=True, initial=0.0)
    nudge = np.where(fastest > 0, NUDGE * largest / np.where(fastest > 0, fastest, 1.0), 1.0)
    return (function(nudge) - function(-nudge)) / (2 * nudge)
