"""Theory of depth against finite differences, one layer, closed forms, and the flow of its own equations."""

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import iclflow as icl
from commands import call
from iclflow.errors import BadInput, IclflowError
from iclflow.theory import depth
from iclflow.theory.contexts import best_state, lowest_loss_and_error
from iclflow.theory.equations import Layout
from iclflow.theory.landscape import landscape, plateau_losses

TASK = icl.Task(dim=2, context=20)


def small_weights(seed, rows=2, heads=3, size=5e-3, dim=2):
    draw = np.random.default_rng(seed).standard_normal
    return size * draw((rows, heads)), size * draw((rows, heads, dim)), size * draw((rows, heads, dim))


def follow(source, value, key, query, end):
    """The flow of the label blocks themselves, every head of every layer, by an integrator without events."""
    shape = (*value.shape, 1 + 2 * source.dim)
    parts = lambda y: np.split(y.reshape(shape), [1, 1 + source.dim], axis=2)
    matrix = lambda v, k, q: np.einsum("lhi,lha,lhb->lab", v, k, q)

    def velocity(_, y):
        v, k, q = parts(y)
        G = source.loss_and_forces(matrix(v, k, q))[1]
        push, pull = np.einsum("lab,lhb->lha", G, q), np.einsum("lab,lha->lhb", G, k)
        return np.concatenate([np.sum(k * push, axis=2, keepdims=True), v * push, v * pull], axis=2).ravel()

    start = np.concatenate([value[..., None], key, query], axis=2).ravel()
    course = solve_ivp(velocity, (0, end), start, method="LSODA", rtol=1e-7, atol=1e-10)
    return course.t, np.array([source.loss(matrix(*parts(y))) for y in course.y.T]), parts(course.y[:, -1])


