"""Gradient flow of one seed, until the asked time or until the loss has settled."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.engines.flow import flow
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.outcome import Outcome
from iclflow.models import Model, Weights
from iclflow.system.progress import Report
from iclflow.system.thinning import even_places
from iclflow.training.horizon import expected_end
from iclflow.training.padding import padded
from iclflow.training.plan import Plan

__all__ = ["walk"]


def walk(plan: Plan, seed: int, loss: MomentLoss, trained: Weights, report: Report) -> Outcome:
    """From the weights `trained` to where the flow ends, judged."""
    training, model = plan.training, plan.model
    start = 0.0 if plan.earlier is None else float(plan.earlier.time.values[-1])
    floor, zero = None if model.linear_twin() is None else plan.floor(loss), plan.zero_loss(loss)
    if training.time is None:
        assert floor is not None, "an experiment without a lowest loss says how long it flows"
        goal, end = plan.goal(floor, zero), 3 * expected_end(plan, loss, trained)
    else:
        goal, end = -np.inf, start + training.time
    solved, begin, crop = padded(loss, trained) if plan.roomy else (loss, trained, dict)
    outcome = flow(
        jax.tree.map(jnp.asarray, solved),
        {name: jnp.asarray(array) for name, array in begin.items()},
        rate=plan.rate, decay=training.weight_decay, start=start, end=end, tolerance=training.tolerance, zero_loss=zero,
        settled=lambda value: value <= goal,
        progress=lambda now, value: report(min(now / end, 1.0), f"t/tau {now:.4g}, loss {value:.4g}"),
    )  # fmt: skip
    parts = [crop(trained) for trained in outcome.snapshots]
    recorded = even_places(len(outcome.times), training.records)
    detail = {
        **outcome.detail,
        "tolerance": training.tolerance,
        "conservation_drift": None
        if training.freeze_vectors or training.weight_decay
        else conservation_drift(model, parts),
        "lowest_loss": floor,
        "end_time": float(outcome.times[-1]),
    }
    status, why, warnings = judged(plan, outcome, floor)
    kept = [parts[i] for i in recorded]
    return replace(outcome, recorded=recorded, snapshots=kept, status=status, why=why, warnings=warnings, detail=detail)


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


def conservation_drift(model: Model, parts: list[Weights]) -> float | None:
    """How far differences of squared layer norms, constants of the exact flow, have moved: a measured global error."""
    if model.degree is None:
        return None
    first, last = layer_norms(model, parts[0]), layer_norms(model, parts[-1])
    moved = [np.abs((b - last[0]) - (a - first[0])).max() for a, b in zip(first[1:], last[1:], strict=True)]
    return float(max(moved) / max(float(np.max(norm)) for norm in last))


def layer_norms(model: Model, trained: Weights) -> list[np.ndarray]:
    """Squared Frobenius norms of every layer, head by head."""
    other_axes = lambda name: tuple(i for i in range(np.ndim(trained[name])) if i != model.head_axis(name))
    return [np.sum(np.asarray(trained[name]) ** 2, axis=other_axes(name)) for name in sorted(trained)]
