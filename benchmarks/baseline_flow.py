"""What the flow is held against: explicit steps alone, as in 0.1.0, and SciPy's LSODA with the exact Jacobian."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import iclflow as icl
from iclflow.config import Training
from iclflow.engines.field import Field, field_of
from iclflow.experiment import Experiment
from iclflow.training.plan import Plan

__all__ = ["by_explicit_steps", "by_lsoda", "equation"]

BURST = 512


def equation(task: icl.Task, model: icl.Model, **settings: Any) -> tuple[Field, jax.Array]:
    """The right-hand side and the initial state of `icl.train(task, model, **settings)`."""
    plan = Plan(Experiment(task=task, model=model, training=Training(**settings)))
    weights = plan.initial(0)
    blocks = plan.blocks(weights)
    loss, trained = plan.loss(0, weights, blocks, lambda *words: None), plan.trained_part(weights, blocks)
    with jax.enable_x64(True):
        field = field_of(jax.tree.map(jnp.asarray, loss), trained, plan.clock.rate, 0.0)
        return field, jnp.asarray(field.stack(trained))


@jax.jit
def explicit_burst(field: Field, y: Any, now: Any, end: Any, step: Any, tolerance: Any) -> Any:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, flat, args: field.velocity(flat.reshape(y.shape)).ravel()),
        diffrax.Tsit5(), now, end, step, y.ravel(),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=1e-3 * tolerance),
        saveat=diffrax.SaveAt(steps=True), max_steps=BURST, throw=False,
    )  # fmt: skip
    return solution.ts, solution.ys


def by_explicit_steps(field: Field, y: jax.Array, end: float, tolerance: float) -> int:
    """Walk to `end` as 0.1.0 did; returns the number of steps."""
    now, step, taken = 0.0, 1e-3, 0
    with jax.enable_x64(True):
        while now < end:
            numbers = map(jnp.asarray, (now, end, min(step, end - now), tolerance))
            times, states = explicit_burst(field, y, *numbers)
            times = np.asarray(times)
            count = int(np.isfinite(times).sum())
            step, now = float(times[count - 1] - (times[count - 2] if count > 1 else now)), float(times[count - 1])
            y, taken = states[count - 1].reshape(y.shape), taken + count
    return taken


def by_lsoda(field: Field, y: jax.Array, end: float, tolerance: float, init: float) -> int:
    """SciPy's LSODA, both callbacks compiled; tiny weights to the same relative tolerance. Returns evaluations."""
    with jax.enable_x64(True):
        velocity = jax.jit(lambda flat: field.velocity(flat.reshape(y.shape)).ravel())
        jacobian = jax.jit(jax.jacfwd(lambda flat: field.velocity(flat.reshape(y.shape)).ravel()))
        solution = solve_ivp(
            lambda t, flat: np.asarray(velocity(flat)), (0.0, end), np.asarray(y).ravel(), method="LSODA",
            jac=lambda t, flat: np.asarray(jacobian(flat)), rtol=tolerance, atol=tolerance * init,
        )  # fmt: skip
    if not solution.success:
        raise RuntimeError(solution.message)
    return int(solution.nfev)
