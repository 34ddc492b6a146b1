"""Gradient descent of one seed, on moments or on tokens."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.config import Training
from iclflow.engines.descent import RULES, descend
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.reach import stable_step
from iclflow.engines.token_loss import TokenLoss
from iclflow.engines.verdict import Kind, Verdict, judge_descent
from iclflow.models import Weights
from iclflow.progress import Report
from iclflow.run import finite_or_none
from iclflow.training.feeding import feeder
from iclflow.training.padding import can_be_padded, padded
from iclflow.training.plan import Plan, Walked

__all__ = ["walk"]

MOST_STEPS = 5_000_000  # the cap that nobody asked for


def walk(plan: Plan, seed: int, loss: MomentLoss | TokenLoss, part: Weights, report: Report) -> Walked:
    training, exact = plan.training, isinstance(loss, MomentLoss)
    dtype = np.dtype(training.dtype)
    sizes = Sizes(plan, seed, loss, part)
    first_step = 0 if plan.earlier is None else plan.earlier.curves.sizes["step"] - 1
    feeds, longest = feeder(plan, seed)
    roomy = plan.roomy and isinstance(loss, MomentLoss) and can_be_padded(loss)
    solved, begin, crop = padded(loss, part) if roomy else (loss, part, dict)
    part = {name: jnp.asarray(array, dtype) for name, array in begin.items()}
    trajectory = descend(
        jax.tree.map(lambda a: jnp.asarray(a, dtype), solved) if exact else loss,
        part,
        rule=training.optimizer, lr=sizes.lr, steps=sizes.steps,
        records=training.records, spacing=training.spacing,
        first_step=first_step, optimizer_state=remembered(plan, part),
        feeds=feeds, segment=longest, settled=sizes.settled,
        progress=lambda step, value: report((step - first_step) / sizes.steps, f"step {step}, loss {value:.4g}"),
    )  # fmt: skip
    losses = whole_length(trajectory.losses, sizes.steps).astype(np.float64)
    verdict = judged(plan, sizes, losses[:, 0])
    times = plan.rate * sizes.lr * (first_step + np.arange(len(losses)))
    state = [np.asarray(leaf) for leaf in jax.tree.leaves(trajectory.optimizer_state)]
    detail = {"lr": sizes.lr, "stable_step": finite_or_none(sizes.stable), "lowest_loss": sizes.floor}
    recorded = trajectory.recorded - first_step
    snapshots = [crop(snapshot) for snapshot in trajectory.snapshots]
    return Walked(losses, times, recorded, snapshots, verdict, state, detail)


class Sizes:
    """Learning rate, steps, and when to stop: as asked, or from the moments."""

    def __init__(self, plan: Plan, seed: int, loss: MomentLoss | TokenLoss, part: Weights):
        training, exact = plan.training, isinstance(loss, MomentLoss)
        asked = training.lr is not None and training.steps is not None
        guide = loss if exact else None if asked else plan.linear_twin(seed)
        self.stable = math.inf if guide is None else stable_step(guide)
        self.lr = training.lr or default_rate(training.optimizer, self.stable, exact)
        self.zero = plan.zero_loss(loss)
        self.floor: float | None = None
        self.steps = training.steps or 0
        if training.steps is None:
            self.floor = plan.floor(loss) if exact else None
            from iclflow.training.horizon import expected_end  # brings all of theory along

            start = part if exact else plan.trained_part(plan.initial(seed), "label")
            end = expected_end(plan, guide, start)
            self.steps = min(int(np.ceil(3 * end / (plan.rate * self.lr))), MOST_STEPS)
        self.goal = -math.inf if self.floor is None else plan.goal(self.floor, self.zero)
        if exact and training.optimizer == "sgd" and self.lr > self.stable:
            plan.warnings.append(f"lr = {self.lr:.4g} exceeds the stable step at the minimum, {self.stable:.4g}")

    def settled(self, value: float) -> bool:
        return value <= self.goal


def default_rate(optimizer: str, stable: float, exact: bool) -> float:
    """Half the stable step; less for momentum, which multiplies it by ten, and where the step is only estimated."""
    if optimizer == "adam":
        return 1e-3
    return stable / 2 * (0.1 if optimizer == "momentum" else 1.0) * (1.0 if exact else 0.2)


def remembered(plan: Plan, part: dict[str, jax.Array]) -> Any:
    """The optimiser's state at the end of an earlier run, in the shape that optax gives it."""
    if plan.earlier is None:
        return None
    template = RULES[plan.training.optimizer]().init(part)
    leaves = [plan.earlier.optimizer_state[str(i)] for i in range(len(jax.tree.leaves(template)))]
    return jax.tree.unflatten(jax.tree.structure(template), [jnp.asarray(leaf) for leaf in leaves])


def whole_length(losses: np.ndarray, steps: int) -> np.ndarray:
    """A run that blew up stops early; its curve still has a value for every step."""
    if np.isfinite(losses[-1, 0]) or len(losses) == steps + 1:
        return losses
    return np.pad(losses, [(0, steps + 1 - len(losses)), (0, 0)], constant_values=np.nan)


def judged(plan: Plan, sizes: Sizes, losses: np.ndarray) -> Verdict:
    training: Training = plan.training
    full_batch: Kind = "monotone" if training.optimizer == "sgd" else "smooth"
    verdict = judge_descent(losses, sizes.zero, full_batch if training.batch is None else "noisy")
    if verdict.status in ("unstable", "diverged"):
        limit = f", stable up to {sizes.stable:.4g}" if math.isfinite(sizes.stable) else ""
        return Verdict(verdict.status, f"{verdict.why}; lr = {sizes.lr:.4g}{limit}")
    if training.steps is None and not sizes.settled(float(losses[-1])):
        lowest = "" if sizes.floor is None else f", lowest reachable {sizes.floor:.4g}"
        why = f"stopped at the cap of {sizes.steps} steps, not known to have settled: loss {losses[-1]:.4g}{lowest}"
        plan.warnings.append(why)
        return Verdict("max_steps", why)
    return verdict
