"""Gradient flow of one seed, until the asked time or until the loss has settled."""

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np

from iclflow.engines.flow import flow
from iclflow.engines.gram_loss import GramLoss
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.outcome import Outcome
from iclflow.models import Model, Weights
from iclflow.system.progress import Report
from iclflow.system.thinning import even_places
from iclflow.theory.decay import conserved_share
from iclflow.training.horizon import cap, last_forecast, relaxation
from iclflow.training.padding import padded
from iclflow.training.plan import Plan

__all__ = ["walk"]

AFTER = 1.05  # times the last forecast drop: where the flow begins to look whether it has settled
LINGER = 0.05  # of the time until the loss has settled: how much longer the flow goes on
QUIET, QUIET_SHARE = 1e-4, 0.2  # of the range of the loss, over the last share of the time


def walk(plan: Plan, seed: int, loss: MomentLoss | GramLoss, trained: Weights, report: Report) -> Outcome:
    """From the weights `trained` to where the flow ends, judged."""
    training, model = plan.training, plan.model
    start = 0.0 if plan.earlier is None else float(plan.earlier.time.values[-1])
    moments = loss if isinstance(loss, MomentLoss) else None
    known = moments is not None and model.linear_twin() is not None and training.weight_decay == 0
    floor, zero = plan.floor(moments) if moments and known else None, plan.zero_loss(loss)
    solved, begin, crop = padded(moments, trained) if plan.roomy and moments else (loss, trained, dict)
    goal, last, end = -np.inf, 0.0, start + (training.time or 0.0)
    if training.time is None and floor is not None and moments is not None:
        goal, end = plan.goal(floor, zero), cap(plan, moments, trained)
    elif training.time is None:
        last = last_forecast(plan, plan.initial(seed))
        end = 3 * last

    def share(now: float, value: float) -> float:
        """How much of the way has been gone, in time or, where a lowest loss is known, in loss."""
        part = now / end if goal == -np.inf else (zero - value) / (zero - goal)
        return float(np.clip(part, 0.0, 1.0))

    def leg(trained: Weights, start: float, until: float, goal: float = goal) -> Outcome:
        return flow(
            jax.device_put(solved),
            {name: np.asarray(array, dtype=float) for name, array in trained.items()},
            rate=plan.clock.rate, decay=training.weight_decay, start=start, end=until, tolerance=training.tolerance,
            zero_loss=zero, settled=lambda value: value <= goal,
            progress=lambda now, value: report(share(now, value), f"t/tau {now:.4g}, loss {value:.4g}"),
        )  # fmt: skip

    outcome = leg(begin, start, end) if last == 0 else until_quiet(leg, begin, start, last, end)
    if moments is not None and goal > -np.inf and outcome.why == "settled":
        outcome = lingering(leg, outcome, relaxation(moments, plan.clock.rate))
    parts = [crop(trained) for trained in outcome.snapshots]
    places = even_places(len(parts), training.records)
    left = conserved_share(float(outcome.times[-1] - outcome.times[0]), training.weight_decay / plan.clock.rate)
    detail = {
        **outcome.detail,
        "tolerance": training.tolerance,
        "conservation_drift": None if training.freeze_vectors else conservation_drift(model, parts, left),
        "lowest_loss": floor,
        "end_time": float(outcome.times[-1]),
    }
    status, why, warnings = judged(plan, outcome, floor)
    recorded, kept = outcome.recorded[places], [parts[i] for i in places]
    return replace(outcome, recorded=recorded, snapshots=kept, status=status, why=why, warnings=warnings, detail=detail)


def until_quiet(leg: Callable[..., Outcome], trained: Weights, start: float, last: float, cap: float) -> Outcome:
    """Past the last forecast drop, then until the loss moves by less than 1e-4 of its range in a fifth of the time."""
    outcome = leg(trained, start, AFTER * max(last, start))
    while outcome.why == "reached" and outcome.times[-1] < cap:
        now, before = float(outcome.times[-1]), outcome.losses[-1, 0]
        outcome = joined(outcome, leg(outcome.snapshots[-1], now, min(now / (1 - QUIET_SHARE), cap)))
        if abs(outcome.losses[-1, 0] - before) < QUIET * np.ptp(outcome.losses[:, 0]):
            return replace(outcome, why="settled") if outcome.why == "reached" else outcome
    return outcome


def lingering(leg: Callable[..., Outcome], outcome: Outcome, relaxing: float) -> Outcome:
    """Beyond the moment at which the loss has settled: until the last direction is learned, and its plateau is seen."""
    now = float(outcome.times[-1])
    later = leg(outcome.snapshots[-1], now, now + max(LINGER * now, relaxing), -np.inf)
    falls = bool((later.losses[:, 0] <= outcome.losses[-1, 0]).all())  # else what is left is less than the error
    return replace(joined(outcome, later), why="settled") if later.why == "reached" and falls else outcome


def joined(first: Outcome, second: Outcome) -> Outcome:
    """Two legs of the flow as one; the last point of one is the first point of the other."""
    return replace(
        second,
        times=np.concatenate([first.times, second.times[1:]]),
        losses=np.concatenate([first.losses, second.losses[1:]]),
        recorded=np.concatenate([first.recorded, second.recorded[1:] + len(first.times) - 1]),
        snapshots=[*first.snapshots, *second.snapshots[1:]],
        detail={**second.detail, "solver_steps": first.detail["solver_steps"] + second.detail["solver_steps"]},
    )


def judged(plan: Plan, outcome: Outcome, floor: float | None) -> tuple[str, str, tuple[str, ...]]:
    """Status, reason and warnings."""
    result = outcome.why
    if result == "settled" or (result == "reached" and plan.training.time is not None):
        return "ok", result, ()
    if result not in ("reached", "steps"):
        return "failed", result, ()
    last, end = outcome.losses[-1, 0], outcome.times[-1]
    cap = f"t/tau = {end:.4g}" if result == "reached" else f"{outcome.detail['solver_steps']} solver steps"
    lowest = "" if floor is None else f", lowest reachable {floor:.4g}"
    why = f"stopped at the cap, {cap}: loss {last:.4g} has not settled{lowest}"
    return "max_steps", why, (why,)


def conservation_drift(model: Model, parts: list[Weights], left: float) -> float | None:
    """How far differences of squared layer norms are from the share of them that is left: a measured global error.

    They are constants of the exact flow, or decay at twice the rate of weight decay.
    """
    if model.degree is None:
        return None
    first, last = layer_norms(model, parts[0]), layer_norms(model, parts[-1])
    moved = [np.abs((b - last[0]) - left * (a - first[0])).max() for a, b in zip(first[1:], last[1:], strict=True)]
    size = max(float(np.max(norm)) for norm in last)
    return float(max(moved) / size) if size > 0 else None


def layer_norms(model: Model, trained: Weights) -> list[np.ndarray]:
    """Squared Frobenius norms of every layer, head by head."""
    other_axes = lambda name: tuple(i for i in range(np.ndim(trained[name])) if i != model.head_axis(name))
    return [np.sum(np.asarray(trained[name]) ** 2, axis=other_axes(name)) for name in sorted(trained)]
