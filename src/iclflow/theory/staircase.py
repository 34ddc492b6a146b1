r"""The complete training curve of separate attention, from the initial weights alone.

Training is a race between heads. On a plateau every free head follows its own integrable path
(`theory.early_phase`); the one with the smallest blow-up time $T^*$ wins, takes the direction in which it
has grown most, and saturates along the scalar equation (`theory.single_mode`) with matched asymptotics
[`staircase`]

$$t = t_0 + T^* + \frac{F(x)}{g c},\qquad L(t) = L_0 - \sum_d T_d^2\,(2X_d - X_d^2),\quad X_d = x_d^3 .$$

The others have felt the drive of that direction for an effective time $T^* - 1/gc$ and continue without it. A
head of rank $R > 1$ learns further directions at once, waiting only $\ln(1/\text{init})/(vg)$, because its
value weight is large already [`within-head`]. A full head may turn to a better direction
(`theory.rotation`).

What is left to learn on a plateau is in `theory.stages`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from iclflow.errors import BadInput
from iclflow.theory.decay import decayed_time, head_value, stretched_time
from iclflow.theory.early_phase import EarlyPhase, early_phases, grow, weights_after
from iclflow.theory.rotation import Rotation, better, residual_amplitude, rotation, rotation_rate
from iclflow.theory.separate import check_shapes
from iclflow.theory.single_mode import Growth
from iclflow.theory.stages import DirectionStage, Source, Stage, opening

__all__ = ["Event", "Staircase", "staircase"]

Parts = Float[np.ndarray, "R D"]
Vector = Float[np.ndarray, " D"]
Times = Float[np.ndarray, " T"]


@dataclass(frozen=True)
class Event:
    """One drop of the loss: a head learns a direction, alone or beside others, or turns to it."""

    kind: Literal["new-head", "within-head", "rotation"]
    head: int
    direction: int  # its index in `Directions`, or the number of directions learned before it
    origin: float  # t/tau at which the growth has age 0
    growth: Growth | Rotation
    saved: float

    @property
    def time(self) -> float:
        """t/tau at which half of the drop is done."""
        return self.origin + self.growth.midpoint_age

    @property
    def switch(self) -> float:
        """t/tau until which the other heads feel the drive of this direction [`switch`]."""
        return self.origin + self.growth.switch_age


@dataclass(frozen=True)
class Staircase:
    """The predicted training: its events in order, and loss and value weights at any time t/tau."""

    base: float
    events: tuple[Event, ...]
    paths: tuple[tuple[tuple[float, EarlyPhase], ...], ...]  # per head: its starts and paths while it was free
    signs: tuple[int, ...]  # of the grown value weights, 0 for heads that stay small

    @property
    def drop_times(self) -> Float[np.ndarray, " n"]:
        """Time t/tau at which half of each drop is done."""
        return np.array([event.time for event in self.events])

    @property
    def heads(self) -> Int[np.ndarray, " n"]:
        """The head of each event."""
        return np.array([event.head for event in self.events], dtype=int)

    @property
    def directions(self) -> Int[np.ndarray, " n"]:
        """The direction of each event."""
        return np.array([event.direction for event in self.events], dtype=int)

    @property
    def levels(self) -> Float[np.ndarray, " levels"]:
        """The loss on every plateau, before the first event and after each."""
        return self.base - np.concatenate([[0.0], np.cumsum([event.saved for event in self.events])])

    @property
    def waits(self) -> Float[np.ndarray, " n"]:
        """Time from one drop to the next."""
        return np.diff(self.drop_times, prepend=0.0)

    def loss(self, time: Times) -> Times:
        r"""$L(t)$ [`staircase`]."""
        time = np.asarray(time, dtype=float)
        loss = np.full(time.shape, self.base)
        for event in self.events:
            loss -= event.saved * event.growth.fallen_at(time - event.origin)
        return loss

    def values(self, time: Times) -> Float[np.ndarray, "T H"]:
        """The value weight of every head, with its sign."""
        time = np.asarray(time, dtype=float)
        return np.stack([self.value(h, time) for h in range(len(self.paths))], axis=1)

    def value(self, head: int, time: Times) -> Times:
        """The value weight of one head, with its sign."""
        values, pieces = np.zeros(time.shape), self.paths[head]
        ends = [start for start, _ in pieces[1:]] + [np.inf]
        own = [event for event in self.events if event.head == head]
        for (start, path), end in zip(pieces, ends, strict=True):
            now = (time >= start) & (time < end)
            if not now.any():
                continue
            if own and end == np.inf:
                values[now] = self.grown(own, path, start, time[now], self.signs[head])
            else:
                values[now] = path.value(time[now] - start)
        return values

    @staticmethod
    def grown(own: list[Event], path: EarlyPhase, start: float, time: Times, sign: int) -> Times:
        """Early path and saturating growth, multiplied and divided by what they share, $1/g(T^* - t)$."""
        grown = np.cbrt(sum(e.growth.gained(time - e.origin) for e in own))
        first = own[0].growth
        assert isinstance(first, Growth)  # a head must grow before it can turn
        g, c = first.drive, first.final_value
        left = own[0].origin - time
        early = left * g * c > 1e-3
        values = sign * grown
        values[early] = grown[early] * path.value(time[early] - start) * g * left[early]
        return values


@dataclass
class Head:
    """A head in the race; key and query in the tokens' coordinates, without the parts that have saturated."""

    value: float
    key: Parts
    query: Parts
    unused: Float[np.ndarray, "R R"]  # projector on the ranks that hold nothing
    sign: int = 0  # of the value weight, once it has grown
    cube: float = 0.0  # v^3 of the grown head without decay: the sum of the strengths that it holds
    soft: float = 0.0  # the sum of 1/m over them
    held: list[int] = field(default_factory=list)
    leaning: dict[int, float] = field(default_factory=dict)  # parts along directions it may turn to
    paths: list[tuple[float, EarlyPhase]] = field(default_factory=list)
    orbits: dict[tuple[int, ...], Rotation] = field(default_factory=dict)  # turns that it has considered

    @property
    def free(self) -> bool:
        return not self.held

    @property
    def full(self) -> bool:
        return len(self.held) == len(self.key)

    def parts(self, stage: Stage) -> tuple[Parts, Parts]:
        return self.key @ stage.left, self.query @ stage.right

    def set_parts(self, stage: Stage, k: Parts, q: Parts) -> None:
        self.key, self.query = k @ stage.left.T, q @ stage.right.T

    def extend(self, stage: Stage, drive: Vector, eta: float) -> None:
        r"""Let the unused ranks of a grown head grow by $\eta$; none passes full strength."""
        k, q = self.parts(stage)
        k, q = grow(self.unused @ k, self.sign * self.unused @ q, drive, eta)
        full = np.cbrt(np.where(drive > 0, drive / stage.curvature, np.inf))
        limit = np.minimum(1.0, full / np.maximum(np.linalg.norm(k, axis=0), 1e-300))
        self.set_parts(stage, limit * k, limit * self.sign * q)

    def amplitude(self, stage: Stage, sign: int) -> Parts:
        """The growing half of key and query, in the ranks that hold nothing."""
        k, q = self.parts(stage)
        return self.unused @ (k + sign * q) / 2


