"""Normalisations: training in one is training in another, step by step."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow import units
from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.models import MLP, Merged, Separate

N, D, HEADS = 5, 3, 2
SCALE = {"context": 1 / N, "tokens": 1 / (N + 1), "none": 1.0}


def merged_gradient(weights, scale, sums, targets):
    """Loss gradient of scale * v . sum(y x') U x_q on a handful of sequences, straight from the model."""
    v, U = weights
    read = np.einsum("pa,hab,pb->ph", sums[0], U, sums[1]) * scale
    error = (read @ v - targets) * 2 / len(targets)
    return [error @ read, np.einsum("p,h,pa,pb->hab", error * scale, v, *sums)]


def separate_gradient(weights, scale, sums, targets):
    v, K, Q = weights
    k, q = np.einsum("pa,hra->phr", sums[0], K), np.einsum("pa,hra->phr", sums[1], Q)
    read = scale * np.einsum("phr,phr->ph", k, q)
    error = (read @ v - targets) * 2 / len(targets)
    pull = scale * error[:, None] * v
    keys, queries = (
        np.einsum("ph,phr,pa->hra", pull, q, sums[0]),
        np.einsum("ph,phr,pa->hra", pull, k, sums[1]),
    )
    return [error @ read, keys, queries]


CASES = [
    (Merged(heads=HEADS), merged_gradient, [(HEADS,), (HEADS, D, D)]),
    (Separate(heads=HEADS, rank=2), separate_gradient, [(HEADS,), (HEADS, 2, D), (HEADS, 2, D)]),
]


def losses_and_weights(gradient, weights, scale, lr, sums, targets, steps=60):
    for _ in range(steps):
        weights = [w - lr * g for w, g in zip(weights, gradient(weights, scale, sums, targets), strict=True)]
    return weights


@pytest.mark.parametrize(("model", "gradient", "shapes"), CASES, ids=["merged", "separate"])
@pytest.mark.parametrize("start", SCALE)
@pytest.mark.parametrize("to", SCALE)
def test_converted_descent_is_the_same_descent_step_by_step(model, gradient, shapes, start, to):
    """[`normalisation`] 60 steps with converted weights and learning rate end in converted weights."""
    rng = np.random.default_rng(3)
    sums, targets = rng.standard_normal((2, 7, D)) * 2, rng.standard_normal(7)
    weights = [0.2 * rng.standard_normal(shape) for shape in shapes]
    task = Task(dim=D, context=N, normalize=start)
    lr = 0.02 / SCALE[start] ** (2 / model.degree) * 0.2
    new = units.convert(task, model, to, lr=lr, init=0.2)
    factor = new.init / 0.2
    here = losses_and_weights(gradient, weights, SCALE[start], lr, sums, targets)
    there = losses_and_weights(gradient, [factor * w for w in weights], SCALE[to], new.lr, sums, targets)
    assert np.abs(here[0] - weights[0]).max() > 1e-3
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(b, factor * a, rtol=1e-12)


@pytest.mark.parametrize("model", [Merged(), Separate(), MLP()], ids=["merged", "separate", "mlp"])
def test_clock_counts_two_learning_rates_a_step_and_rescales_only_without_a_normaliser(model):
    """[`clock`] The published settings: 2 lr N^(2/p) a step; `none` and `context` share one clock."""
    power = 2 / model.degree
    assert units.clock_rate(Task(context=31), model) == 2
    assert units.clock_rate(Task(context=31, normalize="tokens"), model) == 2
    bare = Task(context=31, normalize="none")
    for task in (bare, bare.replace(prefix_loss=True)):
        assert units.clock_rate(task, model) == pytest.approx(2 * 31**power, rel=1e-14)
    assert units.convert(bare, model, "context", time=7.0).time == pytest.approx(7.0)
    shorter = units.convert(Task(context=31, normalize="tokens"), model, "context", time=1.0).time
    assert shorter == pytest.approx((31 / 32) ** power)


def test_clock_divides_by_the_outputs_and_ignores_the_normaliser_of_softmax():
    assert units.clock_rate(Task(out_dim=4), Merged()) == 0.5
    assert units.clock_rate(Task(normalize="none"), Merged(softmax=True)) == 2
    assert units.to_paper_weights(Task(normalize="none"), Merged(softmax=True), 3.0) == 3.0


def test_paper_weights_are_the_ones_whose_prediction_has_one_over_n():
    """[`normalisation`] N^(1/p) moves the factor N of an unnormalised sum into the weights."""
    for model in (Merged(), Separate()):
        scale = units.to_paper_weights(Task(context=8, normalize="none"), model, np.array([1.0]))
        assert scale**model.degree / 8 == pytest.approx(1.0)
        assert units.to_paper_weights(Task(context=8, normalize="tokens"), model, 1.5) == 1.5


def test_conversions_without_meaning_are_refused_in_one_line():
    prefix = Task(prefix_loss=True)
    assert units.convert(prefix, Merged(), "context", lr=0.1) == (0.1, None, None, None)
    for task, model, to, word in (
        (prefix, Merged(), "tokens", "prefix_loss"),
        (prefix.replace(normalize="tokens"), Separate(), "context", "prefix_loss"),
        (Task(), Merged(softmax=True), "none", "softmax"),
        (Task(), Merged(), "paper", "must be one of"),
    ):
        with pytest.raises(BadInput, match=word) as caught:
            units.convert(task, model, to, lr=0.1)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("model", "power"), [(Merged(), 1), (Separate(), 2)], ids=["merged", "separate"])
@pytest.mark.parametrize("lr", [0.01, 0.003])
def test_descent_trails_the_flow_by_a_number_of_steps_that_no_learning_rate_changes(model, power, lr):
    """[`descent-lag`] Growth as w (merged) or w^2 (separate) up to a saturation, half of it reached late."""

    def speed(w):
        return w**power - w ** (power + 3)

    w0, half = 1e-3, 0.5
    flow = solve_ivp(lambda t, w: speed(w), (0, 2000), [w0], "DOP853", rtol=1e-11, atol=1e-14,
                     events=lambda t, w: w[0] - half)  # fmt: skip
    w, step = w0, 0
    while w < half:
        w, before, step = w + lr * speed(w), w, step + 1
    steps = step - (w - half) / (w - before)
    lag = steps - flow.t_events[0][0] / lr
    assert lag == pytest.approx(units.descent_lag(model, w0, half), abs=0.15 if power == 1 else 0.25)
    with pytest.raises(BadInput, match="initial"):
        units.descent_lag(model, 0.0, half)
