"""Gradient flow of one seed, until the asked time or until the loss has settled."""

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.engines.flow import FlowTrajectory, flow
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.verdict import Verdict
from iclflow.models import Weights
from iclflow.progress import Report
from iclflow.training.horizon import expected_end
from iclflow.training.padding import can_be_padded, padded
from iclflow.training.plan import Plan, Walked

__all__ = ["walk"]


def walk(plan: Plan, seed: int, loss: MomentLoss, part: Weights, report: Report) -> Walked:
    training = plan.training
    start = 0.0 if plan.earlier is None else float(plan.earlier.time.values[-1])
    floor, zero = plan.floor(loss), plan.zero_loss(loss)
    goal = plan.goal(floor, zero) if training.time is None else -np.inf
    end = start + training.time if training.time is not None else 3 * expected_end(plan, loss, part)
    solved, begin, crop = padded(loss, part) if plan.roomy and can_be_padded(loss) else (loss, part, dict)
    trajectory = flow(
        jax.tree.map(jnp.asarray, solved),
        {name: jnp.asarray(array) for name, array in begin.items()},
        rate=plan.rate, start=start, end=end, tolerance=training.tolerance, zero_loss=zero,
        settled=lambda value: value <= goal,
        progress=lambda now, value: report(min(now / end, 1.0), f"t/tau {now:.4g}, loss {value:.4g}"),
    )  # fmt: skip
    parts = [crop(part) for part in trajectory.parts]
    count = len(trajectory.times)
    recorded = np.unique(np.linspace(0, count - 1, min(training.records, count)).round().astype(int))
    detail = {
        "solver_steps": trajectory.solver_steps,
        "tolerance": training.tolerance,
        "conservation_drift": None if training.freeze_vectors else conservation_drift(parts),
        "lowest_loss": floor,
        "end_time": float(trajectory.times[-1]),
    }
    kept = [parts[i] for i in recorded]
    verdict = judged(plan, trajectory, floor)
    return Walked(trajectory.losses, trajectory.times, recorded, kept, verdict, [], detail)


def judged(plan: Plan, trajectory: FlowTrajectory, floor: float) -> Verdict:
    if trajectory.result == "settled" or (trajectory.result == "reached" and plan.training.time is not None):
        return Verdict("ok", trajectory.result)
    if trajectory.result not in ("reached", "steps"):
        return Verdict("failed", trajectory.result)
    last, end = trajectory.losses[-1, 0], trajectory.times[-1]
    cap = f"t/tau = {end:.4g}" if trajectory.result == "reached" else f"{trajectory.solver_steps} solver steps"
    why = f"stopped at the cap, {cap}: loss {last:.4g} has not settled, lowest reachable {floor:.4g}"
    plan.warnings.append(why)
    return Verdict("max_steps", why)


def conservation_drift(parts: list[Weights]) -> float:
    """How far differences of squared layer norms, constants of the exact flow, have moved: a measured global error."""
    first, last = layer_norms(parts[0]), layer_norms(parts[-1])
    moved = [np.abs((b - last[0]) - (a - first[0])).max() for a, b in zip(first[1:], last[1:], strict=True)]
    return float(max(moved) / max(float(np.max(norm)) for norm in last))


def layer_norms(part: Weights) -> list[np.ndarray]:
    """Squared Frobenius norms of every layer, head by head."""
    head_axis = {"second": 1}
    other_axes = lambda name, array: tuple(i for i in range(array.ndim) if i != head_axis.get(name, 0))
    arrays = {name: np.asarray(part[name]) for name in sorted(part)}
    return [np.sum(array**2, axis=other_axes(name, array)) for name, array in arrays.items()]