@dataclass(frozen=True)
class Learning:
    """A head may learn a direction: the stage's slot, and the amplitude along it when the plateau began."""

    event: Event
    growth: Growth
    stage: Stage
    slot: int
    lead: float

    def carry_out(self, head: Head) -> Stage:
        settle(head, self)
        return self.stage.learn(self.slot)


@dataclass(frozen=True)
class Turn:
    """A head may leave one direction for another."""

    event: Event
    stage: DirectionStage
    old: int
    new: int

    def carry_out(self, head: Head) -> Stage:
        strength = self.stage.source.strength
        head.held[head.held.index(self.old)] = self.new
        head.cube += float(strength[self.new] - strength[self.old])
        head.leaning = {j: lean for j, lean in head.leaning.items() if j != self.new}
        return self.stage.exchange(self.old, self.new)


Candidate = Learning | Turn


def staircase(
    source: Source,
    v: Float[np.ndarray, " H"],
    K: Float[np.ndarray, "H R D"],
    Q: Float[np.ndarray, "H R D"],
    decay: float = 0.0,
) -> Staircase:
    r"""Predict the gradient flow from small initial weights, in the paper's units [`staircase`].

    `source` is a task or its `Directions`, `Landscape` or `SampleLandscape`. With $O$ outputs `v` is
    $\operatorname{tr}V_i/\sqrt O$. Heads of total rank $HR < D$ learn only $HR$ directions. The prediction
    sharpens as the initial weights shrink; it is poor where two heads or two directions nearly tie.
    """
    v, K, Q = (np.asarray(x, dtype=float) for x in (v, K, Q))
    check_shapes(v, K, Q)
    stage, base = opening(source)
    if K.shape[2] != len(stage.left):
        raise BadInput(f"K: has {K.shape[2]} token dimensions, must have dim = {len(stage.left)}")
    heads = [Head(float(v[h]), K[h], Q[h], np.eye(K.shape[1])) for h in range(len(v))]
    events: list[Event] = []
    now = 0.0
    while True:
        racing = [head for head in heads if head.free]
        paths = early_phases([(head.value, *head.parts(stage)) for head in racing], stage.drive)
        for head, path in zip(racing, paths, strict=True):
            head.paths.append((now, path))
        best = min(candidates(stage, heads, now, decay), key=lambda c: c.event.switch, default=None)
        if best is None:
            break
        events.append(best.event)
        until = max(now, best.event.switch)
        others = [head for h, head in enumerate(heads) if h != best.event.head]
        race_on([head for head in others if head.free], stage, until - now, decay)
        for head in others:
            if not head.free:
                wait(head, stage, until - now, decay)
        stage, now = best.carry_out(heads[best.event.head]), until
    return Staircase(
        base, tuple(events), tuple(tuple(head.paths) for head in heads), tuple(head.sign for head in heads)
    )


