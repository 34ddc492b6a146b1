r"""More than one layer: the loss of the label blocks, its plateaus, and who learns what when.

With the tokens fixed every layer leaves residual labels, $w \leftarrow (I - A_l'\hat\Lambda)\,w$, $A_l = \sum_h
v_{lh}k_{lh}q_{lh}'$ and $\hat\Lambda$ the covariance of the context. The loss, and the force on layer $l$, are
[`depth-loss`]

$$L = E\operatorname{tr}\Lambda M\Omega M',\quad M = \prod_l (I - A_l'\hat\Lambda),\qquad
  G_l = -\tfrac12\frac{\partial L}{\partial A_l} = E\,\hat\Lambda P_l\,\Omega\,M'\Lambda R_l,$$

$P_l$ the layers before and $R_l$ the layers behind $l$. The expectation runs over the Wishart law of $\hat\Lambda$,
represented by contexts that are spread evenly over it; $N \to \infty$ is the single context $\hat\Lambda = \Lambda$.

At zero every layer feels the same force, so all $LH$ heads race. On a plateau the heads that have learned drift towards
the best state of their ranks, and the free heads of layer $l$ grow in the force $G_l$ that they leave, in closed form
(`theory.early_phase`) as long as it changes little. With finite contexts the forces do not vanish once every direction
is learned: other layers learn the directions again, with drives of order $1/N$, down a second staircase. For white
tokens and one layer that holds everything the drive of the others is [`relearning`]

$$\lambda^2\Big[\frac{M_3}{(1+x)^2} - 1\Big],\qquad x = \frac{D+1}{N},\quad M_3 = 1 + 3x + \frac{D^2+3D+4}{N^2}.$$

Not derived: vector blocks (the token stream stays as it is here), rank above one, merged key and query, label noise,
and two heads that leave a plateau nearly at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory.early_phase import EarlyPhase, early_phase
from iclflow.theory.equations import Layout
from iclflow.theory.single_mode import Growth

__all__ = ["Contexts", "Ladder", "Rung", "best_state", "best_steps", "contexts", "ladder", "lowest_loss", "white_drive"]

DRAWS = 512  # contexts that are enough for times and levels, to about one per cent
STRETCHES, LONGER, AT_ONCE = 60, 1.6, 8  # of a plateau: how many, growing how fast, integrated how many at once
CLOSE = 0.02  # of a wait: a runner-up that is later by less makes the times behind uncertain
NEGLIGIBLE, NOTHING = 1e-3, 1e-6  # of the loss, and of the loss at zero: a drop that saves less is not counted

Matrix = Float[np.ndarray, "D D"]
Layers = Float[np.ndarray, "L D D"]
Vector = Float[np.ndarray, " D"]
Stack = Float[np.ndarray, "G D D"]  # a matrix for every context
Factors = list[tuple[Float[np.ndarray, "D _"], Float[np.ndarray, "D _"]]]  # of every layer: left and right, of rank n


@dataclass(frozen=True)
class Contexts:
    r"""The loss over many $\hat\Lambda$, in the eigenbasis of $\Lambda$; `loops` counts passes through the layers."""

    covariance: Float[np.ndarray, "G D D"]
    token: Vector  # eigenvalues of Lambda
    task: Vector  # eigenvalues of Omega
    loops: int = 1

    @property
    def dim(self) -> int:
        return len(self.token)

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
            forces[layer] = rows(left) @ right.reshape(-1, self.dim) / len(right)
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
        mean = lambda left, right: left.reshape(len(left), -1).T @ right.reshape(len(right), -1) / len(left)
        found = np.zeros((len(A), dim, dim, len(A), dim, dim))
        for p, q in np.ndindex(count, count):
            X, Y = (reached[p] * self.task) @ reached[q].transpose(0, 2, 1), behind[q].transpose(0, 2, 1) * self.token
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
        r"""The loss, $I - A_l'\hat\Lambda$ of every pass, the products $P_l$ before each, and $M\Omega$."""
        steps = np.eye(self.dim) - A.transpose(0, 2, 1)[:, None] @ self.covariance
        steps = np.tile(steps, (self.loops, 1, 1, 1))
        before = [np.broadcast_to(np.eye(self.dim), self.covariance.shape)]
        for step in steps:
            before.append(step @ before[-1])
        weighted = before[-1] * self.task
        loss = np.sum((weighted * before[-1]).sum(axis=(0, 2)) * self.token) / len(weighted)
        return float(loss), steps, before, weighted

    def strength(self, A: Layers, layer: int, left: Vector, right: Vector, drive: float) -> float:
        r"""Where the loss is lowest along $\ell r'$ in one layer: $g/m$, in closed form where no loop returns to it."""
        moved = A.copy()

        def along(s: float) -> float:
            moved[layer] = A[layer] + s * np.outer(left, right)
            return self.loss(moved)

        if self.loops == 1:
            return drive / (along(1.0) - along(0.0) + 2 * drive)
        from scipy.optimize import minimize_scalar

        return float(minimize_scalar(along, bounds=(0, 2 / self.token.min()), method="bounded").x)


