r"""Minibatches: what the noise of $B$ sequences per step does to growth, to the floor and to drop times.

A step is $W \leftarrow W + h F_B$ with $F_B$ the mean of $F = \sum_o e_o\,\partial\hat y_o/\partial W$ over the batch,
$e$ the error of a sequence and $h$ the step in $t/\tau$. Averages over the law of the data are taken over `Draws`.

**Growth of merged attention** [`minibatch-growth`]. From small weights every head is multiplied by $1 + h z_B$ in a
step, $z = \sum_o y_o\beta_o'C_1x_q/\sqrt O|C_1|$, so that it grows at $E\log|1 + h z_B|/h$ per $t/\tau$, below
$\sqrt O|C_1| = Ez$.

**Floor** [`minibatch-floor`]. Near a minimum with the stiffness $K = E\,J'J$, $J = \partial\hat y/\partial W$, the
weights fluctuate by the covariance $C = E\,FF'$ of the force, mode by mode, and the loss stays above the minimum by

$$\frac hB\sum_i\frac{C_{ii}}{2 - h\kappa_i}\Big/O \approx \frac{h}{2B}\operatorname{tr}C\Big/O .$$

The stiffness of a batch fluctuates too, which adds $E\,(J'J - K)\Sigma(J'J - K)$ to $C$, to first order in $h/B$ with
the covariance $\Sigma_{ij} = \tfrac hB C_{ij}/(\kappa_i+\kappa_j)$ of the weights.

Batches that are cut from permutations of a sample add up to no noise over an epoch, which lowers the part of modes
slower than an epoch; the loss of a batch is recorded before the step that learns from it, which raises it.

**Drift** [`minibatch-drift`]. Noise also moves the weights along the valley of equal loss. The squares of the factors
of a head grow by $h/B$ times the noise $c_f = E|F_f|^2$ of each, and the flow moves them all alike, so the factor with
the least noise shrinks, $\tfrac{d}{dt}(|W_f|^2 - |W_g|^2) = \tfrac hB(c_f - c_g)$, and the floor falls.

**Drop times of separate key and query** [`minibatch-spread`]. Noise at the time $t$ moves the blow-up time $T^*$ by its
part along $\nabla T^*$ at the weights of that time, so $\operatorname{Var}T^* = \tfrac hB\int_0^{T^*}
\operatorname{Var}(\nabla T^*\cdot F)\,dt$. For a head along $e_1$ this is $h T^*\operatorname{Var}(z_{11})/Bg_1^2$.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int

from iclflow.config import Task
from iclflow.data.spectrum import covariances, root, task_vectors
from iclflow.errors import BadInput
from iclflow.theory.early_phase import blow_up_time, early_phase
from iclflow.theory.equations import Layout
from iclflow.theory.solve import Resolvent, differenced_resolvent, explicit_step, solve

__all__ = [
    "Draws",
    "Drop",
    "Growth",
    "Head",
    "Noise",
    "draw",
    "drop_spreads",
    "force_noise",
    "merged_growth",
    "noise_at",
]

CHUNK = 4096  # sequences at once
MOST = 1200  # weights whose noise is resolved mode by mode
SHUFFLES = 4  # of the draws into batches
FLAT = 1e-9  # stiffness, as a share of the largest, below which a direction costs no loss
END = 0.95  # share of a blow-up time up to which a head is followed
POINTS = 160  # on every plateau, at which the part of the force that counts is kept

Rows = Float[np.ndarray, "2 n"]


class Draws(NamedTuple):
    """Sequences as linear attention reads them: drawn from the law of a task, or those of a sample."""

    gram: Float[np.ndarray, "P E E"]  # the sum of z z' over tokens and query, divided as attention divides it
    query: Float[np.ndarray, "P D"]
    label: Float[np.ndarray, "P O"]

    @property
    def context(self) -> Float[np.ndarray, "P O D"]:
        r"""$\beta$."""
        dim = self.query.shape[1]
        return self.gram[:, dim:, :dim]


def draw(task: Task, count: int, seed: int = 0) -> Draws:
    r"""Sequences from the law of a task; the Gram matrix of the tokens is a Wishart matrix and drawn as such."""
    if task.icl_fraction < 1 or task.prefix_loss:
        raise BadInput("batch: has no theory with shared task vectors (icl_fraction) or the prefix loss")
    rng, dim, outputs, cov = np.random.default_rng([seed, 31]), task.dim, task.out_dim, covariances(task)
    width, tokens = dim + (outputs if task.label_noise > 0 else 0), root(cov.token)
    R = np.zeros((count, width, width))
    for row in range(min(width, task.context)):
        R[:, row, row] = np.sqrt(rng.chisquare(task.context - row, count))
        R[:, row, row + 1 :] = rng.standard_normal((count, width - row - 1))
    rows = np.zeros((count, width, dim + outputs))
    rows[:, :, :dim] = R[:, :, :dim] @ tokens
    if task.label_noise > 0:
        rows[:, :, dim:] = np.sqrt(task.label_noise) * R[:, :, dim:]
    if task.tasks is None:
        w = rng.standard_normal((count, outputs, dim)) @ root(cov.task)
    else:
        fixed = task_vectors(task)
        w = fixed[rng.integers(len(fixed), size=count)]
    rows[:, :, dim:] += rows[:, :, :dim] @ w.transpose(0, 2, 1)
    x = rng.standard_normal((count, dim)) @ tokens
    y = np.einsum("pod,pd->po", w, x)
    if task.query_noise:
        y = y + np.sqrt(task.label_noise) * rng.standard_normal(y.shape)
    gram = rows.transpose(0, 2, 1) @ rows
    gram[:, :dim, :dim] += x[:, :, None] * x[:, None, :]
    return Draws(gram / (task.context + (task.normalize == "tokens")), x, y)


def checked(batch: int, step: float) -> None:
    if batch < 1:
        raise BadInput(f"batch: {batch} must be at least 1")
    if not 0 < step < np.inf:
        raise BadInput(f"step: {step} must be a positive number")


# --- growth -----------------------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """Of merged attention: the rate per t/tau, and the standard deviation of the logarithm of one step."""

    rate: float
    spread: float


def merged_growth(draws: Draws, cross: Float[np.ndarray, "D D"], batch: int, step: float) -> Growth:
    r"""How fast small weights of merged attention grow [`minibatch-growth`]."""
    checked(batch, step)
    outputs, size = draws.label.shape[1], float(np.linalg.norm(cross))
    z = np.einsum("po,pod,de,pe->p", draws.label, draws.context, cross / size, draws.query, optimize=True)
    z, rng, rest, spread = z / np.sqrt(outputs), np.random.default_rng(0), [], []
    for _ in range(SHUFFLES):
        order = rng.permutation(len(z))
        z_batch = z[order[: len(z) // batch * batch]].reshape(-1, batch).mean(axis=1)
        grown = np.log(np.abs(1 + step * z_batch))
        rest.append(np.mean(grown - step * z_batch))
        spread.append(grown.std())
    return Growth(float(np.sqrt(outputs)) * size + float(np.mean(rest)) / step, float(np.mean(spread)))


# --- floor ------------------------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """One head: the label rows of its value, and a key-query matrix or keys and queries."""

    value: Float[np.ndarray, "O E"]
    key_query: Float[np.ndarray, "E D"] | None = None
    key: Float[np.ndarray, "R E"] | None = None
    query: Float[np.ndarray, "R D"] | None = None

    @property
    def matrix(self) -> Float[np.ndarray, "E D"]:
        """The key-query matrix, whichever way it is made."""
        if self.key_query is not None:
            return self.key_query
        assert self.key is not None
        assert self.query is not None
        return self.key.T @ self.query

    @property
    def factors(self) -> list[Float[np.ndarray, "rows columns"]]:
        """The arrays whose product the head is."""
        return [array for array in (self.value, self.key_query, self.key, self.query) if array is not None]

    def slopes(self, draws: Draws, label_only: bool) -> list[Float[np.ndarray, "P O n"]]:
        r"""$\partial\hat y_o$ by the entries of every factor; `label_only` leaves the vector blocks out."""
        (P, outputs), dim = draws.label.shape, draws.query.shape[1]
        kept, tokens = (slice(dim, None), slice(0, dim)) if label_only else (slice(None), slice(None))
        seen = np.einsum("pij,jd,pd->pi", draws.gram, self.matrix, draws.query, optimize=True)[:, kept]
        told = self.value @ draws.gram  # (P, O, E)
        by_value = np.einsum("oq,pe->poqe", np.eye(outputs), seen)
        if self.key is None or self.query is None:
            rest = [np.einsum("poe,pd->poed", told[:, :, tokens], draws.query)]
        else:
            scores = draws.query @ self.query.T
            rest = [
                np.einsum("poe,pr->pore", told[:, :, tokens], scores),
                np.einsum("por,pd->pord", told @ self.key.T, draws.query),
            ]
        return [array.reshape(P, outputs, -1) for array in (by_value, *rest)]


class Drift(NamedTuple):
    """Logarithms of squared factors under noise; the product of the factors of a head is held [`minibatch-drift`]."""

    push: Float[np.ndarray, "heads factors"]  # by which the squares grow, times the squares themselves

    @no_type_check
    def velocity(self, states: Float[np.ndarray, "*T n"]) -> Float[np.ndarray, "*T n"]:
        """The right-hand side."""
        y = np.exp(states.reshape(*states.shape[:-1], *self.push.shape))
        growth = self.push / y**2
        held = growth.sum(axis=-1, keepdims=True) / (1 / y).sum(axis=-1, keepdims=True)
        return (growth - held / y).reshape(states.shape)

    def resolvent(self, states: Float[np.ndarray, "*T n"]) -> Resolvent:
        """The inverse of a shift minus the derivative of the right-hand side."""
        return differenced_resolvent(self.velocity, states)

    def farthest(self, state: Float[np.ndarray, " n"]) -> float:
        """A step may be of any length."""
        return np.inf


@dataclass(frozen=True)
class Noise:
    """The noise of the force at some weights: its covariance and the stiffness, over the factors of all heads."""

    covariance: Float[np.ndarray, "n n"]  # C, of one sequence
    stiffness: Float[np.ndarray, "n n"]  # K
    shaken: Float[np.ndarray, "n n"]  # what the noise of the stiffness adds to C, over h/B
    owner: Int[np.ndarray, " n"]  # which factor of which head a weight belongs to, counted through
    squares: Float[np.ndarray, "heads factors"]  # |W_f|^2
    outputs: int

    def scales(self, batch: int, step: float, time: float) -> Float[np.ndarray, "heads factors"]:
        """What the factors have been multiplied by after `time` of drift along the valley [`minibatch-drift`]."""
        heads, count = self.squares.shape
        strength = np.bincount(self.owner, np.diag(self.covariance), heads * count).reshape(heads, count)
        if time <= 0 or heads == 0:
            return np.ones((heads, count))

        path = solve(Drift(step / batch * strength * self.squares), np.log(self.squares).ravel(), time)
        return np.exp((path.states[-1] - path.states[0]) / 2).reshape(heads, count)

    def floor(self, batch: int, step: float, time: float = 0.0, epoch: int | None = None) -> float:
        r"""How far the recorded loss stays above the minimum [`minibatch-floor`]."""
        checked(batch, step)
        if not len(self.squares):
            return 0.0
        scale = 1 / self.scales(batch, step, time).ravel()[self.owner]
        kappa, modes = np.linalg.eigh(scale[:, None] * self.stiffness * scale)
        covariance = scale[:, None] * (self.covariance + step / batch * self.shaken) * scale
        noise = np.einsum("ni,nm,mi->i", modes, covariance, modes, optimize=True) / batch
        stiff = kappa > FLAT * kappa[-1]
        kappa, noise = kappa[stiff], noise[stiff]
        if step * kappa[-1] >= 2:
            return np.inf
        if epoch is None or epoch < 2:
            return float(np.sum(step * noise / (2 - step * kappa))) / self.outputs
        return float(np.sum(reshuffled(step * kappa, epoch) * step * noise)) / self.outputs


def reshuffled(rate: Float[np.ndarray, " n"], epoch: int) -> Float[np.ndarray, " n"]:
    r"""The floor of modes with batches from permutations, over $h c$, for $h\kappa$ = `rate` [`minibatch-floor`].

    Within an epoch the noise of two batches has the correlation $-1/(n-1)$. With $a = 1 - h\kappa$ a mode that starts
    an epoch with the variance $s_0$ has after $j$ steps $a^{2j}s_0 + h^2c\,(\sum_i a^{2i} - [(\sum_i a^i)^2 - \sum_i
    a^{2i}]/(n-1))$, and the batch that comes next adds $2hc\sum_i a^i/(n-1)$ to its own loss.
    """
    a, j = 1 - rate[:, None], np.arange(epoch + 1)[None, :]
    powers = a ** np.arange(epoch)
    total = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(powers, axis=1)], axis=1)
    squares = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(powers**2, axis=1)], axis=1)
    grown = squares - (total**2 - squares) / (epoch - 1)
    start = grown[:, -1:] / (1 - a ** (2 * epoch))
    variance = a ** (2 * j) * start + grown  # over h^2 c
    return np.mean(rate[:, None] * variance + 2 * total / (epoch - 1), axis=1, where=j < epoch)


def noise_at(draws: Draws, heads: list[Head], label_only: bool) -> Noise | None:
    """The noise at a fixed point."""
    first = Draws(*(array[:1] for array in draws))
    sizes = [slope.shape[2] for head in heads for slope in head.slopes(first, label_only)]
    if sum(sizes) > MOST:
        return None
    owner, n, P = np.repeat(np.arange(len(sizes)), sizes), sum(sizes), len(draws.query)
    C, K, shaken = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    if not heads:
        return Noise(C, K, shaken, owner, np.zeros((0, 0)), draws.label.shape[1])
    chunks = [Draws(*(array[begin : begin + CHUNK] for array in draws)) for begin in range(0, P, CHUNK)]
    for part in chunks:
        J = np.concatenate([slope for head in heads for slope in head.slopes(part, label_only)], axis=2)
        answer = sum(head.value @ part.gram @ head.matrix for head in heads)
        force = np.einsum("po,pon->pn", part.label - np.einsum("pod,pd->po", answer, part.query), J)
        rows = J.reshape(-1, n)
        C += force.T @ force / P
        K += rows.T @ rows / P
    kappa, modes = np.linalg.eigh(K)
    stiff = kappa > FLAT * kappa[-1]
    inverse = np.where(np.outer(stiff, stiff), 1 / np.maximum(kappa[:, None] + kappa, FLAT * kappa[-1]), 0.0)
    spread = modes @ (modes.T @ C @ modes * inverse) @ modes.T  # the covariance of the weights over h/B
    for part in chunks:
        J = np.concatenate([slope for head in heads for slope in head.slopes(part, label_only)], axis=2)
        pairs = J @ spread @ J.transpose(0, 2, 1)
        shaken += (pairs @ J).reshape(-1, n).T @ J.reshape(-1, n) / P
    squares = np.array([[np.sum(factor**2) for factor in head.factors] for head in heads])
    return Noise(C, K, shaken - K @ spread @ K, owner, squares, draws.label.shape[1])


# --- drop times of separate key and query -----------------------------------------------------------------------------


def force_noise(draws: Draws, error: Float[np.ndarray, "P O"], d: Float[np.ndarray, "D D"]) -> np.ndarray:
    r"""Covariance of the force $Z = \sum_o e_o\beta_ox_q'/\sqrt O$ of one sequence, over pairs of directions `d`."""
    outputs = error.shape[1]
    left = np.einsum("po,poi,id->pd", error, draws.context, d, optimize=True) / np.sqrt(outputs)
    Z = np.einsum("pd,pe->pde", left, draws.query @ d).reshape(len(error), -1)
    return np.cov(Z.T)


