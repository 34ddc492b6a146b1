r"""When a run is expected to end: how many steps descent takes, and where a flow that does not settle is stopped.

Descent asks theory for the last drop from the initial weights, where there is theory. Everything else goes by a rule of
thumb: near a plateau with force $G$ (largest singular value $\sigma$) weights of size $\epsilon$ take a time of about
$1/(\sigma\epsilon)$ to escape with separate key and query and $\ln(1/\epsilon)/\sigma$ with merged ones. At the end the
slowest direction relaxes.
"""

import numpy as np
from jaxtyping import Float

from iclflow.config import Training
from iclflow.data.moments import AnyArray, Moments
from iclflow.engines.minimum import balanced_part, best_matrix, pseudo_inverse, search, size_of
from iclflow.engines.moment_loss import MomentLoss
from iclflow.errors import BadInput
from iclflow.models import Model, Weights
from iclflow.models.parts import empty, put_back
from iclflow.prediction.predict import predicted
from iclflow.prediction.problem import Problem
from iclflow.training.plan import Plan

__all__ = ["cap", "expected_end", "last_forecast"]

CAP = 30  # times the rule of thumb


def expected_end(plan: Plan, loss: MomentLoss, trained: Weights) -> float:
    """Expected time of the last drop and its relaxation, in t/tau."""
    last = last_drop(plan, loss, trained)
    return (escape(plan, loss, trained) if last is None else last) + relaxation(loss, plan.clock.rate)


def cap(plan: Plan, loss: MomentLoss, trained: Weights) -> float:
    """The time at which a flow is stopped that has not settled; no theory is asked, which the flow is held against."""
    return CAP * (escape(plan, loss, trained) + relaxation(loss, plan.clock.rate))


def last_forecast(plan: Plan, weights: Weights) -> float:
    """The last drop that theory forecasts on the population, in t/tau; with decay the last of those that come."""
    try:
        times = predicted(Problem.of(plan.task, plan.model, plan.training, weights)).drop_times
    except BadInput as reason:
        raise BadInput(f"time: must be given, because theory has no forecast ({reason})") from None
    if len(times) == 0:
        raise BadInput(f"time: must be given, because theory forecasts no drop for {plan.model.describe()}")
    return float(times[-1])


def last_drop(plan: Plan, loss: MomentLoss, trained: Weights) -> float | None:
    """The last drop that theory forecasts for the flow from these weights; `None` where there is none."""
    if not plan.label_only or plan.own is not None:
        return None
    weights = put_back(loss.model, empty(loss.model, plan.task), trained, plan.task, loss.moments.blocks)
    try:
        times = predicted(Problem.of(plan.task, loss.model, Training(), weights)).drop_times
    except BadInput:  # no theory, or outside its range, such as a covariance without full rank
        return None
    return float(times[-1]) if len(times) else None


def escape(plan: Plan, loss: MomentLoss, trained: Weights) -> float:
    """The time that weights of this size need to leave all plateaus, by the rule of thumb."""
    size = max(typical_size(trained), 1e-12)
    algebraic = loss.model.one_by_one
    forces = plateau_forces(loss, plan.label_only)
    return float(sum(plan.clock.rate * (1 / size if algebraic else np.log(2 + 1 / size)) / f for f in forces))


def typical_size(trained: Weights) -> float:
    """The smallest layer's root mean square: it is the one that makes the others wait."""
    entries = [np.abs(np.asarray(array)) for array in trained.values()]
    return float(min(np.sqrt(np.mean(a[a > 0] ** 2)) if (a > 0).any() else 0.0 for a in entries))


def plateau_forces(loss: MomentLoss, label_only: bool) -> list[float]:
    r"""$\sigma$ on every plateau: one per component, one per head where vector blocks learn too, or a single one."""
    model, moments = loss.model, loss.moments
    if label_only or moments.blocks == "label":
        count = model.components(size_of(moments)) if model.one_by_one else 1
        return [label_force(model, moments.label_part(), m) for m in range(count)]
    width = moments.dim + moments.out_dim
    heads = min(model.head_count(size_of(moments)), width if model.one_by_one else moments.out_dim * width)
    return [head_force(loss, used) for used in range(heads)]


def label_force(model: Model, label: Moments, m: int) -> float:
    """With the best `m` components learned."""
    A = best_matrix(label, m) if m else np.zeros((label.dim, label.dim))
    slope = np.asarray(label.loss_and_slope(model.theta(balanced_part(model, A, label)))[1])
    mean = np.einsum("ooab->ab", slope) / np.sqrt(label.out_dim)
    return max(float(np.linalg.norm(mean, 2 if model.one_by_one else "fro")), 1e-12)


def head_force(loss: MomentLoss, used: int) -> float:
    """With the best that `used` heads can do learned."""
    moments = loss.moments
    dim, width = moments.dim, moments.dim + moments.out_dim
    theta = np.zeros((moments.out_dim, width, width, dim))
    if used:
        model = loss.model.replace(heads=used)
        start = balanced_part(model, best_matrix(moments, model.components(size_of(moments))), moments)
        theta = model.theta(search(MomentLoss(moments, (), None, model), start, jitters=(0.1,), most=200)[1])
    slope = np.asarray(moments.loss_and_slope(theta)[1])
    return max(float(np.linalg.norm(slope.reshape(-1, width * dim), 2)), 1e-12)


def relaxation(loss: MomentLoss, rate: float) -> float:
    """Ten time constants of the slowest direction at the minimum."""
    label = loss.moments.label_part()
    slowest = smallest(label.left) * (1.0 if label.right is None else smallest(label.right))
    A = best_matrix(label, loss.model.components(size_of(label)))
    strength = np.sqrt(label.out_dim) * np.linalg.norm(A, 2)
    speed = strength ** (4 / 3) if loss.model.one_by_one else strength
    return 10 * label.out_dim * rate / (4 * slowest * max(speed, 1e-12))


def smallest(matrix: Float[AnyArray, "n n"]) -> float:
    """The smallest eigenvalue that is not zero to rounding."""
    return float(1 / np.linalg.norm(pseudo_inverse(matrix), 2))
