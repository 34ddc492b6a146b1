"""The ways to step the flow: orders, solves, agreement, heads at rest, and the price of a plateau."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import iclflow as icl
from iclflow.comparison.comparing import crossing
from iclflow.config import Training
from iclflow.engines import flow
from iclflow.engines.field import field_of, largest, sizes
from iclflow.engines.resting import at_rest
from iclflow.engines.rosenbrock import between, implicit_step
from iclflow.engines.tsitouras import explicit_step
from iclflow.experiment import Experiment
from iclflow.theory.landscape import directions
from iclflow.training.plan import Plan

TASK, MODEL = icl.Task(), icl.Separate(heads=5)


def field_and_state(task, model, decay=0.0, **settings):
    plan = Plan(Experiment(task=task, model=model, training=Training(**settings)))
    weights = plan.initial(0)
    blocks = plan.blocks(weights)
    loss, trained = plan.loss(0, weights, blocks, lambda *words: None), plan.trained_part(weights, blocks)
    field = field_of(jax.tree.map(jnp.asarray, loss), trained, plan.clock.rate, decay)
    return field, jnp.asarray(field.stack(trained))


END = 3.0


@pytest.fixture(scope="module")
def exact():
    """A small flow inside its drops, with its solution by SciPy."""
    field, y = field_and_state(icl.Task(dim=2, context=10), icl.Separate(heads=2), init=0.5)
    velocity = jax.jit(lambda flat: field.velocity(flat.reshape(y.shape)).ravel())
    right, begin = lambda t, flat: np.asarray(velocity(flat)), np.asarray(y).ravel()
    return field, y, solve_ivp(right, (0, END), begin, method="DOP853", rtol=1e-13, atol=1e-14, dense_output=True).sol


@pytest.mark.parametrize("step", [explicit_step, implicit_step])
def test_a_step_is_of_order_five_and_what_it_says_inside_of_order_four(exact, step):
    """Errors at a fixed time, over halved steps: slopes of the results, and of states at a third of every step."""
    field, begin, solution = exact
    one = jax.jit(lambda y, h: step(field, y, field.velocity(y), h))
    counts = np.array([6, 12, 24])
    errors, inside = [], []
    for count in counts:
        y, h, worst = begin, jnp.asarray(END / count), 0.0
        for i in range(count):
            y1, _, _, bend, *_ = one(y, h)
            third = between(y, y1, bend, 1 / 3)
            worst = max(worst, np.abs(third.ravel() - solution((i + 1 / 3) * float(h))).max())
            y = y1
        errors.append(np.abs(np.asarray(y).ravel() - solution(END)).max())
        inside.append(worst)
    slope = lambda values: -np.polyfit(np.log(counts), np.log(values), 1)[0]
    assert 4.6 < slope(errors) < 6.2
    assert slope(inside) > 3.6


@pytest.mark.parametrize(
    "settings", [{}, {"decay": 0.3}, {"samples": 300, "freeze_vectors": True, "init_law": "random"}]
)
def test_the_root_solves_with_the_jacobian(settings):
    """Against differences of the velocity, column by column, with decay and with weights that must not move."""
    field, y = field_and_state(TASK, MODEL, init=0.5, **settings)
    f = jax.jit(lambda flat: field.velocity(flat.reshape(y.shape)).ravel())
    flat, eps = y.ravel(), 1e-6
    columns = jax.vmap(lambda e: (f(flat + eps * e) - f(flat - eps * e)) / (2 * eps))(jnp.eye(len(flat)))
    mu, right = 3.0, f(flat)
    expected = np.linalg.solve(mu * np.eye(len(flat)) - np.asarray(columns).T, np.asarray(right))
    found = jax.jit(lambda r: field.solver(y, jnp.asarray(mu))(r))(right.reshape(y.shape))
    np.testing.assert_allclose(np.asarray(found).ravel(), expected, rtol=1e-6, atol=1e-9)


def drop_times(run):
    levels = icl.theory.plateau_losses(run.task)
    return np.array([crossing(run.time.values, run.loss.values, level) for level in (levels[:-1] + levels[1:]) / 2])


@pytest.fixture(scope="module")
def plateaus():
    """Runs with plateaus a thousand times as long as those of the first."""
    train = lambda init, tolerance: icl.train(TASK, MODEL, init=init, tolerance=tolerance)
    return {key: train(*key) for key in [(1e-2, 1e-9), (1e-5, 1e-9), (1e-5, 1e-11)]}


def test_the_cost_of_a_plateau_does_not_grow_with_its_length(plateaus):
    short, long = plateaus[1e-2, 1e-9], plateaus[1e-5, 1e-9]
    steps = [run.summary["runs"][0]["solver_steps"] for run in (short, long)]
    assert drop_times(long)[-1] > 900 * drop_times(short)[-1]
    assert steps[1] < 3 * steps[0]


def test_drop_times_do_not_depend_on_the_tolerance(plateaus):
    np.testing.assert_allclose(drop_times(plateaus[1e-5, 1e-9]), drop_times(plateaus[1e-5, 1e-11]), rtol=1e-6)


def test_conservation_laws_hold_over_long_plateaus(plateaus):
    for (_, tolerance), run in plateaus.items():
        assert run.summary["runs"][0]["conservation_drift"] < max(10 * tolerance, 1e-10)


def test_explicit_steps_alone_give_the_same_curve(plateaus, monkeypatch):
    monkeypatch.setattr("iclflow.engines.flow.price", lambda size: np.inf)
    run, both = icl.train(TASK, MODEL, init=1e-2), plateaus[1e-2, 1e-9]
    assert run.summary["runs"][0]["solver_steps"] > 1.2 * both.summary["runs"][0]["solver_steps"]
    np.testing.assert_allclose(drop_times(run), drop_times(both), rtol=1e-6)


def test_every_saved_time_is_close_to_the_one_before(plateaus):
    """However long the steps of the solver are."""
    for run in plateaus.values():
        time, loss = run.time.values, run.loss.values
        assert np.abs(np.diff(loss)).max() < 3 * 5e-4 * loss[0]
        assert (np.diff(time) / (time[:-1] + 5)).max() < 1.01**3 - 1


def test_weights_are_kept_wherever_they_move():
    """Inside a head of rank two a key turns while the loss rests: no two saved weights are far apart."""
    run = icl.train(icl.Task(), icl.Separate(heads=3, rank=2), init=5e-3, tolerance=1e-12, records=20_000)
    value = run.weights["value"].values.reshape(run.weights.sizes["record"], -1)
    assert np.abs(np.diff(value, axis=0)).max() < 0.015 * np.abs(value).max()


def state_at(field, run, record):
    """The label blocks of a record, stacked."""
    dim = run.task.dim
    blocks = {"value": np.s_[:, dim:, dim:], "key": np.s_[:, :, :dim], "query": np.s_[:, :, :dim]}
    return jnp.asarray(field.stack({name: run.weights[name].values[record][block] for name, block in blocks.items()}))


@pytest.fixture(scope="module")
def resting():
    """The field of a run, and its states half-way through the second plateau and in the second drop."""
    run = icl.train(TASK, MODEL, init=1e-5, records=20_000)
    field, _ = field_and_state(TASK, MODEL, init=1e-5)
    drops, times = drop_times(run), run.weights.time.values
    return field, *(state_at(field, run, int(np.searchsorted(times, time))) for time in (drops[:2].mean(), drops[1]))


NEARLY = jnp.asarray(1e-9)


def test_learned_heads_rest_on_a_plateau_and_move_in_a_drop(resting):
    field, plateau, drop = resting
    still, yes = jax.jit(lambda y: at_rest(field, y, NEARLY))(plateau)
    assert yes
    assert int(still.small.sum()) == MODEL.heads - 1
    assert not jax.jit(lambda y: at_rest(field, y, NEARLY)[1])(drop)


def test_a_head_that_could_leave_its_place_is_not_at_rest():
    """One head holds the second direction, where its velocity is zero, and would turn to the first, still unlearned."""
    task = icl.Task(basis="identity")
    field, y = field_and_state(task, MODEL, init=1e-5)
    size = np.cbrt(directions(task).strength[1])
    head = {name: size * np.eye(4)[1][None, None] for name in ("key", "query")}
    y = y.at[0].set(field.stack({"value": np.full((1, 1, 1), size), **head})[0])
    assert float(largest(field.velocity(y)[:1], sizes(y)[:1])) < 1e-8
    assert not jax.jit(lambda y: at_rest(field, y, NEARLY)[1])(y)


def test_what_rests_is_where_the_small_heads_pull_it(resting):
    """Less than a thousandth of their force, which is cubic in their size, is left on it there."""
    field, plateau, _ = resting
    still, _ = jax.jit(lambda y: at_rest(field, y, NEARLY))(plateau)
    force = lambda y: np.abs(np.where(still.small, 0.0, field.velocity(y))).max()
    pulled = [jnp.where(still.small, factor * plateau, plateau) for factor in (100.0, 200.0)]
    assert force(pulled[1]) == pytest.approx(8 * force(pulled[0]), rel=0.01)
    for y in pulled:
        assert force(still.placed(y)) < 1e-3 * force(y)


def test_resting_heads_change_nothing_but_the_price(plateaus, monkeypatch):
    """The same curve without ever resting them, by many more implicit steps."""
    methods, burst = [], flow.burst

    def counted(*given, method):
        found = burst(*given, method=method)
        methods.extend([method] * int(found[0]))
        return found

    monkeypatch.setattr(flow, "burst", counted)
    icl.train(TASK, MODEL, init=1e-5)
    rested, methods[:] = list(methods), []
    monkeypatch.setattr(flow, "PATIENCE", (np.inf, 1.0))
    run = icl.train(TASK, MODEL, init=1e-5)
    assert rested.count("resting") > 100
    assert "resting" not in methods
    assert 2 * rested.count("implicit") < methods.count("implicit")
    np.testing.assert_allclose(drop_times(plateaus[1e-5, 1e-9]), drop_times(run), rtol=1e-7)