class Drop(NamedTuple):
    """A drop of separate key and query of rank one: who learns what when, and the force on heads before it."""

    head: int
    time: float
    drive: Float[np.ndarray, " D"]  # of the directions that are not learned yet
    covariance: Float[np.ndarray, "DD DD"]  # of the force of one sequence before the drop, over pairs of directions


def drop_spreads(
    v: Float[np.ndarray, " H"],
    k: Float[np.ndarray, "H D"],
    q: Float[np.ndarray, "H D"],
    drops: list[Drop],
    batch: int,
    step: float,
) -> Float[np.ndarray, " m"]:
    r"""Standard deviations of drop times of separate key and query, from all weights of a head [`minibatch-spread`].

    A head that learns later waits through all plateaus before. A drop that is late by one unit of time moves it by the
    difference of the forces before and behind, so its own noise and that of the earlier drops add up, batch by batch.
    """
    checked(batch, step)
    grid = [np.linspace(a, b, POINTS) for a, b in pairwise([0.0, *(drop.time for drop in drops)])]
    felt: list[list[np.ndarray] | None] = []  # for every drop and plateau before it: the part of the force that counts
    spreads = []
    for m, drop in enumerate(drops):
        own = waiting(np.concatenate([[v[drop.head]], k[drop.head], q[drop.head]]), drops[: m + 1], grid)
        if own is None or any(felt[j] is None for j in range(m) if own.moved[j] != 0):
            felt.append(None)
            spreads.append(np.nan)
            continue
        parts = own.felt
        for j in range(m):
            earlier = felt[j]
            if earlier is not None:
                parts = [part + own.moved[j] * earlier[i] if i <= j else part for i, part in enumerate(parts)]
        felt.append(parts)
        total = sum(
            np.trapezoid(np.einsum("ti,ij,tj->t", part, drops[i].covariance, part, optimize=True), grid[i])
            for i, part in enumerate(parts)
        )
        spreads.append(float(np.sqrt(step / batch * total)))
    return np.array(spreads)