def candidates(stage: Stage, heads: list[Head], now: float, decay: float) -> Iterator[Candidate]:
    """What each head would do next if no other head were faster."""
    if not stage.drive.any():
        return
    for h, head in enumerate(heads):
        if head.free:
            yield from new_head(stage, h, head, now, decay)
        elif not head.full:
            yield from within_head(stage, h, head, now, decay)
        elif isinstance(stage, DirectionStage):
            yield from turns(stage, h, head, now)


def new_head(stage: Stage, h: int, head: Head, now: float, decay: float) -> Iterator[Candidate]:
    """A free head blows up, in the direction whose amplitude is the first to reach that of a saturated head."""
    path = head.paths[-1][1]
    [time] = decayed_time(np.array([path.time]), decay).tolist()
    if not np.isfinite(time):
        return
    stage, size = grown_parts(stage, head, path.sign)
    slot = first_full(size, np.cbrt(stage.drive / stage.curvature), stage.drive)
    growth = Growth(float(stage.drive[slot]), float(stage.curvature[slot]))
    event = Event("new-head", h, stage.label(slot), now + time, growth, stage.saved(slot))
    yield Learning(event, growth, stage, slot, float(size[slot]))


def grown_parts(stage: Stage, head: Head, sign: int) -> tuple[Stage, Vector]:
    """The amplitude of a head along every direction, where directions that tie are taken as the head sees them."""
    amplitude = head.amplitude(stage, sign)
    aligned = stage.aligned(amplitude)
    if aligned is not stage:
        amplitude = head.amplitude(aligned, sign)
    return aligned, np.sqrt(np.sum(amplitude**2, axis=0))


def within_head(stage: Stage, h: int, head: Head, now: float, decay: float) -> Iterator[Candidate]:
    r"""A grown head fills its unused ranks one by one; a direction grows there at the rate $v g_d - \gamma$."""
    stage, size = grown_parts(stage, head, head.sign)
    if not np.any((size > 0) & (stage.drive > 0)):
        return
    value = head_value(head.cube, head.soft, decay)
    drive = np.maximum(stage.drive - decay / value, 0.0) if value > 0 else np.zeros_like(stage.drive)
    if not np.any((size > 0) & (drive > 0)):
        return
    slot = first_full(size, np.sqrt(drive / stage.curvature / value), drive)
    growth = Growth(float(stage.drive[slot]), float(stage.curvature[slot]), head.cube)
    full = growth.full_amplitude if decay == 0 else np.sqrt(drive[slot] / stage.curvature[slot] / value)
    delay = np.log(full / size[slot]) / (float(drive[slot]) * value)
    event = Event("within-head", h, stage.label(slot), float(now + delay), growth, stage.saved(slot))
    yield Learning(event, growth, stage, slot, float(size[slot]))


