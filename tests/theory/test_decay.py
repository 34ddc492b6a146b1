"""Weight decay: the closed rules against integrated equations, which share no code with them."""

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import commands
import iclflow as icl
from iclflow.theory import decay, directions, landscape, merged
from iclflow.theory.equations import Flow, Layout
from iclflow.theory.race import settled

TASK = icl.Task(dim=3, context=20)


@pytest.mark.parametrize("rate", [0.0, 1e-3, 9e-3])
def test_a_single_head_on_its_plateau_blows_up_when_the_rule_says(rate):
    """[`decay-time`] v' = g v^2 - rate v from v0 is infinite at T = 1/(g v0) without decay."""
    g, v0 = 0.5, 0.02
    free = np.array([1 / (g * v0)])
    flow = solve_ivp(
        lambda t, v: g * v**2 - rate * v, (0, 1e5), [v0], rtol=1e-11, atol=1e-14, events=lambda t, v: v[0] - 1e7
    )
    assert decay.decayed_time(free, rate)[0] == pytest.approx(flow.t_events[0][0], rel=1e-5)


def test_beyond_the_threshold_a_head_never_grows():
    """[`decay-time`]"""
    assert decay.decayed_time(np.array([100.0, 101.0]), 0.01).tolist() == [np.inf, np.inf]
    flow = solve_ivp(lambda t, v: 0.5 * v**2 - 0.0101 * v, (0, 1e4), [0.02], rtol=1e-10, atol=1e-16)
    assert flow.y[0, -1] < 1e-6


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45])
def test_a_learned_direction_rests_where_the_scalar_equation_does(share):
    """[`decay-level`] v' = g v^2 - m v^5 - rate v from the strength without decay; below the fold it stays."""
    d = directions(TASK)
    rate = share * float((d.drive * np.cbrt(d.strength)).min())
    for i, strength in enumerate(decay.decayed_strength(d, rate)):
        g, m = d.drive[i], d.curvature[i]
        start = np.cbrt(d.strength[i])
        flow = solve_ivp(
            lambda t, v, g=g, m=m: g * v**2 - m * v**5 - rate * v, (0, 1e5), [start], method="LSODA", rtol=1e-11
        )
        assert strength == pytest.approx(flow.y[0, -1] ** 3, rel=1e-6)


def test_beyond_the_fold_a_learned_direction_is_lost():
    """[`decay-level`]"""
    d = directions(TASK)
    fold = decay.FOLD * d.drive * np.cbrt(d.strength)
    below, above = (decay.decayed_strength(d, float(factor * fold[0]))[0] for factor in (0.9999, 1.0001))
    assert below == pytest.approx(d.strength[0] / 4, rel=0.05)
    assert above == 0


@pytest.mark.parametrize(("rate", "outputs"), [(0.0, 1), (0.05, 1), (0.2, 1), (0.1, 2), (0.9, 1)])
def test_merged_attention_rests_where_its_equations_do(rate, outputs):
    """[`decay-merged`] One head, integrated here from a small start off the manifold."""
    L = landscape(TASK.replace(out_dim=outputs))
    root, dim = np.sqrt(outputs), TASK.dim

    def velocity(t, y):
        v, U = y[0], y[1:].reshape(dim, dim)
        G = root * (L.cross - L.context @ (v * U / root) @ L.query)
        return np.concatenate([[np.sum(U * G) - rate * v], (v * G - rate * U).ravel()])

    start = 0.05 * np.random.default_rng(0).standard_normal(dim * dim + 1)
    start[0] = 0.1
    end = solve_ivp(velocity, (0, 3e4), start, method="LSODA", rtol=1e-10, atol=1e-13).y[:, -1]
    found = end[0] * end[1:].reshape(dim, dim) / root
    modes = merged.modes(L, rate)
    assert modes.loss(modes.rest()) == pytest.approx(L.loss(found), abs=1e-6)