class Wait(NamedTuple):
    """A head on its plateaus: what it feels of the force, and by how much a late earlier drop moves its own."""

    felt: list[Float[np.ndarray, "T DD"]]
    moved: list[float]


def waiting(y: Float[np.ndarray, " n"], drops: list[Drop], grid: list[np.ndarray]) -> Wait | None:
    """One head (v, k, q) followed forwards through its plateaus, and the slope of its blow-up time backwards."""
    layout, ends, clocks = Layout(rank=1, dim=len(y) // 2, channels=0, weight=1.0), [], []
    parts = lambda y: (float(y[0]), y[None, 1 : layout.dim + 1], y[None, layout.dim + 1 :])
    for drop, times in zip(drops, grid, strict=False):
        path, last = early_phase(*parts(y), drop.drive), drop is drops[-1]
        if not np.isfinite(path.time) or (not last and np.ptp(times) >= path.time):
            return None
        since = np.linspace(0, path.time if last else np.ptp(times), POINTS)
        clocks.append(np.minimum(since, END * path.time) if last else since)  # at its end it feels what it felt before
        y = np.concatenate([np.ravel(part) for part in path.weights(float(clocks[-1][-1]))])
        ends.append(y)
    size, late = float(np.abs(y).max()), lambda y: blow_up_time(*parts(y), drops[-1].drive)
    slope = np.array([late(y + n) - late(y - n) for n in 1e-4 * size * np.eye(len(y))]) / (2e-4 * size)
    unit = float(np.abs(slope).max()) / size  # in which it is about as large as the head
    slope, felt, moved = slope / unit, [], []
    for i in reversed(range(len(drops))):

        def backwards(state: Rows, drive: Float[np.ndarray, " D"] = drops[i].drive) -> Rows:
            """Head y and slope b against time; f is quadratic, so its derivative times b is f(y + b) - f(y) - f(b)."""
            alone = layout.label_velocity(state, np.diag(drive))
            both = layout.label_velocity(state.sum(0, keepdims=True), np.diag(drive))
            return np.stack([-alone[0], both[0] - alone.sum(0)])

        if i < len(drops) - 1:
            less = layout.label_velocity(ends[i][None], np.diag(drops[i].drive - drops[i + 1].drive))
            moved.append(unit * float(slope @ less[0]))
        states = [np.stack([ends[i], slope])]
        for h in np.diff(clocks[i])[::-1]:
            states.append(explicit_step(backwards, states[-1], backwards(states[-1]), float(h))[0])
        heads, slopes = np.stack(states[::-1], axis=1)
        felt.append(unit * np.einsum("ts,tsij->tij", slopes, layout.slopes(heads)).reshape(POINTS, -1))
        slope = slopes[0]
    return Wait(felt[::-1], moved[::-1])
