"""Gradient descent of one seed, on moments or on tokens."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.config.training import GIVEN
from iclflow.engines.descent import descend
from iclflow.engines.gram_loss import GramLoss
from iclflow.engines.minimum import stable_step
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.outcome import Outcome, finite_or_none
from iclflow.engines.token_loss import TokenLoss
from iclflow.engines.verdict import Kind, judge_descent
from iclflow.errors import BadInput
from iclflow.models import Weights
from iclflow.system.progress import Report
from iclflow.training.batches import batches_of
from iclflow.training.padding import padded
from iclflow.training.plan import Plan

__all__ = ["walk"]

MOST_STEPS = 5_000_000  # the default limit


def walk(plan: Plan, seed: int, loss: MomentLoss | TokenLoss | GramLoss, trained: Weights, report: Report) -> Outcome:
    """From the weights `trained` to where descent ends, judged."""
    training = plan.training
    dtype = np.dtype(training.dtype)
    sizes = size_up(plan, seed, loss, trained)
    first_step = 0 if plan.earlier is None else plan.earlier.curves.sizes["step"] - 1
    batches, longest = batches_of(plan, seed)
    crop: Callable[[Weights], Weights] = dict
    if isinstance(loss, MomentLoss):
        if plan.roomy:
            loss, trained, crop = padded(loss, trained)
        loss = jax.tree.map(lambda a: jnp.asarray(a, dtype), loss)
    trained = {name: jnp.asarray(array, dtype) for name, array in trained.items()}
    outcome = descend(
        loss, trained,
        rule=plan.rule, lr=sizes.lr, decay=training.weight_decay, steps=sizes.steps, clock=plan.clock.time(sizes.lr),
        records=training.records, spacing=training.spacing,
        first_step=first_step, optimizer_state=remembered(plan, trained),
        batches=batches, segment=longest, settled=lambda value: value <= sizes.goal,
        progress=lambda step, value: report((step - first_step) / sizes.steps, f"step {step}, loss {value:.4g}"),
    )  # fmt: skip
    status, why, warnings = judged(plan, sizes, outcome.losses[:, 0])
    stable = finite_or_none(sizes.stable()) if plan.with_stable_step else None
    detail = {"lr": sizes.lr, "stable_step": stable, "lowest_loss": sizes.floor}
    snapshots = [crop(snapshot) for snapshot in outcome.snapshots]
    return replace(outcome, snapshots=snapshots, status=status, why=why, warnings=warnings, detail=detail)


@dataclass(frozen=True)
class Sizes:
    """Learning rate, steps, and when to stop: as asked, or from the moments."""

    stable: Callable[[], float]  # the largest stable step, as far as it is known; it takes a while
    lr: float
    steps: int
    zero: float
    floor: float | None
    goal: float
    exact: bool  # whether the stable step is that of the model and data themselves


def size_up(plan: Plan, seed: int, loss: MomentLoss | TokenLoss | GramLoss, trained: Weights) -> Sizes:
    training = plan.training
    exact = loss if isinstance(loss, MomentLoss) and plan.model.linear_twin() is not None else None
    asked = training.lr is not None and training.steps is not None
    guide = exact if exact is not None or asked else plan.linear_twin(seed)
    stable = cache(lambda: math.inf if guide is None else stable_step(guide))
    lr = training.lr or default_rate(training.optimizer, stable, exact is not None)
    zero = plan.zero_loss(loss)
    if training.steps is not None:
        return Sizes(stable, lr, training.steps, zero, None, -math.inf, exact is not None)
    assert guide is not None, "an experiment without a linear twin says how many steps it takes"
    from iclflow.training.horizon import expected_end  # brings all of theory along

    floor = None if exact is None else plan.floor(exact)
    start = trained if exact is not None else plan.trained_part(plan.initial(seed), "label")
    end = expected_end(plan, guide, start)
    steps = min(int(np.ceil(3 * end / plan.clock.flow_time(lr))), MOST_STEPS)
    goal = -math.inf if floor is None else plan.goal(floor, zero)
    return Sizes(stable, lr, steps, zero, floor, goal, exact is not None)


def default_rate(optimizer: str, stable: Callable[[], float], exact: bool) -> float:
    """Half the stable step; less for momentum, which multiplies it by ten, and where the step is only estimated."""
    if optimizer in ("adam", "muon"):
        return 1e-3
    if optimizer.startswith(GIVEN):
        return 1.0
    return stable() / 2 * (0.1 if optimizer == "momentum" else 1.0) * (1.0 if exact else 0.2)


def remembered(plan: Plan, trained: dict[str, jax.Array]) -> Any:
    """The optimiser's state at the end of an earlier run, in the shape that optax gives it."""
    if plan.earlier is None:
        return None
    template = plan.rule.initial_state(trained)
    kept = [jnp.asarray(plan.earlier.optimizer_state[str(i)]) for i in range(len(plan.earlier.optimizer_state))]
    if [leaf.shape for leaf in kept] != [jnp.shape(leaf) for leaf in jax.tree.leaves(template)]:
        raise BadInput("optimizer: must be the one that this run was trained with; its state does not fit this one")
    return jax.tree.unflatten(jax.tree.structure(template), kept)


def step_warnings(plan: Plan, sizes: Sizes) -> list[str]:
    """Whether the step is too large at the minimum, or will be after some drop although it is stable at first."""
    rule = plan.training.optimizer
    if not plan.with_stable_step or not sizes.exact or rule not in ("sgd", "momentum"):
        return []
    from iclflow.prediction.edges import edge_warning  # brings all of theory along

    beta = plan.training.beta if rule == "momentum" else 0.0
    edge = edge_warning(plan.task, plan.model, sizes.lr, beta) if plan.label_only else None
    if rule == "sgd" and sizes.lr > sizes.stable():
        too_large = f"lr = {sizes.lr:.4g} exceeds the stable step at the minimum, {sizes.stable():.4g}"
        return [too_large if edge is None else f"{too_large}; {edge}"]
    return [] if edge is None else [edge]


def judged(plan: Plan, sizes: Sizes, losses: np.ndarray) -> tuple[str, str, tuple[str, ...]]:
    """Status, reason and warnings."""
    training, warnings = plan.training, step_warnings(plan, sizes)
    full_batch: Kind = "monotone" if training.optimizer == "sgd" else "smooth"
    status, why = judge_descent(losses, sizes.zero, full_batch if training.batch is None else "noisy")
    if status in ("unstable", "diverged"):
        limit = f", stable up to {sizes.stable():.4g}" if math.isfinite(sizes.stable()) else ""
        return status, f"{why}; lr = {sizes.lr:.4g}{limit}", tuple(warnings)
    if training.steps is None and not losses[-1] <= sizes.goal:
        lowest = "" if sizes.floor is None else f", lowest reachable {sizes.floor:.4g}"
        why = f"stopped at the cap of {sizes.steps} steps, not known to have settled: loss {losses[-1]:.4g}{lowest}"
        return "max_steps", why, (*warnings, why)
    return status, why, tuple(warnings)