def test_conserved_differences_decay_at_twice_the_rate():
    """[`decay-conserved`] One head with v, k, q of different sizes; and the flow's own measure of its error."""
    g, rate, end = 0.5, 0.03, 20.0
    field = lambda t, y: np.array([g * y[1] * y[2], g * y[0] * y[2], g * y[0] * y[1]]) - rate * y
    y = solve_ivp(field, (0, end), [0.1, 0.05, 0.02], rtol=1e-11, atol=1e-14).y
    first, last = (y[:, i] ** 2 for i in (0, -1))
    assert last[0] - last[1] == pytest.approx(decay.conserved_share(end, rate) * (first[0] - first[1]), rel=1e-7)
    run = icl.train(TASK, icl.Separate(heads=3), init=0.05, time=20.0, weight_decay=0.1)
    assert run.summary["runs"][0]["conservation_drift"] < 1e-6


def test_bad_decay_is_one_line():
    with pytest.raises(icl.BadInput, match="decay: -0.1 must be a number of at least 0"):
        decay.decayed_time(np.ones(1), -0.1)


# --- against the engines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_which_drops_come_and_when(seed):
    """Rank one, init 1e-3: drop by drop against the flow, decay between the second and the third threshold."""
    task, model, init = icl.Task(dim=3, context=31), icl.Separate(heads=4), 1e-3
    free = icl.predict(task, model, init=init, seed=seed)
    gamma = float(np.sqrt(1 / (free.drop_times[1] * free.drop_times[2])))
    predicted = icl.predict(task, model, init=init, seed=seed, weight_decay=2 * gamma)
    assert len(predicted.drop_times) == 2
    assert predicted.never == (int(free.directions[2]),)
    time = 3 * float(predicted.drop_times[-1])
    run = icl.train(task, model, init=init, seed=seed, time=time, weight_decay=2 * gamma)
    found = icl.compare(run)
    assert len(found.drops) == 2
    assert max(drop.error for drop in found.drops) < 0.03
    assert run.loss.values[-1] == pytest.approx(predicted.levels[-1], rel=1e-3)


def test_the_decayed_drop_of_merged_attention(quiet):
    task, model = icl.Task(dim=3, context=31), icl.Merged(heads=4)
    run = icl.train(task, model, init=1e-3, time=120.0, weight_decay=0.1)
    found = icl.compare(run)
    assert found.drops[0].error < 2e-3
    assert found.largest_gap < 5e-3
    none = icl.predict(task, model, init=1e-3, weight_decay=2.0)
    assert len(none.drop_times) == 0
    assert none.never == (0, 1, 2)


def test_without_a_time_the_flow_ends_when_what_comes_has_come():
    task, model, decay = icl.Task(dim=2, context=20), icl.Separate(heads=2), 0.01
    predicted = icl.predict(task, model, init=0.03, weight_decay=decay)
    assert len(predicted.drop_times) == 1
    run = icl.train(task, model, init=0.03, weight_decay=decay)
    assert run.status == "ok"
    assert run.time.values[-1] < 3 * predicted.drop_times[-1]
    assert run.loss.values[-1] == pytest.approx(predicted.levels[-1], rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.44])
def test_a_head_of_rank_two_rests_where_its_equations_do(share):
    """[`decay-rank`] Value and two key-query pairs that share it, integrated."""
    g, m = np.array([0.5, 0.3]), np.array([0.2, 0.25])
    cube, soft = float(np.sum(g / m)), float(np.sum(1 / m))
    rate = share * float(g.min() * np.cbrt(cube))

    def velocity(t, y):
        v, a = y[0], y[1:]
        return np.concatenate([[np.sum(a**2 * (g - m * v * a**2))], v * a * (g - m * v * a**2)]) - rate * y

    start = np.concatenate([[np.cbrt(cube)], np.sqrt(g / m / np.cbrt(cube))])
    end = solve_ivp(velocity, (0, 5e3), start, method="LSODA", rtol=1e-11, atol=1e-13).y[:, -1]
    assert decay.head_value(cube, soft, rate) == pytest.approx(end[0], rel=1e-6)


