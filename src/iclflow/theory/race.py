r"""The race of the heads: who learns what, when, and what the others feel of it.

**Side by side** [`race`]. As long as no head that has grown waits for another, the equations are not stiff, and many
races are followed together by explicit steps, each with a step of its own, through plateau and drop. When the heads of
a drop have come to rest, which the free heads do not share in, they leave: what remains is a smaller landscape of the
same kind (`Landscape.beyond`), on which the race goes on. They have come to rest when none of their numbers is farther
than the share $\delta$ from where they settle.

**Together.** Where heads at rest still matter to the others (vector blocks, weight decay, directions that mix or nearly
tie, finite samples), all heads are followed to the end by implicit steps, whose error is relative to every head: a head
that grows from almost nothing is followed as exactly as the others. Steps of descent that are so large that no flow
lies near them are themselves taken while heads move fast.

What a solver calls ten thousand times is not checked at run time (`no_type_check`); what calls it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as count_from
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float

from iclflow.data.spectrum import root
from iclflow.theory.equations import Flow, Layout
from iclflow.theory.landscape import Landscape, Remaining
from iclflow.theory.separate import SampleLandscape
from iclflow.theory.solve import Pace, explicit_step, head_error, rosenbrock_step

__all__ = ["Accuracy", "Momentum", "Race", "Rest", "Unfinished", "run"]

UNSTABLE = 1e-2  # of drive times weight: growth rates below count as none
MOST_EXPLICIT = 1500  # explicit steps from one departure of heads to the next
LONGEST = 1e9  # times the time scale of free heads, after which none of them will grow
LOOK = 4  # steps from one look at who is at rest to the next
CALM = 3.0  # times delta times drive times weight: heads that move faster are farther than delta from rest
DIVERGED = 1e3  # times the first loss
MOST_FOLLOWED = 20_000  # implicit steps
SMALLEST = 1e-14  # of the time: the step of a solver that has given up
AFTERWARDS = 1.25  # times the time at which all is learned: so long heads are followed
MOST_STEPPED = 200_000  # that are taken in one drop
UNEVEN = 1e-3  # of the largest drive: weaker ones feel what is left of the force where heads rest
RESTS = 1e-2  # of the decay: velocities and rates that count as none
LATE = 3  # time constants after which heads at rest are where they settle
GATHERED = 20  # times 1/(1 - beta) steps: momentum has gathered its speed
RESOLVED, FEWEST = 0.05, 50  # a step is recorded when heads have moved so far, or after so many
NEUTRAL = 1e-5  # of the largest rate, where heads settle for good
FARTHEST = 5  # times delta: how far heads may settle from where they are when they leave
NEWTON = 3  # steps to rest, from heads that are close to it

Rows = Float[np.ndarray, "H size"]
Matrix = Float[np.ndarray, "D D"]
Held = Float[np.ndarray, "held size"]  # the rows of some heads
Heads = Bool[np.ndarray, " H"]
Values = Float[np.ndarray, "2 H"]  # the value weight of every head, and its slope


class Unfinished(ArithmeticError):
    """The equations could not be followed to the end."""


@dataclass(frozen=True)
class Accuracy:
    """How much is left out, and how large the error of a step may be, relative to the largest number of each head."""

    rest: float = 1e-3  # delta
    tie: float = 1e-3  # of what heads hold: how much of it others may hold when they leave
    neutral: float = (
        1e-5  # of the largest rate: directions in which heads at rest are pulled back more slowly than that
    )
    explicit: float = 1e-6
    implicit: float = 1e-5
    together: bool = False  # whether heads at rest stay in the race of the others
    fast: float = 0.01  # times the lag: the relative velocity at which steps are taken themselves; a quarter ends it


class Momentum(NamedTuple):
    r"""Steps $u \leftarrow \beta u + h f(y)$, $y \leftarrow (1 - \delta)y + u$; descent has no $\beta$."""

    step: float  # h, in t/tau
    beta: float = 0.0
    shrink: float = 0.0  # delta

    @property
    def time(self) -> float:
        """t/tau of one step."""
        return self.step / (1 - self.beta)

    @property
    def delay(self) -> float:
        """How long steps take to gather their speed."""
        return self.time * self.beta / (1 - self.beta)

    @property
    def lag(self) -> float:
        r"""The step of descent that lags as much: $\tfrac{1+\beta}{1-\beta}$ times as long."""
        return self.time * (1 + self.beta) / (1 - self.beta)


@dataclass(frozen=True)
class Rest:
    """A moment at which nothing but free heads moves."""

    record: int  # index of the last record before it
    rows: Rows


@dataclass
class Race:
    """The heads on their way."""

    flow: Flow
    rows: Rows
    accuracy: Accuracy = Accuracy()
    turning: bool = False  # grown heads could have left their place during a plateau, slowly
    now: float = 0.0
    records: list[tuple[float, float, float, Values, Matrix]] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)

    @property
    def landscape(self) -> Landscape | SampleLandscape:
        return self.flow.landscape

    @property
    def layout(self) -> Layout:
        return self.flow.layout

    @property
    def opening(self) -> Matrix:
        return self.flow.opening

    @cached_property
    def whitening(self) -> tuple[Matrix, Matrix]:
        """Roots of the two covariances in which the loss is nearly isotropic."""
        L = self.landscape
        if isinstance(L, Landscape):
            return root(L.context), root(L.query)
        size = np.sqrt(np.einsum("acac->", L.quadratic))
        context, query = np.einsum("acbc->ab", L.quadratic), np.einsum("acad->cd", L.quadratic)
        return root(context / size), root(query / size)

    @cached_property
    def mixing(self) -> bool:
        """Whether what is learned turns when more is learned, because directions do not decouple."""
        L = self.landscape
        if not isinstance(L, Landscape):
            return True
        pairs = ((L.context, L.query), (L.cross, L.query), (L.cross, L.context))
        return not all(np.allclose(a @ b, (a @ b).T, rtol=0, atol=1e-9 * np.abs(a @ b).max()) for a, b in pairs)

    @cached_property
    def together(self) -> bool:
        """Whether heads at rest stay: where they hold a force against decay, turn later, or rest too little."""
        drive = np.linalg.svd(self.opening)[1]
        uneven = bool(drive[self.driven - 1] < UNEVEN * drive[0])
        return self.accuracy.together or self.layout.channels > 0 or self.flow.decay > 0 or self.mixing or uneven

    @cached_property
    def driven(self) -> int:
        """The number of directions with a drive: D, or K if there are fewer tasks."""
        return int(np.linalg.matrix_rank(self.opening, rtol=1e-12))

    @cached_property
    def least(self) -> float:
        """The smallest whitened strength of a direction."""
        left, right = self.whitening
        strengths = np.linalg.svd(np.linalg.solve(left, self.opening) @ np.linalg.inv(right))[1]
        return float(strengths[self.driven - 1])

    @property
    def start(self) -> tuple[Rows, Rows]:
        """The heads and their velocity."""
        return self.rows, self.flow.velocity(self.rows)

    @property
    def held_from(self) -> float:
        """The share of its strength from which a direction counts as held; weight decay leaves at least a quarter."""
        return 0.5 if self.flow.decay == 0 else 0.2

    @no_type_check
    def shares(self) -> Float[np.ndarray, " H"]:
        """The strength of every head, relative to that of the weakest direction."""
        left, right = self.whitening
        return np.linalg.norm(left @ self.layout.matrices(self.rows) @ right, axis=(1, 2)) / self.least

    def learned(self, A: Matrix) -> int:
        """How many directions the heads hold."""
        left, right = self.whitening
        return int(np.sum(np.linalg.svd(left @ A @ right)[1] > self.held_from * self.least))

    @no_type_check
    def record(self, velocity: Rows, downhill: Rows) -> None:
        r"""Note the loss, its slope $-2\langle f, \dot y\rangle/O$, the value weights and the effective matrix."""
        A, values = self.layout.matrix(self.rows), np.stack([self.rows[:, 0], velocity[:, 0]])
        slope = -2 * float(np.sum(velocity * downhill)) / self.landscape.outputs
        self.records.append((self.now, float(self.flow.loss(self.rows, A)), slope, values, A))

    def begin(self) -> None:
        """Note where the heads start."""
        self.record(self.flow.velocity(self.rows), self.flow.downhill(self.rows))
        self.rests.append(Rest(0, self.rows.copy()))

    def followed(self, pace: "Momentum | None" = None) -> bool:
        """Follow all heads together to the end; whether they did not diverge.

        With a `pace` the steps of descent are themselves taken while heads move so fast that no flow lies near them.
        """
        if pace is not None and not self.take_steps(pace, np.zeros_like(self.rows), int(GATHERED / (1 - pace.beta))):
            return False
        flow, heads, solver = self.flow, len(self.rows), Pace()
        most, lag = min(self.driven, heads * self.layout.rank), flow.step
        y, velocity, learned = self.rows, flow.velocity(self.rows), np.inf
        h = 0.01 / (largest_singular(self.opening) * np.abs(y).max())
        longest = self.now + LONGEST / (self.least * np.abs(y).max())
        for count in range(MOST_FOLLOWED):
            if pace is not None and lag * fastest(y, velocity, flow.decay) > self.accuracy.fast:
                moved = pace.time * (velocity + flow.decay * y)  # on the flow of the steps
                if not self.take_steps(pace, moved):
                    return False
                y, velocity = self.rows, flow.velocity(self.rows)
                h, solver = pace.time, Pace()
            resolvent = flow.resolvent(y, self.opening)
            while True:
                after, error = rosenbrock_step(flow.velocity, y, velocity, resolvent, h)
                taken, following = solver.judged(h, head_error(error, y, after) / self.accuracy.implicit)
                if taken:
                    break
                h = float(following)
                if not h > SMALLEST * self.now:
                    raise Unfinished
            y, self.now, velocity, h = after, self.now + h, flow.velocity(after), float(following)
            self.rows = y
            self.record(velocity, flow.downhill(y) if flow.step or flow.decay else velocity)
            if count % LOOK:
                continue
            if self.learned(self.records[-1][4]) >= most:
                learned = min(learned, self.now)
            if flow.decay > 0 and self.decayed(y, velocity):
                learned = min(learned, self.now)
            if self.now > min(AFTERWARDS * learned, longest):
                self.rests.append(Rest(len(self.records) - 1, self.rows.copy()))
                return True
        raise Unfinished

    def take_steps(self, pace: "Momentum", moved: Rows, least: int = 0) -> bool:
        """Take steps of momentum until all heads are slow again; whether they did not diverge."""
        y, downhill, since = self.rows, self.flow.downhill(self.rows), 0
        for number in range(MOST_STEPPED):
            moved = pace.beta * moved + pace.step * downhill
            before, y = y, (1 - pace.shrink) * y + moved
            downhill, self.now, since = self.flow.downhill(y), self.now + pace.time, since + 1
            velocity = (y - before) / pace.time
            speed = fastest(y, velocity, self.flow.decay)
            if since * pace.time * speed < RESOLVED and since < FEWEST:
                continue
            self.rows, since = y, 0
            self.record(velocity, downhill)
            if not self.records[-1][1] < DIVERGED * self.records[0][1]:
                return False
            if number >= least and self.flow.step * speed < self.accuracy.fast / 4:
                return True
        raise Unfinished

    def decayed(self, rows: Rows, velocity: Rows) -> bool:
        """Whether heads rest or shrink for good: too small to grow against the decay, or at a stable place."""
        size, decay = np.abs(rows).max(1), self.flow.decay
        small = largest_singular(self.opening) * size < decay / 2
        still = np.abs(velocity).max(1) < RESTS * decay * size
        return bool((small | still).all()) and self.growth_of(rows) < RESTS * decay

    def growth_of(self, rows: Rows) -> float:
        """The largest rate at which heads can leave their place together."""
        return float(np.linalg.eigvalsh(self.flow.jacobian(rows, self.opening))[-1])


@no_type_check
def fastest(rows: Rows, velocity: Rows, decay: float) -> float:
    """The largest velocity of a head relative to its own size; one that only decays, at whatever rate, is slow."""
    speed = np.minimum(np.abs(velocity).max(1), np.abs(velocity + decay * rows).max(1))
    return float((speed / np.maximum(np.abs(rows).max(1), 1e-300)).max())


@no_type_check
def largest_singular(matrix: Matrix) -> float:
    """The largest singular value."""
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


# --- side by side -----------------------------------------------------------------------------------------------------


def run(races: Sequence[Race]) -> list[Race]:
    """Follow races of the same shape to their end."""
    for race in races:
        race.begin()
    if races[0].together:
        return [race for race in races if not finished(race.followed)]
    return [entrant.race for entrant in side_by_side(races) if not finished(entrant.go_on_alone)]


def finished(follow: Callable[[], object]) -> bool:
    """Whether the equations could be followed to the end."""
    try:
        follow()
    except (Unfinished, np.linalg.LinAlgError):
        return False
    return True


class Steps(NamedTuple):
    """Steps on a stage, as a race records them."""

    time: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]
    slope: Float[np.ndarray, " T"]
    values: Float[np.ndarray, "T 2 heads"]
    matrices: Float[np.ndarray, "T dim dim"]


@dataclass
class Entrant:
    """A race among others: which heads are still in it, and the landscape that the others have left."""

    race: Race
    gone: Heads = field(init=False)
    held: Matrix = field(init=False)  # by the heads that have left
    remaining: Remaining = field(init=False)
    stage: Race = field(init=False)  # of the heads that are left, on that landscape
    begin: Rows = field(init=False)  # all heads, in all dimensions, when it began
    since: float = 0.0  # when the stage was entered
    growth: float = 0.0  # the largest rate at which heads that have left could have left their place

    def __post_init__(self) -> None:
        dim = self.race.layout.dim
        self.gone, self.held = np.zeros(len(self.race.rows), dtype=bool), np.zeros((dim, dim))
        self.enter(Remaining(np.eye(dim), np.eye(dim), self.race.landscape))

    def enter(self, remaining: Remaining) -> None:
        """Go on, on the landscape that is left."""
        race, self.remaining = self.race, remaining
        layout = replace(race.layout, dim=remaining.left.shape[1])
        flow = replace(race.flow, landscape=remaining.landscape, layout=layout)
        rows = race.layout.turned(race.rows[~self.gone], remaining.left, remaining.right)
        self.stage, self.begin, self.since = Race(flow, rows, race.accuracy), race.rows.copy(), race.now

    @cached_property
    def outputs(self) -> float:
        return float(np.sqrt(self.race.landscape.outputs))

    @property
    def drive(self) -> float:
        """The largest drive on the stage."""
        return largest_singular(self.stage.opening)

    def place(self, rows: Held) -> None:
        """Put rows of the stage back among all heads; what the stage does not see stays as it was."""
        left, right, free = self.remaining.left, self.remaining.right, ~self.gone
        start = self.race.layout.turned(self.begin[free], left, right)
        moved = self.stage.layout.turned(rows - start, left.T, right.T)
        self.stage.rows, self.race.rows = rows, self.begin.copy()
        self.race.rows[free] += moved

    def note(self, steps: Steps) -> None:
        """Record steps on the stage as those of the whole race."""
        values = np.zeros((len(steps.time), 2, len(self.gone)))
        values[:, 0] = self.race.rows[:, 0]
        values[:, :, ~self.gone] = steps.values
        whole = self.held + self.remaining.left @ steps.matrices @ self.remaining.right.T
        self.race.now = float(steps.time[-1])
        self.race.records += zip(steps.time, steps.loss, steps.slope, values, whole, strict=True)

    def at_rest(self, rows: Rows, calm: Heads) -> tuple[Heads, Held] | None:
        """Which heads have grown and rest, nothing but them holding what they hold; and where they settle."""
        self.stage.rows, drive = rows, self.drive
        resting = calm & (self.stage.shares() >= self.race.held_from)
        if not resting.any():
            return None
        flow, held = self.stage.flow, rows[resting]
        layout, A = flow.layout, flow.layout.matrix(rows[~resting])
        neutral = self.race.accuracy.neutral
        near, growth = settle(flow, held, neutral, flow.opening - flow.landscape.curve(A))
        size = np.abs(held).max(1)
        if not (np.abs(near - held).max(1) <= self.race.accuracy.rest * size).all():
            return None
        if growth > UNSTABLE * drive * size.max():
            return None
        parts = layout.split(near)
        along = lambda matrix: np.abs(np.einsum("hrd,de,hre->hr", parts.key, matrix, parts.query))
        if (along(A) > self.race.accuracy.tie * along(layout.matrix(near))).any():
            return None
        last = settled(flow, near)
        if not (np.abs(last - held).max(1) <= FARTHEST * self.race.accuracy.rest * size).all():
            return None  # without the others they would rest elsewhere
        if growth > self.race.accuracy.neutral * drive * size.max():
            self.growth = max(self.growth, growth)
        return resting, last

    def depart(self, resting: Heads, held: Held) -> bool:
        """Let heads at rest leave with what they hold; whether anything is left for the others."""
        race, stage = self.race, self.stage
        race.turning |= bool(self.growth * (race.now - self.since) > 1)
        rows = stage.rows.copy()
        rows[resting] = held
        self.place(rows)
        learned = stage.learned(stage.layout.matrix(held))
        leaving = np.flatnonzero(~self.gone)[resting]
        self.gone[leaving] = True  # what they have along what others hold, those have answered
        race.rows[leaving] = stage.layout.turned(held, self.remaining.left.T, self.remaining.right.T)
        over = learned >= stage.driven or self.gone.all()
        if over:
            race.now += LATE / (self.drive * np.abs(held).max())
            race.record(np.zeros_like(race.rows), np.zeros_like(race.rows))
        race.rests.append(Rest(len(race.records) - 1, race.rows.copy()))
        if over:
            return False
        self.held = race.layout.matrix(race.rows[self.gone])
        assert isinstance(race.landscape, Landscape)  # samples stay together
        self.enter(race.landscape.beyond(self.held / self.outputs))
        return True

    def go_on_alone(self) -> None:
        """Follow the stage with the heads that are left in it to its end."""
        stage, race, first = self.stage, self.race, len(self.race.records)
        stage.now = race.now
        stage.followed()
        self.note(Steps(*map(np.array, zip(*stage.records, strict=True))))
        for rest in stage.rests:
            self.place(rest.rows)
            race.rests.append(Rest(first + rest.record, race.rows.copy()))
        race.turning |= stage.turning


def settle(flow: Flow, rows: Rows, neutral: float, force: Matrix | None = None) -> tuple[Rows, float]:
    """A step of Newton's method to where heads come to rest, and the largest rate at which they can leave it.

    Along directions in which nothing pulls them back or away they stay where they are. A pull below the share `neutral`
    of the largest counts as none; `force` is what others leave.
    """
    flow, force = replace(flow, step=0.0), flow.opening if force is None else force  # steps move no place of rest
    rate, modes = np.linalg.eigh(flow.jacobian(rows, force))
    pull = modes.T @ flow.velocity(rows, force).ravel()
    moves = np.abs(rate) > neutral * np.abs(rate).max()
    return rows - (modes[:, moves] @ (pull[moves] / rate[moves])).reshape(rows.shape), float(rate[-1])


def settled(flow: Flow, rows: Rows) -> Rows:
    """Where heads come to rest that are close to it."""
    for _ in range(NEWTON):
        rows = settle(flow, rows, NEUTRAL)[0]
    return rows


@no_type_check
def side_by_side(races: Sequence[Race]) -> list[Entrant]:
    """Follow races by explicit steps, and give back those that need others to go on."""
    entrants, stiff = [Entrant(race) for race in races], []
    flow, plain = races[0].flow, races[0].flow.step == races[0].flow.decay == 0
    layout, shape = flow.layout, (len(races), *races[0].rows.shape)
    y, velocity, drive, h, now, since, longest = np.zeros(shape), np.zeros(shape), *np.zeros((5, len(races)))
    tolerance, calm = np.array([(race.accuracy.explicit, CALM * race.accuracy.rest) for race in races]).T
    landscapes, trails, pace = [race.landscape for race in races], [[] for _ in races], Pace((len(races),))

    def begin(i: int) -> None:
        """Put an entrant on the stage that it has entered."""
        stage = entrants[i].stage
        heads, size = len(stage.rows), np.abs(stage.rows).max()
        y[i] = velocity[i] = 0.0
        y[i, :heads], velocity[i, :heads] = (widened(rows, layout, stage.layout.dim) for rows in stage.start)
        landscapes[i], drive[i] = padded(stage.landscape, layout.dim), entrants[i].drive
        h[i] = min(0.05 / (drive[i] * size), h[i]) if h[i] > 0 else 0.01 / (drive[i] * size)
        since[i], longest[i] = 0, now[i] + LONGEST / (drive[i] * size)
        pace.forget(i)

    def leave(i: int) -> None:
        """Give an entrant the steps that it has taken on its stage."""
        heads, dim = len(entrants[i].stage.rows), entrants[i].stage.layout.dim
        if trails[i]:
            time, loss, slope, values, A = map(np.array, zip(*trails[i], strict=True))
            entrants[i].note(Steps(time, loss, slope, values[:, :, :heads], A[:, :dim, :dim]))
        trails[i] = []

    for i in range(len(races)):
        begin(i)
    flow = replace(flow, landscape=abreast(landscapes))
    for count in count_from(1):
        at, there, error = explicit_step(flow.velocity, y, velocity, h[:, None, None])
        taken, following = pace.judged(h, head_error(error, y, at) / tolerance)
        some = taken[:, None, None]
        y, velocity, now, h, since = (
            np.where(some, at, y),
            np.where(some, there, velocity),
            now + h * taken,
            following,
            since + 1,
        )
        A = layout.matrix(y)
        loss, downhill = flow.loss(y, A), velocity if plain else flow.downhill(y)
        slope = -2 * np.sum(velocity * downhill, (1, 2)) / flow.landscape.outputs
        for i in np.flatnonzero(taken):
            trails[i].append((now[i], loss[i], slope[i], np.stack([y[i, :, 0], velocity[i, :, 0]]), A[i]))
        if count % LOOK:
            continue
        size, speed = np.abs(y).max(2), np.abs(velocity).max(2)
        top = size.max(1)
        over = (drive * top < flow.decay) | (h * speed.max(1) < 1e-12 * top) | (now > longest)
        rests = (size > 0) & (speed <= (calm * drive * top)[:, None] * size)
        look = np.flatnonzero(over | rests.any(1) | (since > MOST_EXPLICIT))
        kept, entered = ~over, False
        for i in look:
            entrant, heads, dim = entrants[i], len(entrants[i].stage.rows), entrants[i].stage.layout.dim
            rows = narrowed(y[i, :heads], layout, dim)
            if over[i]:
                leave(i)
            elif (found := entrant.at_rest(rows, rests[i, :heads])) is not None:
                leave(i)
                kept[i] = entrant.depart(*found)
                if kept[i]:
                    begin(i)
                    entered = True
            elif since[i] > MOST_EXPLICIT:
                leave(i)
                entrant.place(rows)
                stiff.append(entrant)
                kept[i] = False
        if not kept.any():
            return stiff
        if not kept.all():
            some = np.flatnonzero(kept)
            entrants, landscapes, trails = ([items[i] for i in some] for items in (entrants, landscapes, trails))
            y, velocity, drive, h, now, since, longest, tolerance, calm = (
                array[some] for array in (y, velocity, drive, h, now, since, longest, tolerance, calm)
            )
            pace = pace.some(some)
        if entered or not kept.all():
            flow = replace(flow, landscape=abreast(landscapes))
    return stiff


def padded(L: Landscape | SampleLandscape, dim: int) -> Landscape | SampleLandscape:
    """A landscape with directions added on which nothing happens."""
    wide = {
        n: np.pad(a, [(0, dim - size) for size in a.shape]) for n, a in vars(L).items() if isinstance(a, np.ndarray)
    }
    return replace(L, **wide)  # type: ignore[arg-type]


def abreast(landscapes: list[Landscape | SampleLandscape]) -> Landscape | SampleLandscape:
    """Landscapes side by side."""
    names = [name for name, value in vars(landscapes[0]).items() if isinstance(value, np.ndarray)]
    stacked = {name: np.stack([getattr(L, name) for L in landscapes]) for name in (*names, "base")}
    return replace(landscapes[0], **stacked)  # type: ignore[arg-type]


def widened(rows: Rows, layout: Layout, dim: int) -> Float[np.ndarray, "H wide"]:
    """Rows of `dim` dimensions in a layout of more."""
    return replace(layout, dim=dim).turned(rows, np.eye(dim, layout.dim), np.eye(dim, layout.dim))


def narrowed(rows: Rows, layout: Layout, dim: int) -> Float[np.ndarray, "H narrow"]:
    """The first `dim` dimensions of rows."""
    return layout.turned(rows, np.eye(layout.dim, dim), np.eye(layout.dim, dim))
