"""Minibatches: every formula against a loop over random numbers that shares no code with it."""

import json

import numpy as np
import pytest

import commands
import iclflow as icl
from iclflow.prediction.batches import balanced_heads
from iclflow.theory import directions, landscape, minibatches
from iclflow.theory.separate import rank_optimum

TASK = icl.Task(dim=3, context=20)


@pytest.mark.parametrize("task", [TASK, TASK.replace(label_noise=0.3, query_noise=True), TASK.replace(out_dim=2)])
def test_drawn_sequences_have_the_moments_of_the_task(task):
    """E y beta x' is C_1, and the loss of the best matrix is the minimum."""
    L, draws = landscape(task), minibatches.draw(task, 200_000)
    cross = np.einsum("po,poi,pj->ij", draws.label, draws.context, draws.query) / len(draws.query) / task.out_dim
    np.testing.assert_allclose(cross, L.cross, atol=0.02 * np.abs(L.cross).max())
    A = rank_optimum(L, task.dim)
    error = draws.label - np.einsum("poi,ij,pj->po", draws.context, A, draws.query)
    assert np.mean(error**2) == pytest.approx(L.loss(A), rel=0.02)


def test_small_weights_grow_at_the_rate_with_noise():
    """[`minibatch-growth`] The product of random matrices on (v, U), beside the rate without noise."""
    L, batch, step = landscape(TASK), 16, 1.5
    draws = minibatches.draw(TASK, 2**18, seed=1)
    Z = np.einsum("po,poi,pj->pij", draws.label, draws.context, draws.query).reshape(-1, batch, 3, 3).mean(axis=1)
    size = np.linalg.norm(L.cross)
    v, U, grown = 1.0, L.cross / size, 0.0
    for F in Z:
        v, U = v + step * np.sum(U * F), U + step * v * F
        norm = np.hypot(v, np.linalg.norm(U))
        v, U, grown = v / norm, U / norm, grown + np.log(norm)
    along = np.mean(np.sum(Z * L.cross / size, axis=(1, 2))) - size  # what these draws have above the known mean
    found = grown / (step * len(Z)) - along
    growth = minibatches.merged_growth(minibatches.draw(TASK, 2**18, seed=2), L.cross, batch, step)
    assert growth.rate == pytest.approx(found, rel=0.01)
    assert growth.rate < 0.97 * np.log1p(step * size) / step


def shuffled_mode(rate, epoch, epochs, chains, rng):
    """A mode pushed by noise that adds up to zero in every epoch; the mean of what a batch adds to its own loss."""
    delta, total, count = np.zeros(chains), 0.0, 0
    for n in range(epochs):
        noise = rng.standard_normal((chains, epoch))
        noise = (noise - noise.mean(axis=1, keepdims=True)) * np.sqrt(epoch / (epoch - 1))
        for xi in noise.T:
            if n >= epochs // 4:
                total, count = total + np.mean(rate * delta**2 - 2 * xi * delta), count + 1
            delta = (1 - rate) * delta + xi
    return total / count


@pytest.mark.parametrize(("rate", "epoch"), [(0.3, 8), (0.02, 8), (0.05, 40)])
def test_batches_from_permutations_leave_their_own_floor(rate, epoch):
    """[`minibatch-floor`] in units of the step and of the noise of one batch; fresh batches leave 1/(2 - rate)."""
    found = shuffled_mode(rate, epoch, 400, 4000, np.random.default_rng(0))
    assert minibatches.reshuffled(np.array([rate]), epoch)[0] == pytest.approx(found, rel=0.03)
    assert minibatches.reshuffled(np.array([0.5]), 4000)[0] == pytest.approx(1 / 1.5, rel=0.01)


@pytest.mark.parametrize("model", [icl.Merged(heads=1), icl.Separate(heads=1)])
def test_the_floor_and_its_drift_are_those_of_many_chains(model):
    """[`minibatch-floor`], [`minibatch-drift`] One direction, label blocks: thousands of chains."""
    task, batch, step, steps = icl.Task(dim=1, context=20), 16, 0.05, 1200
    L, rng = landscape(task), np.random.default_rng(0)
    A = rank_optimum(L, 1)
    draws = minibatches.draw(task, 2**18)
    noise = minibatches.noise_at(draws, balanced_heads(model, task, A), label_only=True)
    pool = draws.context[:, 0, 0] * draws.query[:, 0], draws.label[:, 0]  # beta x, y
    degree = 2 if isinstance(model, icl.Merged) else 3
    w = np.full((degree, 2000), np.cbrt(A[0, 0]) if degree == 3 else np.sqrt(A[0, 0]))
    excess = []
    for n in range(steps):
        rows = rng.integers(len(pool[0]), size=(batch, w.shape[1]))
        feature, y = (values[rows] for values in pool)
        force = np.mean((y - w.prod(axis=0) * feature) * feature, axis=0)
        w = w + step * force * w.prod(axis=0) / w
        if n > steps // 2:
            excess.append(np.mean(L.context[0, 0] * L.query[0, 0] * (w.prod(axis=0) - A[0, 0]) ** 2))
    times = np.linspace(steps / 2, steps, 5) * step
    expected = np.mean([noise.floor(batch, step, float(time)) for time in times])
    assert expected == pytest.approx(np.mean(excess), rel=0.06)
    scales = noise.scales(batch, step, 1e4)
    assert np.prod(scales) == pytest.approx(1.0, rel=1e-4)


