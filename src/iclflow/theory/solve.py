r"""Steps of differential equations $\dot y = f(y)$ and their size: an explicit method, and one for stiff equations.

**Explicit**: the method of Dormand and Prince, of order 5, whose embedded method of order 4 estimates the error. Many
systems may stand side by side, each with a step of its own.

**Implicit**: the Rosenbrock method Rodas5 of Di Marzo. Eight stages share one linear system, with the exact Jacobian
$J$ [`rosenbrock`]:

$$\Big(\frac{1}{h\gamma} - J\Big)u_i = f\Big(y + \sum_{j<i} a_{ij}u_j\Big) + \frac1h\sum_{j<i} c_{ij}u_j,\qquad
  y(t+h) \approx y + \sum_j a_{8j}u_j + u_8 .$$

It has order 5 and damps stiff components completely; $u_8$ estimates its error. `solve` follows one system by such
steps; between two of them the solution is one more step, from the one before.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float

from iclflow.errors import BadInput

__all__ = [
    "EVERY_STEP",
    "Pace",
    "Path",
    "Resolvent",
    "Size",
    "Solve",
    "dense_resolvent",
    "differenced_resolvent",
    "explicit_step",
    "head_error",
    "rosenbrock_step",
    "solve",
]

# What is called before every step of a solver in this thread; it may raise, to stop where the solver is.
EVERY_STEP: ContextVar[Callable[[], None]] = ContextVar("every_step", default=lambda: None)

RELATIVE, ABSOLUTE = 1e-8, 1e-10  # what the error estimate of a step may be; the step itself is better by an order
MOST_TRIES = 20_000
NUDGE = 1e-6  # for differences
FINER, ROUNDS = 16, 11  # parts into which the step of a crossing is divided, and how often

State = Float[np.ndarray, "*shape"]
Solve = Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]
Size = float | Float[np.ndarray, "*rows 1"]  # of one step, or of one a row
Resolvent = Callable[[Any], Solve]  # of J: for a shift s, or one a row, the solution of (s - J) u = b for any b

GAMMA = 0.19
STATES = (
    (),
    (2.0,),
    (3.040894194418781, 1.041747909077569),
    (2.576417536461461, 1.622083060776640, -0.9089668560264532),
    (2.760842080225597, 1.446624659844071, -0.3036980084553738, 0.2877498600325443),
    (-14.09640773051259, 6.925207756232704, -41.47510893210728, 2.343771018586405, 24.13215229196062),
    (-14.09640773051259, 6.925207756232704, -41.47510893210728, 2.343771018586405, 24.13215229196062, 1.0),
    (-14.09640773051259, 6.925207756232704, -41.47510893210728, 2.343771018586405, 24.13215229196062, 1.0, 1.0),
)
SLOPES = (
    (),
    (-10.31323885133993,),
    (-21.04823117650003, -7.234992135176716),
    (32.22751541853323, -4.943732386540191, 19.44922031041879),
    (-20.69865579590063, -8.816374604402768, 1.260436877740897, -0.7495647613787146),
    (-46.22004352711257, -17.49534862857472, -289.6389582892057, 93.60855400400906, 318.3822534212147),
    (34.20013733472935, -14.15535402717690, 57.82335640988400, 25.83362985412365, 1.408950972071624,
     -6.551835421242162),
    (42.57076742291101, -13.80770672017997, 93.98938432427124, 18.77919633714503, -31.58359187223370,
     -6.685968952921985, -5.810979938412932),
)  # fmt: skip
EXPLICIT_STATES = tuple(map(np.array, (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)))  # fmt: skip
EXPLICIT_ERROR = np.array((71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40))
WEIGHTS = [np.array(rows) for rows in zip(STATES, SLOPES, strict=True)]  # of the stages before, for every stage


def dense_resolvent(jacobian: Float[np.ndarray, "*rows n n"]) -> Resolvent:
    """The resolvent of a matrix without structure, or of one a row of independent systems."""

    def at(shift: Size) -> Solve:
        inverse = np.linalg.inv(np.asarray(shift)[..., None] * np.eye(jacobian.shape[-1]) - jacobian)
        return lambda right: (inverse @ right.reshape(*jacobian.shape[:-1], 1)).ravel()

    return at


def differenced_resolvent(velocity: Callable[[Any], Any], states: Float[np.ndarray, "*rows n"]) -> Resolvent:
    """The resolvent of the derivative of a field that takes stacks of states, by central differences."""
    nudge, at = NUDGE * np.eye(states.shape[-1]), states[..., None, :]
    return dense_resolvent(((velocity(at + nudge) - velocity(at - nudge)) / (2 * NUDGE)).swapaxes(-1, -2))


@no_type_check
def rosenbrock_step(
    field: Callable[[State], State], y: State, velocity: State, resolvent: Resolvent, h: Size
) -> tuple[State, State]:
    """The state after an implicit step, and an estimate of its error.

    Several independent systems, one a row of `y`, may each have a step of their own.
    """
    solved, at = resolvent(1 / (h * GAMMA)), y
    stages = np.zeros((len(STATES), y.size))
    stages[0] = solved(velocity.ravel())
    for i in range(1, len(STATES)):
        moved, pulled = WEIGHTS[i] @ stages[:i]
        at = y + moved.reshape(y.shape)
        stages[i] = solved((field(at) + pulled.reshape(y.shape) / h).ravel())
    error = stages[-1].reshape(y.shape)
    return at + error, error


@no_type_check
def explicit_step(field: Callable[[State], State], y: State, velocity: State, h: Size) -> tuple[State, State, State]:
    """The state after an explicit step, the velocity there, and an estimate of the error.

    An array `h` that is broadcast to `y` gives systems side by side steps of their own.
    """
    stages = np.empty((len(EXPLICIT_ERROR), y.size))
    stages[0] = velocity.ravel()
    for i, states in enumerate(EXPLICIT_STATES, start=1):
        at = y + h * (states @ stages[:i]).reshape(y.shape)
        there = field(at)
        stages[i] = there.ravel()
    return at, there, h * (EXPLICIT_ERROR @ stages).reshape(y.shape)


@no_type_check
def head_error(
    error: Float[np.ndarray, "*runs H size"],
    before: Float[np.ndarray, "*runs H size"],
    after: Float[np.ndarray, "*runs H size"],
) -> Float[np.ndarray, "*runs"]:
    """The largest error of a head relative to its own size; infinite where it is not a number."""
    size = np.maximum(np.abs(before).max(-1), np.abs(after).max(-1))
    worst = (np.abs(error).max(-1) / np.maximum(size, 1e-300)).max(-1)
    return np.where(np.isfinite(worst), worst, np.inf)


class Pace:
    r"""How large the next step of a method of order 5 may be, for one system or for many side by side.

    An error $e_n = C_nh_n^5$, in units of the one that is allowed, asks for $h_ne_n^{-1/5}$. Where the last step has
    shown that $C_n$ grows, as it does while weights grow, the next one takes account of it in advance, instead of being
    rejected; and after one that was rejected it is not larger.
    """

    def __init__(self, systems: tuple[int, ...] = ()) -> None:
        self.size = np.full(systems, np.nan)  # of the last step that was taken
        self.error = np.full(systems, np.nan)  # of that step
        self.refused = np.zeros(systems, dtype=bool)

    @no_type_check
    def forget(self, which: Any) -> None:
        """Let the next steps of some systems owe nothing to the last ones."""
        self.size[which] = self.error[which] = np.nan
        self.refused[which] = False

    @no_type_check
    def some(self, which: Any) -> "Pace":
        """That of some of the systems."""
        pace = Pace()
        pace.size, pace.error, pace.refused = self.size[which], self.error[which], self.refused[which]
        return pace

    @no_type_check
    def judged(self, h: Size, error: Size) -> tuple[Any, Any]:
        """Whether steps with these errors are taken, and the size of the next ones or of the next try."""
        EVERY_STEP.get()()
        taken, error = error <= 1, np.maximum(error, 1e-10)
        wanted = 0.9 * error**-0.2
        growing = h / self.size * (self.error / error) ** 0.2
        eager = np.where(growing < 1, wanted * growing, wanted)
        eager = np.where(self.refused, np.minimum(eager, 1.0), eager)
        self.size, self.error = np.where(taken, h, self.size), np.where(taken, error, self.error)
        self.refused = np.logical_not(taken)
        return taken, h * np.clip(np.where(taken, eager, wanted), 0.2, 5.0)


@runtime_checkable
class Field(Protocol):
    """A system whose states hold a logarithm and then numbers of the order of one; states may be stacked."""

    def velocity(self, states: Any) -> Any: ...
    def resolvent(self, states: Any) -> Resolvent: ...
    def farthest(self, state: Any) -> float: ...  # how long a step may be


class Path(NamedTuple):
    """A solution, at its steps and between them."""

    field: Field
    time: Float[np.ndarray, " steps"]
    states: Float[np.ndarray, "steps n"]

    def at(self, time: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T n"]:
        """The states at any times up to the last step."""
        before = np.searchsorted(self.time, time, side="right") - 1
        h, start = (time - self.time[before])[:, None], self.states[before]
        velocity, resolvent = self.field.velocity(start), self.field.resolvent(start)
        moved = rosenbrock_step(self.field.velocity, start, velocity, resolvent, np.where(h > 0, h, 1.0))[0]
        return np.where(h > 0, moved, start)

    def crossing(self, loss: Callable[[Any], Any], level: float) -> float:
        """When the loss of states falls to a level; infinite if it never does, or is below it from the start."""
        below = loss(self.states) <= level
        if below[0] or not below.any():
            return np.inf
        last = int(np.argmax(below))
        low, high = self.time[last - 1], self.time[last]
        for _ in range(ROUNDS):
            grid = np.linspace(low, high, FINER + 1)
            reached = loss(self.at(grid[1:-1])) <= level
            part = int(np.argmax(reached)) if reached.any() else FINER - 1
            low, high = grid[part], grid[part + 1]
        return float((low + high) / 2)


def solve(field: Field, start: Float[np.ndarray, " n"], end: float, stop: Callable[[Any], bool] | None = None) -> Path:
    """Follow a system from time 0 by implicit steps, until the end or until `stop` is true of a state."""
    y, now = start, 0.0
    h = min(end, 0.1 / max(float(np.linalg.norm(field.velocity(y))), 1e-300))
    time, states, pace = [now], [y], Pace()
    for _ in range(MOST_TRIES):
        if now >= end or (stop is not None and stop(y)):
            return Path(field, np.array(time), np.array(states))
        h = min(h, field.farthest(y))
        after, error = rosenbrock_step(field.velocity, y, field.velocity(y), field.resolvent(y), h)
        allowed = ABSOLUTE + RELATIVE * np.maximum(np.abs(y), np.abs(after))
        allowed[0] = RELATIVE  # an error of a logarithm is relative already
        size = float(np.max(np.abs(error) / allowed))
        taken, following = pace.judged(h, size if np.isfinite(size) else np.inf)
        if not taken:
            h = float(following)
            continue
        now, y = (end if h >= end - now else now + h), after
        time.append(now)
        states.append(y)
        h = min(float(following), end - now)
    raise BadInput("alpha: gives a flow that cannot be integrated")
