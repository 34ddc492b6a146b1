"""How far steps of finite size, with or without momentum, lag behind the flow."""

from dataclasses import replace

import numpy as np

from iclflow.prediction.margins import DOUBTFUL, FINE, TIED, interval
from iclflow.prediction.problem import Problem
from iclflow.prediction.result import Prediction
from iclflow.system.cores import one_blas_thread
from iclflow.theory import merged
from iclflow.theory.forecast import Unfinished, forecast
from iclflow.theory.landscape import directions
from iclflow.theory.momentum import head_lag, merged_steps, mode_lag
from iclflow.theory.separate import SampleLandscape, sample_modes

__all__ = ["lagging_drop", "lagging_staircase"]

STEPPED = 0.25  # of the lag of steps at the edge of stability, how much is in doubt
LARGE_LAG = "Steps lag behind the flow by a share of the time of drops that is not small; take a smaller lr."
MOST_FOLLOWED = 300  # numbers in all heads up to which steps are followed through drops


def descended(plain: Prediction, problem: Problem, step: float) -> Prediction | None:
    r"""The prediction for descent with steps of this size in t/tau; `None` where they cannot be followed.

    The field that steps follow (`theory.descent`) is known up to the next order in the step. So the relative half-width
    of an interval grows by the largest relative lag so far times the step, relative to the edge of stability of a
    single mode, $3hgc/2$ [`interval`].
    """
    parts = problem.parts
    edge = 1.5 * step * max(g * np.cbrt(g / m) for g, m in learned_modes(plain, problem))
    if edge >= 1 or sum(part.size for part in parts) > MOST_FOLLOWED:
        return None
    try:
        with one_blas_thread():
            found = forecast(problem.source, parts, FINE, step)
    except (Unfinished, np.linalg.LinAlgError):
        return None
    times, before, n = found.drop_times, plain.drop_times, len(found.drop_times)
    if n != len(before):
        return None
    lag = np.abs(times / before - 1)
    half = plain.drop_intervals[:, 1] / before - 1 + STEPPED * edge * np.maximum.accumulate(lag)
    same = (found.heads == plain.heads) & (found.directions == plain.directions)
    tied = () if (half <= DOUBTFUL).all() or TIED in plain.notes else (TIED,)
    return replace(
        plain,
        levels=found.levels,
        drop_times=times,
        heads=found.heads,
        directions=found.directions,
        loss=found.loss,
        values=found.values,
        reliable=plain.reliable and bool((half <= DOUBTFUL).all()),
        notes=(*plain.notes, *tied),
        drop_intervals=interval(times, half),
        head_shares=np.where(same, plain.head_shares, 0.0),
    )


# By how many relative lags a later drop may be off: steps through a drop also move the heads that wait.
LATER_DROP_UNCERTAINTY = 3.0


def lagging_staircase(plain: Prediction, flow: Prediction, problem: Problem) -> Prediction:
    """Descent as far as its steps can be followed; else every drop later by the lag of a single mode.

    Between drops that lag is interpolated.
    """
    step, shrink = problem.lr * problem.rate, problem.shrink
    if not len(flow.drop_times):
        return flow
    if not (np.diff(plain.drop_times, prepend=0.0) > 0).all():
        return flow.noted("the lag of finite steps is left out")
    if problem.beta == 0 and shrink == 0 and (followed := descended(flow, problem, step)) is not None:
        return followed
    times, modes = flow.drop_times, learned_modes(flow, problem)
    lags = [
        mode_lag(drive, curvature, float(time), step, problem.beta, shrink)
        for (drive, curvature), time in zip(modes, plain.drop_times, strict=False)
    ]
    if problem.on_population and lags and np.isfinite(lags[0]):
        lags[0] = first_lag(flow, problem, step, shrink, lags[0])
    comes = int(np.sum(np.isfinite(lags)))
    knots, late = np.concatenate([[0.0], times[:comes]]), np.concatenate([[0.0], times[:comes] + lags[:comes]])
    late = np.maximum.accumulate(late)
    end = knots[-1] - late[-1]
    back = lambda t: np.where(t > late[-1], t + end, np.interp(t, late, knots))
    moved = flow.moved(late[1:]).drop_intervals
    factor = np.where(np.arange(comes) == 0, 1.0, LATER_DROP_UNCERTAINTY)
    share = np.maximum.accumulate(np.abs(late - knots)[1:] / late[1:]) * factor
    doubt = np.minimum(share, DOUBTFUL) * late[1:]
    apart = np.stack([np.maximum(moved[:, 0] - doubt, 0.0), moved[:, 1] + doubt], axis=1)
    sure = bool((share < DOUBTFUL).all())
    return flow.moved(
        late[1:],
        drop_intervals=apart,
        reliable=flow.reliable and sure,
        notes=flow.notes if sure else (*flow.notes, LARGE_LAG),
        levels=flow.levels[: comes + 1],
        never=tuple(int(i) for i in plain.directions[comes:]) if shrink > 0 else flow.never,
        loss=lambda t: np.maximum(flow.loss(back(np.asarray(t, dtype=float))), flow.levels[comes]),
        values=lambda t: flow.values(back(np.asarray(t, dtype=float))),
    )


def learned_modes(flow: Prediction, problem: Problem) -> list[tuple[float, float]]:
    """Drive and curvature of the direction of every drop; on a sample those of the strongest force before it."""
    L = problem.landscape
    if not isinstance(L, SampleLandscape):
        d = directions(problem.task)
        return [(float(d.drive[i]), float(d.curvature[i])) for i in flow.directions]
    return sample_modes(L, len(flow.directions))


def first_lag(flow: Prediction, problem: Problem, step: float, shrink: float, of_mode: float) -> float:
    """The lag of the first drop: of its whole head where that is one of rank one, else that of its mode."""
    d, heads = directions(problem.task), problem.heads
    key, query = heads.keys_and_queries
    head, direction = int(flow.heads[0]), int(flow.directions[0])
    if key.shape[1] > 1 or not d.commuting or min(head, direction) < 0:
        return of_mode
    found = head_lag(
        float(heads.value[head]), key[head, 0] @ d.left, query[head, 0] @ d.right, direction, d.drive, d.curvature,
        step, problem.beta, shrink,
    )  # fmt: skip
    return of_mode if found is None else found


def lagging_drop(plain: Prediction, flow: Prediction, problem: Problem) -> Prediction:
    """The drop of merged attention, iterated step by step."""
    heads, L = problem.heads, problem.landscape
    alpha = merged.alignment(L, heads.value, heads.key_query).alpha
    course = merged_steps(L, alpha, float(flow.levels[-1]), problem.lr * problem.rate, problem.beta, problem.shrink)
    if not len(course.time) or not len(flow.drop_times):
        return flow
    return flow.moved(
        np.array([course.half_time]),
        loss=lambda t: np.interp(t, course.time, course.loss),
        values=plain.unknown_values,
        method="reduced",
    )