def first_full(size: Vector, full: Vector, drive: Vector) -> int:
    r"""The direction that reaches its full amplitude at the smallest $\eta$."""
    grows = (size > 0) & (drive > 0)
    eta = np.full(len(drive), np.inf)
    eta[grows] = np.log(full[grows] / size[grows]) / drive[grows]
    return int(np.argmin(eta))


def turns(stage: DirectionStage, h: int, head: Head, now: float) -> Iterator[Candidate]:
    """A full head leaves a direction for a free one that saves more loss: the quickest such turn."""
    d, value = stage.source, float(np.cbrt(head.cube))
    pairs = [(i, j) for j in head.leaning if not stage.learned[j] for i in head.held if better(d, j, i)]
    if not pairs:
        return
    delays = [float(np.log(value / head.leaning[j])) / rotation_rate(d, i, j, value) for i, j in pairs]
    i, j = pairs[int(np.argmin(delays))]
    turn = (i, j, *(o for o in head.held if o != i))
    if turn not in head.orbits:
        head.orbits[turn] = rotation(d, i, j, turn[2:])
    saved = float(d.saved[j] - d.saved[i])
    yield Turn(Event("rotation", h, j, now + min(delays), head.orbits[turn], saved), stage, i, j)


def race_on(heads: list[Head], stage: Stage, time: float, decay: float) -> None:
    """Advance free heads until the direction that another one learns is switched off."""
    left = float(np.exp(-decay * time))  # of every weight, by decay alone
    [passed] = stretched_time(np.array([time]), decay)
    after = weights_after([head.paths[-1][1] for head in heads], float(passed))
    for head, (value, k, q) in zip(heads, after, strict=True):
        head.value = left * value
        head.set_parts(stage, left * k, left * q)


def wait(head: Head, stage: Stage, time: float, decay: float) -> None:
    """The same for a head that has grown: its unused ranks grow, and its parts along better directions."""
    value, left = head_value(head.cube, head.soft, decay), float(np.exp(-decay * time))
    if not head.full:
        head.extend(stage, stage.drive, value * time)
        head.key, head.query = left * head.key, left * head.query
    if isinstance(stage, DirectionStage):
        head.leaning = {
            j: lean * np.exp(time * max(rotation_rate(stage.source, i, j, value) for i in head.held))
            for j, lean in head.leaning.items()
            if not stage.learned[j]
        }


def settle(head: Head, learning: Learning) -> None:
    r"""Let the head hold its new direction; its unused ranks have grown by the event's $\eta$ [`within-head`]."""
    stage, slot, growth, lead = learning.stage, learning.slot, learning.growth, learning.lead
    head.sign = head.paths[-1][1].sign if head.free else head.sign
    rank = head.amplitude(stage, head.sign)[:, slot] / lead
    if isinstance(stage, DirectionStage):
        lean(head, stage, learning, rank)
    head.held.append(slot)
    head.cube = growth.held + growth.strength
    head.soft += 1 / growth.curvature
    head.unused = head.unused - np.outer(rank, rank)
    if not head.full:
        eta = np.log(growth.full_amplitude / lead) / growth.drive
        eta += growth.stretch + growth.final_value * growth.switch_age
        head.extend(stage, np.where(np.arange(len(stage.drive)) == slot, 0.0, stage.drive), eta)


def lean(head: Head, stage: DirectionStage, learning: Learning, rank: Float[np.ndarray, " R"]) -> None:
    """Record the components of the newly used rank along every better direction, from which a turn can grow."""
    d, slot = stage.source, learning.slot
    k, q = head.parts(stage)
    for j in np.flatnonzero(~stage.learned).tolist():
        if better(d, j, slot):
            seeds = float(rank @ k[:, j]), float(head.sign * rank @ q[:, j])
            part = residual_amplitude(d, slot, j, learning.growth, learning.lead, *seeds)
            head.leaning[j] = max(part, head.leaning.get(j, 1e-300))