def test_drop_times_spread_by_the_noise_along_their_gradient():
    """[`minibatch-spread`] Thousands of copies of a head in a noisy constant force."""
    rng, drive, batch, step, chains = np.random.default_rng(3), np.array([0.4, 0.2]), 1, 0.05, 3000
    start = [0.2 * rng.standard_normal((2, 2)) for _ in range(2)]
    v, (k, q) = np.array([0.25, 0.2]), [np.abs(part) for part in start]
    size = 0.6
    cov = size**2 * np.eye(4)
    times = [minibatches.blow_up_time(v[h], k[h][None], q[h][None], drive) for h in (0, 1)]
    first = int(np.argmin(times))
    drops = [minibatches.Drop(first, min(times), drive, cov)]
    found = np.full(chains, np.nan)
    V, K, Q = np.full(chains, v[first]), np.tile(k[first], (chains, 1)), np.tile(q[first], (chains, 1))
    for n in range(int(2 * min(times) / step)):
        Z = np.diag(drive) + size * rng.standard_normal((chains, 2, 2))
        felt = np.einsum("sij,sj->si", Z, Q)
        V, K, Q = (
            V + step * np.einsum("si,si->s", K, felt),
            K + step * V[:, None] * felt,
            Q + step * V[:, None] * np.einsum("sij,si->sj", Z, K),
        )
        done = np.isnan(found) & (V > 8)
        found[done], V[done], K[done], Q[done] = n * step, 0.0, 0.0, 0.0
    spread = minibatches.drop_spreads(v, k, q, drops, batch, step)[0]
    assert spread == pytest.approx(np.nanstd(found), rel=0.12)


# --- predict, compare and the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"samples": 2048}])
def test_compare_expects_the_floor_of_a_noisy_run(settings, quiet):
    task = icl.Task(dim=2, context=20)
    run = icl.train(
        task, icl.Merged(heads=2), init=1e-3, batch=64, lr=0.02, steps=6000, freeze_vectors=True, **settings
    )
    found = icl.compare(run)
    assert found.drops[0].error < 0.1
    assert found.floor.expected == pytest.approx(
        found.floor.observed, abs=4 * found.floor.error + 0.15 * found.floor.expected
    )
    assert found.prediction.floors[-1] > 0
    assert "floor above the last level" in str(found)
    assert found.to_dict()["floor"]["expected"] == found.floor.expected


def test_the_prediction_names_floor_and_spread(capsys):
    flags = ["--dim", "2", "--heads", "3", "--init", "0.02", "--lr", "0.1", "--batch", "32", "--freeze-vectors"]
    code, out, err = commands.call(capsys, "theory", *flags, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert len(told["floors"]) == 3
    assert told["floors"][0] == 0 < told["floors"][2]
    plain = icl.predict(icl.Task(dim=2), icl.Separate(heads=3), init=0.02)
    wide, narrow = (np.ptp(interval) for interval in (told["drop_intervals"][0], plain.drop_intervals[0]))
    assert wide > 3 * narrow
    assert "because noise moves weights to flatter minima" in commands.call(capsys, "theory", *flags)[1]


def test_batch_without_lr_is_refused():
    with pytest.raises(icl.BadInput, match="lr: must be given with batch = 32"):
        icl.predict(TASK, icl.Merged(heads=2), batch=32)


def test_what_has_no_theory_of_noise_says_so():
    task = TASK.replace(prefix_loss=True)
    assert any("has no theory" in note for note in icl.predict(task, icl.Merged(heads=2), batch=32, lr=0.1).notes)
    adam = icl.predict(TASK, icl.Merged(heads=2), batch=32, lr=0.1, optimizer="adam")
    assert any("has no theory" in note for note in adam.notes)


def test_seeds_of_given_weights_are_for_batches(quiet):
    """With given weights every seed still draws batches of its own."""
    model = icl.Merged(heads=1)
    start = model.balanced(rank_optimum(landscape(TASK), 3), TASK)
    runs = icl.train(TASK, model, weights=start, batch=8, lr=0.01, steps=3, seeds=2)
    assert runs.select(0).loss.values[1] != runs.select(1).loss.values[1]
    assert directions(TASK).commuting