def test_resting_loss_is_that_of_the_scalar_rule():
    """[`decay-rank`] Heads of rank one on the population: the closed levels."""
    L, d, rate = landscape(TASK), directions(TASK), 0.004
    model = icl.Separate(heads=3)
    heads = model.reduced(model.balanced(d.matrix(d.strength), TASK), TASK)
    key, query = heads.keys_and_queries
    layout = Layout(1, 3, 0, 1.0)
    rows = settled(Flow(L, layout, decay=rate), np.column_stack([heads.value, key[:, 0], query[:, 0]]))
    assert L.loss(layout.matrix(rows)) == pytest.approx(decay.decayed_level(d, np.ones(3, dtype=bool), rate), rel=1e-5)


def test_inside_a_head_of_rank_two_a_component_comes_beyond_the_threshold(quiet):
    """gamma T_2 is above one, and yet the second component comes: it grows in a head that is large already."""
    task, model, init = icl.Task(dim=3, context=31), icl.Separate(heads=1, rank=2), 1e-2
    free = icl.predict(task, model, init=init, seed=1)
    gamma = 0.995 / float(free.drop_times[0])
    assert gamma * free.drop_times[1] > 1
    predicted = icl.predict(task, model, init=init, seed=1, weight_decay=2 * gamma)
    assert len(predicted.drop_times) == 2
    run = icl.train(task, model, init=init, seed=1, weight_decay=2 * gamma, time=1.6 * float(predicted.drop_times[-1]))
    assert run.loss.values[-1] == pytest.approx(predicted.levels[-1], rel=1e-3)
    gone = icl.predict(task, model, init=init, seed=1, weight_decay=2.1 * gamma)
    assert len(gone.drop_times) == 0


def test_decay_with_vector_blocks_and_on_a_sample(quiet):
    """The map of time holds for any weights that start small; on a sample theory uses its own moments."""
    task, model = icl.Task(dim=3, context=31), icl.Separate(heads=4)
    law = {"init": 3e-3, "init_law": "random"}
    free = icl.predict(task, model, **law)
    rate = 1.2 / float(free.drop_times[1])
    run = icl.train(task, model, **law, weight_decay=rate, time=2.2 * float(free.drop_times[0]))
    assert icl.compare(run).drops[0].error < 0.02
    sampled = {"samples": 4000, "freeze_vectors": True, "init": 1e-2, "lr": 0.05}
    run = icl.train(task, icl.Merged(heads=3), **sampled, steps=900, weight_decay=0.1)
    found = icl.compare(run)
    assert found.source == "sample"
    assert found.drops[0].error < 0.02
    assert run.loss.values[-1] == pytest.approx(found.prediction.levels[-1], rel=5e-3)


def test_what_is_not_derived_is_refused():
    with pytest.raises(icl.BadInput, match="weight_decay: 0.1 must be 0 with the theory of merged with shared"):
        icl.predict(icl.Task(dim=3, icl_fraction=0.5, spectrum="white"), icl.Merged(heads=3), weight_decay=0.1)


def test_nothing_to_decay_is_one_line(capsys):
    code, _, err = commands.call(capsys, "theory", "--weight-decay", "0.1")
    assert (code, err.count("\n")) == (2, 1)
    assert "weight_decay: 0.1 needs init" in err
    code, _, err = commands.call(capsys, "theory", "--init", "0.1", "--weight-decay", "-0.1")
    assert code == 2
    assert "weight_decay: '-0.1' must be at least 0" in err
    zero = {name: np.zeros(shape) for name, shape in icl.Merged(heads=2).shapes(TASK).items()}
    with pytest.raises(icl.BadInput, match="nothing to decay"):
        icl.train(TASK, icl.Merged(heads=2), weights=zero, weight_decay=0.1, lr=0.1, steps=3)


def test_the_command_names_what_is_never_learned(capsys):
    flags = ["--dim", "3", "--heads", "4", "--init", "0.001", "--weight-decay", "0.001"]
    code, out, err = commands.call(capsys, "theory", *flags, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert len(told["drop_times"]) + len(told["never"]) == 3
    assert told["never"]
    assert "never learned with this weight decay" in commands.call(capsys, "theory", *flags)[1]