@pytest.mark.parametrize(("rows", "loops"), [(2, 1), (1, 3)])
def test_forces_are_half_the_slope_of_the_loss(rows, loops):
    """[`depth-loss`]"""
    source = depth.contexts(icl.Task(dim=3, task_spectrum="linear"), 16, loops=loops)
    A, step = np.random.default_rng(0).standard_normal((rows, 3, 3)), 1e-6
    forces = source.loss_and_forces(A)[1]
    for index in np.ndindex(A.shape):
        high, low = A.copy(), A.copy()
        high[index] += step
        low[index] -= step
        assert -(source.loss(high) - source.loss(low)) / (4 * step) == pytest.approx(forces[index], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(("rows", "loops"), [(1, 1), (2, 1), (3, 1), (1, 3)])
def test_stiffness_is_minus_the_slope_of_the_forces(rows, loops):
    """[`depth-loss`]"""
    source = depth.contexts(icl.Task(dim=3, task_spectrum="linear"), 16, loops=loops)
    A, step = np.random.default_rng(1).standard_normal((rows, 3, 3)), 1e-5
    stiffness = source.stiffness(A)
    for index in np.ndindex(A.shape):
        high, low = A.copy(), A.copy()
        high[index] += step
        low[index] -= step
        slope = (source.loss_and_forces(high)[1] - source.loss_and_forces(low)[1]) / (2 * step)
        np.testing.assert_allclose(stiffness[(..., *index)], -slope, atol=1e-8 * np.abs(stiffness).max())


def test_the_solver_is_given_the_derivative_of_the_velocity_and_its_inverse():
    flow, step = depth.LayeredFlow(depth.contexts(TASK, 16), Layout(1, 2, 0, 1.0)), 1e-5
    rows = np.random.default_rng(2).standard_normal((2, 3, 5))
    linear = flow.linear(rows, flow.source.loss_and_forces(flow.layout.matrix(rows))[1])
    J = linear.jacobian(np.ones(6, dtype=bool))
    ends = ((flow.velocity(rows + e), flow.velocity(rows - e)) for e in step * np.eye(30).reshape(30, 2, 3, 5))
    slopes = np.stack([(high - low).ravel() / (2 * step) for high, low in ends], axis=1)
    np.testing.assert_allclose(J, slopes, atol=1e-8 * np.abs(slopes).max())
    right, shift = np.arange(30.0), 2 * np.linalg.norm(J, 2)
    expected = np.linalg.solve(shift * np.eye(30) - J, right)
    np.testing.assert_allclose(linear.resolvent()(shift)(right), expected, atol=1e-12 * np.abs(expected).max())


def test_one_layer_is_the_landscape_of_one_layer():
    source, L = depth.contexts(TASK), landscape(TASK.replace(basis="identity"))
    A = np.array([[0.7, 0.1], [-0.2, 0.9]])
    loss, force = source.loss_and_forces(A[None])
    assert loss == pytest.approx(L.loss(A), rel=2e-3)
    assert np.abs(force[0] - L.force(A)).max() < 2e-3 * np.abs(L.cross).max()
    assert depth.lowest_loss(TASK, 1) == pytest.approx(plateau_losses(TASK)[-1], rel=2e-3)


@pytest.mark.parametrize(("dim", "context"), [(2, 20), (3, 31), (5, 64)])
def test_white_tokens_are_learned_again_with_the_drive_of_the_closed_form(dim, context):
    """[`relearning`] One layer holds everything at its best strength; the force on the other layer."""
    source = depth.contexts(icl.Task(dim=dim, context=context, spectrum="white"))
    A = np.zeros((2, dim, dim))
    A[0] = np.eye(dim) * dim / (1 + (dim + 1) / context)
    held, other = source.loss_and_forces(A)[1]
    assert np.abs(held).max() * dim**2 < 1e-3
    assert np.diag(other) * dim**2 == pytest.approx(depth.white_drive(dim, context), rel=0.02)


def test_levels_times_layers_and_directions_of_both_staircases():
    """[`ladder`] Against the flow of the same equations on the same contexts; this draw has no near tie."""
    source = depth.contexts(TASK, 32)
    weights = small_weights(1, heads=2)
    stairs = depth.ladder(source, *weights)
    assert sorted(rung[:2] for rung in stairs.rungs) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert stairs.directions.tolist() == [0, 1, 0, 1]
    time, loss, (v, k, q) = follow(source, *weights, 1.3 * stairs.drop_times[-1])
    for above, below, predicted in zip(stairs.levels[:-1], stairs.levels[1:], stairs.drop_times, strict=True):
        crossed = np.argmax(loss < (above + below) / 2)
        assert predicted == pytest.approx(time[crossed], rel=2e-3)
    for level, drop, following in zip(stairs.levels[1:-1], stairs.drop_times[:-1], stairs.drop_times[1:], strict=True):
        waiting = np.interp(drop + 0.5 * (following - drop), time, loss)
        assert waiting == pytest.approx(level, rel=0.01)
    assert loss[-1] == pytest.approx(stairs.levels[-1], rel=1e-3)
    strength = np.abs(v[..., 0] * np.linalg.norm(k, axis=2) * np.linalg.norm(q, axis=2))
    assert sorted(zip(*np.nonzero(strength > 0.1), strict=True)) == sorted(rung[:2] for rung in stairs.rungs)
    along = np.linspace(0, time[-1], 400)
    assert np.abs(stairs.loss(along) - np.interp(along, time, loss)).max() < 0.02


def test_an_infinite_context_has_one_staircase_that_ends_at_zero():
    source = depth.contexts(TASK, infinite=True)
    stairs = depth.ladder(source, *small_weights(0))
    assert sorted(stairs.directions) == [0, 1]
    assert stairs.levels == pytest.approx([1, 1 / 3, 0], abs=1e-3)


def test_looped_layers_start_with_the_drive_of_all_layers_and_learn_every_direction_once():
    plain, looped = depth.contexts(TASK, 256), depth.contexts(TASK, 256, loops=3)
    zero = np.zeros((1, 2, 2))
    assert np.allclose(looped.loss_and_forces(zero)[1], 3 * plain.loss_and_forces(zero)[1], rtol=1e-12)
    stairs = depth.ladder(looped, *small_weights(0, rows=1))
    assert stairs.directions.tolist() == [0, 1]
    assert stairs.levels[-1] == pytest.approx(best_state(looped, np.eye(2)[None])[0], rel=1e-4)


def test_the_prediction_counts_heads_through_the_layers_and_says_what_it_leaves_out():
    prediction = icl.predict(TASK, icl.Separate(heads=3, layers=2), init=5e-3, seed=1)
    assert len(prediction.drop_times) == 4
    assert len(set(prediction.heads.tolist())) == 4
    assert {int(h) // 3 for h in prediction.heads} == {0, 1}
    assert (np.diff(prediction.loss(np.linspace(0, prediction.end, 50))) <= 1e-9).all()
    assert "label blocks" in prediction.notes[0]
    for model in (icl.Separate(heads=3, rank=2, layers=2), icl.Merged(layers=2)):
        with pytest.raises(BadInput, match="has no theory"):
            icl.predict(TASK, model)
    with pytest.raises(BadInput, match="must share its eigenvectors"):
        icl.predict(TASK.replace(task_spectrum=((1.0, 0.5), (0.5, 1.0))), icl.Separate(layers=2))


def test_intervals_surround_the_times_and_are_narrow_on_the_first_staircase():
    """[`interval`] Without frozen vectors nothing was measured."""
    settings = {"model": icl.Separate(heads=2, layers=2), "init": 2e-2}
    found = icl.predict(TASK, **settings, freeze_vectors=True)
    half = found.drop_intervals[:, 1] / found.drop_times - 1
    assert (found.drop_intervals[:, 0] < found.drop_times).all()
    assert half[:2].max() < 0.06 < half[2:].max()
    assert found.reliable == bool((half <= 0.25).all())
    assert not icl.predict(TASK, **settings).reliable


def test_a_run_on_its_own_contexts_is_where_the_forecast_says():
    """Against training itself: the forecast of the population, and a run on many matrices."""
    settings = {"init": 3e-2, "seed": 3, "freeze_vectors": True}
    model = icl.Separate(heads=2, layers=2)
    forecast = icl.predict(TASK, model, **settings)
    end = 1.2 * forecast.drop_times[1]
    run = icl.train(TASK, model, **settings, gram_samples=1024, lr=0.1, steps=int(end / 0.2), progress=False)
    middles = (forecast.levels[:-1] + forecast.levels[1:])[:2] / 2
    seen = [run.time.values[np.argmax(run.loss.values < middle)] for middle in middles]
    assert seen == pytest.approx(forecast.drop_times[:2], rel=0.02)


@pytest.mark.parametrize("law", ["entry", "public", "norm", "aligned", "random"])
def test_no_start_of_a_single_direction_breaks_the_forecast(law):
    for init in (1e-4, 3e-2):
        try:
            found = icl.predict(icl.Task(dim=1), icl.Separate(heads=3, layers=2), init=init, init_law=law)
        except IclflowError:
            continue
        assert np.isfinite(found.drop_times).all()


def test_the_command_prints_the_ladder_of_looped_and_separate_layers_without_gaps(capsys):
    flags = ("--model", "separate", "--dim", 2, "--context", 20, "--heads", 2, "--layers", 2, "--init", 0.02, "--json")
    for more in ((), ("--looped",)):
        code, out, err = call(capsys, "theory", *flags, *more)
        found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no number"))
        assert (code, err) == (0, "")
        assert len(found["drop_intervals"]) == len(found["drop_times"]) >= 2
        assert found["levels"] == sorted(found["levels"], reverse=True)
        assert found["minimum"] == pytest.approx(depth.lowest_loss(TASK, 2, bool(more)), rel=1e-12)
        assert found["minimum"] < 0.5 * plateau_losses(TASK)[-1]


@pytest.mark.parametrize("flags", ["--model merged", "--rank 2", "--label-noise 0.1", "--out-dim 2"])
@pytest.mark.parametrize("more", ["", "--init 0.1"])
def test_the_command_refuses_by_name_what_theory_does_not_know(flags, more, capsys):
    code, out, err = call(capsys, "theory", "--dim", 2, "--layers", 2, *flags.split(), *more.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("iclflow: model: ")
    assert "2 layers has no theory of its loss curve" in err


def test_a_ladder_stays_in_order_where_heads_leave_at_once():
    """Three layers of four heads each: two take the same direction before either feels the other."""
    source = depth.contexts(TASK, 64)
    for seed in range(4):
        stairs = depth.ladder(source, *small_weights(seed, rows=3, heads=4, size=2e-2))
        assert stairs.finished
        assert (np.diff(stairs.levels) < 0).all()
        assert (np.diff(stairs.drop_times, prepend=0.0) > 0).all()
        first = stairs.until(2)
        assert (len(first.rungs), len(first.levels)) == (2, 3)


@pytest.mark.parametrize(
    ("dim", "context", "losses"),
    [(5, 20, (0.2307692, 0.0722479, 0.0267217)), (2, 20, (0.1304348, 0.0262576, 0.0068322)),
     (3, 31, (0.1142857, 0.0185481, 0.0038430)), (4, 31, (0.1388889, 0.0262071, 0.0060886))],
)  # fmt: skip
def test_white_tokens_have_an_exact_lowest_loss(dim, context, losses):
    """[`white-steps`] Published figures, and the best polynomial on the eigenvalues of drawn contexts."""
    task = icl.Task(dim=dim, context=context, spectrum="white")
    assert [depth.lowest_loss(task, layers) for layers in (1, 2, 3)] == pytest.approx(losses, abs=6e-8)
    values = np.linalg.eigvalsh(depth.contexts(task, 8192).covariance).ravel() * dim
    powers = values[:, None] ** np.arange(1, 3)
    best = 1 - np.linalg.lstsq(powers, np.ones(len(values)), rcond=None)[0] @ powers.T
    assert np.mean(best**2) == pytest.approx(losses[1], rel=0.03)


def test_contexts_of_a_product_rule_are_exact():
    """[`depth-loss`] Two roads to one loss: a Gauss rule, and many draws; more nodes change nothing."""
    A = np.random.default_rng(4).standard_normal((2, 2, 2))
    exact, finer, drawn = (
        depth.contexts(TASK, draws, layers=layers).loss(A) for draws, layers in ((100, 2), (1000, 4), (65536, 0))
    )
    assert exact == pytest.approx(finer, rel=1e-12)
    assert exact == pytest.approx(drawn, rel=2e-3)


def test_the_lowest_loss_lies_within_its_error():
    """One layer, where it is known in closed form, by drawn contexts; several layers never lie above fewer."""
    task = icl.Task(dim=6, context=12)
    loss, error = lowest_loss_and_error(task, 1)
    assert 0 < abs(loss - plateau_losses(task)[-1]) < error < 0.1 * loss


def test_the_best_looped_steps_turn_and_beat_those_along_the_axes():
    loss, A = depth.best_steps(TASK, 3, looped=True, draws=1024)
    assert np.array_equal(A[0], A[2])
    assert abs(A[0, 0, 1] - A[0, 1, 0]) > 0.1 * A[0].max()
    source = depth.contexts(TASK, 1024, loops=3)
    straight = minimize(lambda x: source.loss(np.diag(x)[None]), np.diag(A[0]), method="Nelder-Mead").fun
    assert loss < 0.97 * straight