def contexts(task: Task, draws: int = 4096, *, loops: int = 1, infinite: bool = False) -> Contexts:
    r"""Contexts that represent the law of $\hat\Lambda$ for a task."""
    cov = covariances(task)
    omega = cov.basis.T @ cov.task @ cov.basis
    if np.abs(omega - np.diag(np.diag(omega))).max() > 1e-10 * np.abs(omega).max():
        raise BadInput("task_spectrum: must share its eigenvectors with the tokens in the theory of depth")
    if task.out_dim > 1 or task.label_noise > 0 or task.icl_fraction < 1:
        raise BadInput("layers: the theory of depth is for one output without noise, every sequence with its own task")
    if cov.eigenvalues.min() <= 0:
        raise BadInput("spectrum: must have positive eigenvalues in the theory of depth")
    roots = np.sqrt(cov.eigenvalues)
    scatter = np.eye(task.dim)[None] if infinite else wishart(task.dim, task.context, draws)
    return Contexts(roots[:, None] * scatter * roots, cov.eigenvalues, np.diag(omega).copy(), loops)


def wishart(dim: int, context: int, draws: int) -> Float[np.ndarray, "G D D"]:
    """Sample covariances of standard normal tokens, spread evenly over their law."""
    from scipy.special import gammaincinv, ndtri
    from scipy.stats import qmc

    R = np.zeros((draws, min(dim, context), dim))
    columns = iter(qmc.Sobol(dim * (dim + 1) // 2, seed=0).random_base2(max(draws - 1, 1).bit_length())[:draws].T)
    for row in range(R.shape[1]):
        R[:, row, row] = np.sqrt(2 * gammaincinv((context - row) / 2, next(columns)))
        for col in range(row + 1, dim):
            R[:, row, col] = ndtri(next(columns))
    return R.transpose(0, 2, 1) @ R / context


def white_drive(dim: int, context: int) -> float:
    r"""Relearning drive over $\lambda^2$ for white tokens where one layer holds all directions [`relearning`].

    >>> round(white_drive(3, 31), 4)
    0.1061
    """
    x = (dim + 1) / context
    third = 1 + 3 * x + (dim**2 + 3 * dim + 4) / context**2
    return third / (1 + x) ** 2 - 1


def best_state(source: Contexts, start: Factors) -> tuple[float, Layers, Factors]:
    """The best state in which every layer keeps its rank, found from a start by a quasi-Newton search."""
    from scipy.optimize import minimize

    shapes = [factor.shape for pair in start for factor in pair]
    cuts = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1]

    def unpack(x: Float[np.ndarray, " n"]) -> tuple[Layers, Factors]:
        flat = [piece.reshape(shape) for piece, shape in zip(np.split(x, cuts), shapes, strict=True)]
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        return np.stack([left @ right.T for left, right in pairs]), pairs

    def value_and_slope(x: Float[np.ndarray, " n"]) -> tuple[float, Float[np.ndarray, " n"]]:
        A, pairs = unpack(x)
        loss, forces = source.loss_and_forces(A)
        slopes = [part for (left, right), G in zip(pairs, forces, strict=True) for part in (G @ right, G.T @ left)]
        return loss, np.concatenate([-2 * slope.ravel() for slope in slopes])

    begin = np.concatenate([factor.ravel() for pair in start for factor in pair])
    options = {"gtol": 1e-8, "maxiter": 2000}
    end = minimize(value_and_slope, begin, jac=True, method="BFGS", options=options).x if len(begin) else begin
    A, pairs = unpack(end)
    return source.loss(A), A, pairs


def best_steps(task: Task, layers: int, looped: bool = False, draws: int = 4096) -> tuple[float, Layers]:
    """The best preconditioned gradient descent in context with so many steps.

    The matrices of separate layers are diagonal up to the noise of the contexts. That of looped layers is not: with a
    part that turns, equal steps cancel more of the residual than without.
    """
    source = contexts(task, draws, loops=layers if looped else 1)
    inverse = np.diag(1 / np.sqrt(source.token * (1 + task.dim / task.context)))
    spread = np.linspace(0.8, 1.25, layers) if layers > 1 and not looped else [1.0]
    loss, A, _ = best_state(source, [(s * inverse, inverse) for s in spread])
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
    return best_steps(task, layers, looped)[0]


@dataclass(frozen=True)
class Rung:
    """One drop: who learns what when, and the level that it leads to."""

    layer: int
    head: int
    direction: int
    origin: float  # blow-up time T*
    growth: Growth
    level: float  # of the plateau behind it, when it ends
    matrices: Layers  # of all layers at that time, in the eigenbasis

    @property
    def time(self) -> float:
        """When half of the drop is done."""
        return self.origin + self.growth.midpoint_age


@dataclass(frozen=True)
class Ladder:
    """The whole staircase of a network with several layers."""

    base: float
    rungs: tuple[Rung, ...]
    close: bool  # whether two heads were about to leave at once, so that the times behind are uncertain

    @property
    def levels(self) -> Float[np.ndarray, " levels"]:
        """The loss of every plateau; where heads leave nearly at once, the level between them is that before."""
        return np.minimum.accumulate([self.base, *(rung.level for rung in self.rungs)])

    @property
    def drop_times(self) -> Float[np.ndarray, " m"]:
        """When half of each drop is done; of drops that overlap, the later head waits for the earlier one."""
        return np.maximum.accumulate([rung.time for rung in self.rungs] or [0.0])[: len(self.rungs)]

    def loss(self, time: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
        """The loss; every drop has the shape of a single direction's between its two levels."""
        time = np.asarray(time, dtype=float)
        saved = -np.diff(self.levels)
        fallen = (s * rung.growth.fallen_at(time - rung.origin) for s, rung in zip(saved, self.rungs, strict=True))
        return self.base - sum(fallen, start=np.zeros(time.shape))


@dataclass(frozen=True)
class Force:
    r"""The force on the free heads of one layer, $G = \sum_d g_d\,\ell_dr_d'$."""

    left: Matrix  # columns l_d
    drive: Vector
    right: Matrix  # columns r_d

    @staticmethod
    def of(G: Matrix) -> "Force":
        left, drive, right = np.linalg.svd(G)
        return Force(left, drive, right.T)


@dataclass
class Head:
    """One head; key and query in the eigenbasis."""

    layer: int
    head: int
    value: float
    key: Vector
    query: Vector

    def path(self, force: Force) -> EarlyPhase:
        return early_phase(self.value, (self.key @ force.left)[None], (self.query @ force.right)[None], force.drive)

    def move(self, force: Force, path: EarlyPhase, time: float) -> None:
        self.value, key, query = path.weights(time)
        self.key, self.query = force.left @ key[0], force.right @ query[0]

    def leads(self, force: Force, sign: int) -> int:
        """The direction whose growing half is the first to reach size one."""
        size = np.abs(self.key @ force.left + sign * (self.query @ force.right)) / 2
        grows = (size > 0) & (force.drive > 0)
        waits = np.full(len(size), np.inf)
        waits[grows] = np.maximum(-np.log(size[grows]), 0.0) / force.drive[grows]
        return int(np.argmin(waits))  # of those that are there already, the one with the largest drive


@dataclass(frozen=True)
class Learned:
    """The heads that have learned; they feel each other, and drift towards the best state of their ranks."""

    source: Contexts
    rows: int  # layers with weights of their own
    heads: tuple[Head, ...] = ()

    @property
    def flat(self) -> Float[np.ndarray, " n"]:
        return np.concatenate([np.zeros(0), *(np.r_[one.value, one.key, one.query] for one in self.heads)])

    def parts(self, flat: Float[np.ndarray, " n"]) -> list[Float[np.ndarray, "m _"]]:
        return np.split(flat.reshape(len(self.heads), 1 + 2 * self.source.dim), [1, 1 + self.source.dim], axis=1)

    def matrices(self, flat: Float[np.ndarray, " n"]) -> Layers:
        A = np.zeros((self.rows, self.source.dim, self.source.dim))
        for one, v, k, q in zip(self.heads, *self.parts(flat), strict=True):
            A[one.layer] += v * np.outer(k, q)
        return A

    @property
    def factors(self) -> Factors:
        """The matrix of every layer as two factors."""
        columns = lambda arrays: np.stack([*arrays, np.zeros(self.source.dim)], axis=1)[:, :-1]
        by_layer = [[one for one in self.heads if one.layer == row] for row in range(self.rows)]
        return [(columns([o.value * o.key for o in own]), columns([o.query for o in own])) for own in by_layer]

    def velocity(self, _: float, flat: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        forces, (v, k, q) = self.source.loss_and_forces(self.matrices(flat))[1], self.parts(flat)
        G = forces[[one.layer for one in self.heads]]
        push, pull = np.einsum("mab,mb->ma", G, q), np.einsum("mab,ma->mb", G, k)
        return np.concatenate([np.sum(k * push, axis=1, keepdims=True), v * push, v * pull], axis=1).ravel()

    def jacobian(self, _: float, flat: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
        """The derivative of the velocity."""
        rows, A = flat.reshape(len(self.heads), -1), self.matrices(flat)
        layout, layers = Layout(1, self.source.dim, 0, 1.0), [one.layer for one in self.heads]
        forces, taken = self.source.loss_and_forces(A)[1], self.source.stiffness(A)[layers][:, :, :, layers]
        slopes = layout.slopes(rows)
        found = -np.einsum("miab,mabncd,njcd->minj", slopes, taken, slopes, optimize=True)
        for m, layer in enumerate(layers):
            found[m, :, m] += layout.bends(rows[m : m + 1], forces[layer])[0]
        return found.reshape(len(flat), len(flat))

    def after(self, times: Float[np.ndarray, " T"]) -> list[Float[np.ndarray, " n"]]:
        """The weights at some times from now on."""
        from scipy.integrate import solve_ivp

        course = solve_ivp(
            self.velocity, (0, times[-1]), self.flat, "LSODA", t_eval=times, jac=self.jacobian, rtol=1e-4, atol=1e-6
        )
        return list(course.y.T)

    def stretches(self, step: float) -> list[tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]]:
        """The weights in the middle and at the end of the next stretches of time, each longer than the one before."""
        if not self.heads:
            return [(self.flat, self.flat)]
        ends = np.cumsum(step * LONGER ** np.arange(AT_ONCE))
        starts = np.r_[0, ends[:-1]]
        both = np.c_[(starts + ends) / 2, ends].ravel()
        weights = self.after(both)
        return list(zip(weights[::2], weights[1::2], strict=True))

    def at(self, flat: Float[np.ndarray, " n"], *more: Head) -> "Learned":
        """The same heads with other weights, and more heads."""
        moved = (
            Head(one.layer, one.head, float(v[0]), k, q)
            for one, v, k, q in zip(self.heads, *self.parts(flat), strict=True)
        )
        return Learned(self.source, self.rows, (*moved, *more))


def ladder(
    source: Contexts,
    value: Float[np.ndarray, "L H"],
    key: Float[np.ndarray, "L H D"],
    query: Float[np.ndarray, "L H D"],
    drops: int | None = None,
) -> Ladder:
    r"""Predict the staircase from small initial weights of rank-one heads, in the paper's units [`ladder`].

    The first head to blow up in the force of its plateau learns the direction that leads in it; it joins the learned
    heads at the time $T^* - 1/gc$, when the direction is in effect switched off for all others. On a plateau the
    learned heads drift; free heads grow in closed form through stretches of time in which the force changes little.
    """
    rows, heads = value.shape
    free = [Head(l, h, float(value[l, h]), key[l, h], query[l, h]) for l in range(rows) for h in range(heads)]
    learned, base = Learned(source, rows), source.loss(np.zeros((rows, source.dim, source.dim)))
    now, rungs, close = 0.0, list[Rung](), False
    while free and len(rungs) != drops:
        event = next_event(learned, free, now, rungs[-1].growth if rungs else None)
        if event is None:
            break
        rung, learned, others, until = event
        if rungs:
            A = learned.matrices(learned.flat)
            rungs[-1] = replace(rungs[-1], level=source.loss(A), matrices=A)
        winner = next(one for one in free if (one.layer, one.head) == (rung.layer, rung.head))
        free.remove(winner)
        close, now = close or others < CLOSE * (rung.origin - now), until
        learned = learned.at(learned.flat, winner)
        rungs.append(rung)
    if rungs:
        level, A, _ = best_state(source, learned.factors)
        rungs[-1] = replace(rungs[-1], level=level, matrices=A)
    return Ladder(base, tuple(rungs), close)


def worthwhile(source: Contexts, A: Layers, layer: int, force: Force) -> bool:
    """Whether the leading direction of a force still saves loss, with one more head in its layer."""
    drive = float(force.drive[0])
    saved = drive * source.strength(A, layer, force.left[:, 0], force.right[:, 0], drive)
    return saved > max(NEGLIGIBLE * source.loss(A), NOTHING * float(source.token @ source.task))


def next_event(
    learned: Learned, free: list[Head], now: float, last: Growth | None
) -> tuple[Rung, Learned, float, float] | None:
    """The next drop, the learned heads by then, by how much the runner-up is later, and when the direction is gone."""
    source, step = learned.source, np.inf if last is None else 2 / (last.drive * last.final_value)
    ahead: list[tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]] = []
    for _ in range(STRETCHES):
        if not ahead:
            ahead = learned.stretches(step)
        middle, end = ahead.pop(0)
        A = learned.matrices(middle)
        forces = [Force.of(G) for G in source.loss_and_forces(A)[1]]
        if not any(worthwhile(source, A, layer, force) for layer, force in enumerate(forces)):
            return None
        paths = [one.path(forces[one.layer]) for one in free]
        times = np.array([path.time for path in paths])
        first = int(np.argmin(times))
        winner, path, force = free[first], paths[first], forces[free[first].layer]
        if times[first] > step:
            for one, its_path in zip(free, paths, strict=True):
                one.move(forces[one.layer], its_path, step)
            learned, now, step = learned.at(end), now + step, LONGER * step
            continue
        if not np.isfinite(times[first]):
            return None
        slot = winner.leads(force, path.sign)
        left, drive, right = force.left[:, slot], float(force.drive[slot]), force.right[:, slot]
        strength = source.strength(A, winner.layer, left, right, drive)
        growth, direction = Growth(drive, drive / strength), int(np.argmax(np.abs(left * right)))
        wait = max(0.0, path.time + growth.switch_age)
        for one, its_path in zip(free, paths, strict=True):
            one.move(forces[one.layer], its_path, wait)
        rung = Rung(winner.layer, winner.head, direction, now + path.time, growth, np.nan, A)
        others = float(np.partition(times, 1)[1] - times[first]) if len(times) > 1 else np.inf
        gone = learned.at(learned.after(np.array([wait]))[0]) if wait > 0 and learned.heads else learned
        return rung, gone, others, now + wait
    return None
