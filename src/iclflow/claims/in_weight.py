"""In-context against in-weight learning: rates, half-drop steps, levels and phases for six fractions p."""

from functools import cache

import numpy as np

import iclflow as icl
from iclflow.claims.registry import claim, shifted
from iclflow.comparison.comparing import crossing
from iclflow.comparison.gains import paper_weights
from iclflow.data.moments import half_index
from iclflow.data.population import population_moments
from iclflow.results.run import Run
from iclflow.theory import in_weight
from iclflow.units import clock_rate, descent_lag

__all__: list[str] = []

TASK = icl.Task(dim=4, context=31, spectrum="white", normalize="none")
MODEL = icl.Merged(heads=8)
FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LR, STEPS = 5e-4, 6000


def with_fraction(p: float, offset: int = 0) -> icl.Task:
    return shifted(TASK, offset).replace(icl_fraction=p)


@cache
def published_run(p: float, offset: int) -> Run:
    """The published setting on the population; its two test losses are exact too."""
    return icl.train(with_fraction(p, offset), MODEL, init=1e-6, lr=LR, steps=STEPS, test_samples=1, seed=offset)


@claim(
    "iwl-rates",
    "Small weights grow at rates that are the singular values of the cross tensor, including its in-weight parts.",
    source="beyond the paper",
    quantity="largest relative error of the five rates over six p, from the moments that training uses",
    bound=1e-6,
    quick=True,
)
def early_rates(sabotage: bool = False, offset: int = 0) -> float:
    errors = []
    for p in FRACTIONS:
        moments = population_moments(with_fraction(p), "context", "all")
        pairs = np.asarray(moments.cross)[0].reshape(-1, TASK.dim)
        tensor = pairs[half_index(TASK.dim + 1)].reshape(TASK.dim + 1, -1)
        context = 2 * TASK.context if sabotage else TASK.context
        predicted = in_weight.escape(with_fraction(p).replace(context=context)).rates
        errors.append(np.abs(np.linalg.svd(tensor)[1] / predicted - 1).max())
    return float(max(errors))


def expected_half_step(run: Run, p: float) -> float:
    """The half-drop time of the flow in steps, plus the steps by which descent lags behind it."""
    task = run.task.replace(icl_fraction=p)
    weights = paper_weights(MODEL, run.initial_weights, task)
    alpha = in_weight.growing_part(task, weights["value"][:, TASK.dim], weights["key_query"][:, :, : TASK.dim])
    time = in_weight.half_time(task, alpha)
    s, v = in_weight.course(task, alpha, np.array([0.0, time])).scalars[-1, :2]
    return time / (clock_rate(task, MODEL) * LR) + descent_lag(MODEL, np.sqrt(alpha), np.hypot(s, v))


@claim(
    "iwl-half-steps",
    "With white tokens and merged weights of 1e-6 an entry (8 heads, the published setting on the population), five"
    " numbers determine when the first drop comes, for p from pure in-weight to pure in-context learning.",
    source="Fig. 14",
    quantity="largest relative error of the half-drop step over p = 0, .2, .4, .6, .8, 1",
    bound=0.0025,
    seeds="0",
)
def half_drop_steps(sabotage: bool = False, offset: int = 0) -> float:
    errors = []
    for p in FRACTIONS:
        run = published_run(p, offset)
        middle = (1 + in_weight.resting_point(run.task).train) / 2
        observed = crossing(np.arange(STEPS + 1.0), run.loss.values, middle)
        predicted = expected_half_step(run, 1.0 if sabotage else p)
        errors.append(np.inf if observed is None else abs(predicted / observed - 1))
    return float(max(errors))


@claim(
    "iwl-level",
    "Pure in-weight learning (published setting, white tokens, 1e-6 an entry), read out through the mean squared label,"
    " first plateaus at 2/(N+2) of the initial loss.",
    source="beyond the paper",
    quantity="relative error of the loss of the population run at p = 0",
    bound=2e-6,
    seeds="0",
    quick=True,
)
def level_of_in_weight_learning(sabotage: bool = False, offset: int = 0) -> float:
    run = published_run(0.0, offset)
    predicted = in_weight.in_weight_plateau(TASK.context + sabotage)
    return float(abs(run.loss[-1] / run.loss[0] / predicted - 1))


@claim(
    "iwl-in-context-test",
    "On in-context sequences, pure in-weight learning (published setting) is worse than predicting zero: its loss is"
    " 2.409 for N = 31.",
    source="beyond the paper",
    quantity="relative error of the in-context test loss at p = 0",
    bound=4e-5,
    seeds="0",
    quick=True,
)
def in_context_test_of_in_weight_learning(sabotage: bool = False, offset: int = 0) -> float:
    predicted = in_weight.in_context_loss_of_in_weight_solution(TASK.dim, TASK.context + sabotage)
    return float(abs(published_run(0.0, offset).loss_icl[-1] / predicted - 1))


@claim(
    "iwl-in-weight-test",
    "Where labels carry no information, pure in-context learning (published setting) is worse than predicting zero: its"
    " loss is 1.0957 for N = 31.",
    source="beyond the paper",
    quantity="relative error of the in-weight test loss at p = 1",
    bound=1e-8,
    seeds="0",
    quick=True,
)
def in_weight_test_of_in_context_learning(sabotage: bool = False, offset: int = 0) -> float:
    predicted = in_weight.in_weight_loss_of_in_context_solution(TASK.dim, TASK.context + sabotage)
    return float(abs(published_run(1.0, offset).loss_iwl[-1] / predicted - 1))


def missing_phases(in_weight_loss: np.ndarray, in_context_loss: np.ndarray) -> int:
    """How many of three do not occur: in-weight loss falls first, in-context loss next, in-weight loss rises again."""
    steps = np.arange(len(in_weight_loss), dtype=float)
    best, last = in_weight_loss.min(), in_context_loss[-1]
    first = crossing(steps, in_weight_loss, (in_weight_loss[0] + best) / 2)
    second = crossing(steps, in_context_loss, (in_context_loss[0] + last) / 2)
    falls = best < 0.75 * in_weight_loss[0]
    after = last < 0.75 * in_context_loss[0] and first is not None and second is not None and first < second
    rises = in_weight_loss[-1] > (in_weight_loss[0] + best) / 2
    return [falls, after, rises].count(False)


@claim(
    "iwl-phases",
    "When some sequences share a task (published setting, white tokens, 1e-6 an entry), the network learns first in"
    " weights, then in context, and unlearns the former.",
    source="Fig. 14",
    quantity="phases missing from the two test losses, out of three for each of p = .4, .6, .8",
    bound=0,
    seeds="0",
    quick=True,
)
def phases_of_learning(sabotage: bool = False, offset: int = 0) -> float:
    missing = 0
    for p in (0.4, 0.6, 0.8):
        curves = [published_run(p, offset).curves[name].values for name in ("loss_iwl", "loss_icl")]
        missing += missing_phases(*(curves[::-1] if sabotage else curves))
    return float(missing)
