"""The predicted training curve against the flow of the same initial weights, integrated with SciPy.

The flow below has a full O x O label block in every head and is written from the loss, so it shares nothing
with the theory.
"""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.prediction.margins import FINE
from iclflow.theory.equations import Parts
from iclflow.theory.forecast import Forecast, forecast
from iclflow.theory.landscape import directions, landscape
from iclflow.theory.separate import SampleLandscape
from iclflow.theory.single_mode import MIDPOINT, fallen, value_at

PLAIN = Task(dim=4, context=31)
ROTATING = Task(spectrum=(0.4, 0.2), context=31, task_spectrum=(1.0, 3.0))


def published(seed, heads, rank, dim, init, outputs=1):
    """Value, key, query with the public code's law: std init/sqrt(entries of the stacked matrix)."""
    rng, width = np.random.default_rng(seed), dim + outputs
    V = init / np.sqrt(heads * width**2) * rng.standard_normal((heads, outputs, outputs))
    scale = init / np.sqrt(heads * rank * width)
    return V, scale * rng.standard_normal((heads, rank, dim)), scale * rng.standard_normal((heads, rank, dim))


def by_entry(seed, heads, rank, dim, init):
    rng = np.random.default_rng(seed)
    return tuple(init * rng.standard_normal(shape) for shape in ((heads, 1, 1), *[(heads, rank, dim)] * 2))


def moments(task):
    """C1, B, Lambda and the power of one output; with the prefix loss n is uniform on 1..N, scaled by 1/n."""
    token, omega = covariances(task)[:2]
    short = np.mean(1 / np.arange(1, task.context + 1)) if task.prefix_loss else 1 / task.context
    cross, power = token @ omega @ token, np.trace(token @ omega)
    return cross, (1 + short) * cross + short * (power + task.label_noise) * token, token, power


class Flow:
    """The flow on L(A) = base - 2<A, C> + <A, curve(A)>; blocks A_op = sum_h V_h[o, p] K_h'Q_h."""

    def __init__(self, cross, curve, base, weights, end):
        outputs = weights[0].shape[1]
        target, cuts = np.multiply.outer(np.eye(outputs), cross), np.cumsum([w.size for w in weights])[:-1]

        def split(y):
            return (part.reshape(w.shape) for part, w in zip(np.split(y, cuts), weights, strict=True))

        def field(t, y):
            V, K, Q = split(y)
            U = K.transpose(0, 2, 1) @ Q
            G = target - curve(np.tensordot(V, U, axes=(0, 0)))
            felt = np.tensordot(V, G, axes=((1, 2), (0, 1)))
            dV = np.tensordot(U, G, axes=((1, 2), (2, 3)))
            return np.concatenate([dV.ravel(), (Q @ felt.transpose(0, 2, 1)).ravel(), (K @ felt).ravel()])

        start = np.concatenate([w.ravel() for w in weights])
        run = solve_ivp(field, (0, end), start, method="LSODA", rtol=1e-8, atol=1e-12)
        assert run.success
        states = [tuple(split(y)) for y in run.y.T]
        self.time, self.end, self.V = run.t, states[-1], np.array([V for V, _, _ in states])
        A = np.array([np.tensordot(V, K.transpose(0, 2, 1) @ Q, axes=(0, 0)) for V, K, Q in states])
        self.matrix = A[:, 0, 0]
        self.leak = np.abs(A * (1 - np.eye(outputs))[:, :, None, None]).max()
        self.loss = base - np.sum(2 * A * target - A * curve(A), axis=(1, 2, 3, 4)) / outputs

    def crossing(self, level):
        """When the loss first falls below a level."""
        n = int(np.argmax(self.loss < level))
        share = (self.loss[n - 1] - level) / (self.loss[n - 1] - self.loss[n])
        return self.time[n - 1] + share * (self.time[n] - self.time[n - 1])

    def drop_times(self, levels):
        return np.array([self.crossing(level) for level in (levels[1:] + levels[:-1]) / 2])

    def loss_gap(self, predicted):
        """Mean over time of |prediction - flow|."""
        return np.trapezoid(np.abs(predicted.loss(self.time) - self.loss), self.time) / self.time[-1]


def flow(task, weights, end):
    C, B, L, power = moments(task)
    return Flow(C, lambda A: B @ A @ L, power + task.label_noise * task.query_noise, weights, end)


def predict(source, weights):
    V, K, Q = weights
    return from_parts(source, np.trace(V, axis1=1, axis2=2) / np.sqrt(V.shape[1]), K, Q)


def from_parts(source, v, K, Q):
    [found] = forecast(source, [Parts.plain(v, K, Q)], [FINE])
    assert isinstance(found, Forecast)
    return found


def waits(predicted):
    """Time from one drop to the next."""
    return np.diff(predicted.drop_times, prepend=0.0)


def compare(task, weights):
    predicted = predict(task, weights)
    run = flow(task, weights, 1.2 * predicted.drop_times[-1])
    return predicted, run, np.abs(predicted.drop_times / run.drop_times(predicted.levels) - 1)


def learned_by(run, d):
    """Direction that each grown rank-one head ends on, -1 for heads that stay small."""
    V, K, _ = run.end
    ends = np.abs(K[:, 0] @ d.left).argmax(axis=1)
    return np.where(np.abs(V[:, 0, 0]) > 0.1, ends, -1)


@pytest.mark.parametrize(("init", "time_bound", "loss_bound"), [(1e-3, 5e-4, 1e-4), (1e-2, 5e-3, 1e-3)])
def test_whole_curve_from_initial_weights(init, time_bound, loss_bound):
    """[`staircase`] D = 4, H = 5, N = 31: all winners right, mean errors of drop times and loss small."""
    d, errors, gaps, spread = directions(PLAIN), [], [], []
    for seed in range(6):
        predicted, run, error = compare(PLAIN, published(seed, 5, 1, 4, init))
        ends = learned_by(run, d)
        assert [ends[h] for h in predicted.heads] == list(predicted.directions) == [0, 1, 2, 3]
        final = run.V[-1, :, 0, 0]
        assert np.all(np.sign(final) == np.sign(predicted.values(run.time[-1:])[0]))
        errors.append(error)
        gaps.append(run.loss_gap(predicted))
        spread.append(predicted.drop_times)
    assert np.mean(errors) < time_bound
    assert np.mean(gaps) < loss_bound
    assert np.all(np.std(spread, axis=0) / np.mean(spread, axis=0) > 0.1)  # so this is a prediction


def test_value_weights_follow_the_prediction():
    """[`staircase`] Every head's value weight within 2e-3 of the flow's, averaged over time."""
    weights = published(0, 5, 1, 4, 1e-2)
    predicted, run, _ = compare(PLAIN, weights)
    gap = np.abs(predicted.values(run.time) - run.V[:, :, 0, 0])
    assert np.all(np.trapezoid(gap, run.time, axis=0) / run.time[-1] < 2e-3)
    early = run.time < 0.9 * predicted.drop_times[0]
    scale = np.abs(run.V[early, :, 0, 0]).max(axis=0)
    assert np.all(gap[early].max(axis=0) < 5e-3 * scale)
    np.testing.assert_allclose(predicted.values(np.zeros(1))[0], weights[0][:, 0, 0], rtol=2e-3)


@pytest.mark.parametrize(("rank", "heads"), [(2, 5), (4, 3)])
def test_rank_heads(rank, heads):
    """[`within-head`] D = 8, entries 1e-3: all drop times within 1 %, plateaus only at multiples of R."""
    task = Task(dim=8, context=31)
    predicted, run, error = compare(task, by_entry(1, heads, rank, 8, 1e-3))
    assert error.max() < 0.01
    assert run.loss_gap(predicted) < 1e-3
    new = np.arange(8) % rank == 0
    assert [h not in predicted.heads[:m] for m, h in enumerate(predicted.heads)] == list(new)
    assert waits(predicted)[0] > 50 * np.max(waits(predicted)[1:rank])
    for h in set(predicted.heads):
        strengths = directions(task).strength[predicted.directions[predicted.heads == h]]
        assert abs(run.end[0][h, 0, 0]) ** 3 == pytest.approx(strengths.sum(), rel=2e-3)


def test_waits_within_a_head():
    """[`within-head`] R = 4: each of the short waits is right to 3 %, not only the time of the drop."""
    predicted, run, _ = compare(Task(dim=8, context=31), by_entry(0, 3, 4, 8, 1e-3))
    d = directions(Task(dim=8, context=31))
    share = np.einsum("dj,tde,ej->tj", d.left, run.matrix, d.left) / d.strength
    seen = [np.interp(MIDPOINT, np.maximum.accumulate(share[:, j]), run.time) for j in predicted.directions]
    within = np.array([h in predicted.heads[:m] for m, h in enumerate(predicted.heads)])
    np.testing.assert_allclose(waits(predicted)[within], np.diff(seen, prepend=0)[within], rtol=0.03)


@pytest.mark.parametrize(
    "change",
    [
        {"task_spectrum": (1.0, 3.0, 1.5, 1.2)},
        {"label_noise": 1.0, "query_noise": True},
        {"prefix_loss": True},
        {"spectrum": "power:1"},
        {"spectrum": "white"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_variants_change_only_drive_and_curvature(change):
    """[`staircase`] Task covariance, noise, prefix loss, spectra: mean error of drop times below 0.5 %."""
    task = PLAIN.replace(**change)
    predicted, run, error = compare(task, published(1, 5, 1, 4, 2e-3))
    assert error.mean() < 0.005
    assert run.loss_gap(predicted) < 5e-4


@pytest.mark.parametrize("outputs", [2, 3])
def test_several_outputs(outputs):
    """[`staircase`] O outputs with a full label block: 0.5 % on drop times, V_i -> (v/sqrt O) I."""
    weights = published(1, 5, 1, 4, 2e-3, outputs)
    predicted, run, error = compare(PLAIN.replace(out_dim=outputs), weights)
    assert error.mean() < 0.005
    assert run.loss_gap(predicted) < 5e-4
    for V in run.end[0][predicted.heads]:
        np.testing.assert_allclose(V, np.eye(outputs) * V[0, 0], atol=5e-3)
    assert run.leak < 1e-3


def test_covariances_that_do_not_commute():
    """[`empirical-staircase`] Residual force at the rank-m optimum: drop times within 1 %, levels exact."""
    mix = np.random.default_rng(5).standard_normal((4, 4))
    task = PLAIN.replace(basis="identity", task_spectrum=mix @ mix.T / 4 + 0.5 * np.eye(4))
    for seed in range(2):
        predicted, run, error = compare(task, published(seed, 5, 1, 4, 1e-3))
        assert error.mean() < 0.005
        assert run.loss_gap(predicted) < 5e-4
        assert run.loss[-1] == pytest.approx(predicted.levels[-1], abs=2e-3)


def sample_moments(seed, size=5000, context=31):
    """A centred and whitened sample as in the public code, reduced to the moments of beta x_q'."""
    rng, lam = np.random.default_rng(seed), np.array([0.4, 0.3, 0.2, 0.1])
    x = rng.standard_normal((size, context + 1, 4)) * np.sqrt(lam)
    w = rng.standard_normal((size, 4))
    x, w = x - x.mean(axis=0), w - w.mean(axis=0)
    w = w @ np.linalg.inv(np.linalg.cholesky(np.cov(w.T))).T
    y = np.einsum("pnd,pd->pn", x, w)
    beta = np.einsum("pn,pnd->pd", y[:, :-1], x[:, :-1]) / context
    z = (beta[:, :, None] * x[:, -1, None, :]).reshape(size, 16)
    return z, y[:, -1]


def test_sampled_moments_explain_a_finite_sample():
    """[`empirical-staircase`] P = 5000: 1.5 % from the sample's own moments, more from the population's."""
    own, population = [], []
    for seed in range(3):
        z, y = sample_moments(seed)
        C, S, base = (y @ z / len(y)).reshape(4, 4), z.T @ z / len(y), float(np.mean(y**2))
        L = SampleLandscape(C, S.reshape(4, 4, 4, 4), base)
        weights = published(seed, 5, 1, 4, 1e-2)
        predicted = predict(L, weights)

        def curve(A, S=S):
            return (A.reshape(*A.shape[:-2], 16) @ S).reshape(A.shape)

        run = Flow(C, curve, base, weights, 1.2 * predicted.drop_times[-1])
        assert run.loss[-1] == pytest.approx(np.mean((y - z @ run.matrix[-1].ravel()) ** 2), rel=1e-10)
        seen = run.drop_times(predicted.levels)
        own.append(np.abs(predicted.drop_times / seen - 1))
        plain = predict(Task(spectrum=(0.4, 0.3, 0.2, 0.1), context=31, basis="identity"), weights)
        population.append(np.abs(plain.drop_times / seen - 1))
        assert run.loss[-1] == pytest.approx(predicted.levels[-1], abs=2e-3)
    assert np.mean(own) < 0.015
    assert np.mean(population) > 2 * np.mean(own)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_head_rotation(seed):
    """[`rotation`, `path`] Path {} {1} {2} {1,2}; the turn within 3 % of its predicted wait."""
    weights = by_entry(seed, 3, 1, 2, 1e-3)
    predicted, run, _ = compare(ROTATING, weights)
    assert list(predicted.directions) == [0, 1, 0]
    assert predicted.heads[0] == predicted.heads[1]
    np.testing.assert_allclose(waits(predicted), np.diff(run.drop_times(predicted.levels), prepend=0), rtol=0.03)
    assert run.loss_gap(predicted) < 2e-3
    d = directions(ROTATING)
    middle = np.searchsorted(run.time, predicted.drop_times[1:].mean())
    share = np.diag(d.left.T @ run.matrix[middle] @ d.right) / d.strength
    np.testing.assert_allclose(share, [0, 1], atol=0.01)
    gap = np.abs(predicted.values(run.time) - run.V[:, :, 0, 0])
    assert np.all(np.trapezoid(gap, run.time, axis=0) / run.time[-1] < 0.01)


def test_rotation_waits_longer_by_a_logarithm():
    """[`rotation`] The turn waits (1 - g2/g1) ln 10 / mu = 19.2 longer a decade of init, heads ten times."""
    coarse, fine = (predict(ROTATING, by_entry(1, 3, 1, 2, init)) for init in (1e-3, 1e-4))
    coarse, fine = waits(coarse), waits(fine)
    assert fine[1] - coarse[1] == pytest.approx(19.2, abs=0.1)
    np.testing.assert_allclose(fine[[0, 2]] / coarse[[0, 2]], 10, rtol=0.02)


def test_aligned_start_is_the_scalar_equation():
    """[`scalar-flow`] With k = q = v e_d in every head, values and loss are those of Eq. 21."""
    d, times = directions(PLAIN), np.linspace(0, 2e4, 200)
    v, K = np.full(4, 0.01), 0.01 * d.left.T[:, None, :]
    predicted = from_parts(PLAIN, v, K, K)
    exact = np.stack([value_at(times, 0.01, g, m) for g, m in zip(d.drive, d.curvature, strict=True)], axis=1)
    np.testing.assert_allclose(predicted.values(times), exact, atol=1e-3)
    np.testing.assert_allclose(predicted.loss(times), d.base - fallen(exact**3 / d.strength) @ d.saved, atol=1e-5)


def test_plateaus_last_as_long_as_one_over_init():
    """[`staircase`] Ten times smaller weights wait ten times longer: algebraic, not logarithmic, escape."""
    coarse, fine = (predict(PLAIN, published(0, 5, 1, 4, init)) for init in (1e-3, 1e-4))
    np.testing.assert_allclose(waits(fine) / waits(coarse), 10, rtol=0.02)


def test_too_few_heads_learn_what_they_can_hold():
    """[`staircase`] H R < D: only H R directions are learned, by falling drive, here and in the flow."""
    weights = by_entry(1, 2, 1, 4, 1e-3)
    predicted, run, error = compare(PLAIN, weights)
    assert list(predicted.directions) == [0, 1]
    assert error.max() < 0.01
    assert run.loss[-1] == pytest.approx(directions(PLAIN).loss(np.arange(4) < 2), abs=1e-3)
    assert list(predict(PLAIN, by_entry(1, 1, 3, 4, 1e-3)).directions) == [0, 1, 2]


def test_basis_of_the_tokens_does_not_matter():
    """[`staircase`] Turning tokens and weights together changes nothing."""
    V, K, Q = published(3, 5, 1, 4, 1e-3)
    basis = directions(PLAIN).left
    straight = predict(PLAIN.replace(basis="identity"), (V, K, Q))
    turned = predict(PLAIN, (V, K @ basis.T, Q @ basis.T))
    np.testing.assert_allclose(turned.drop_times, straight.drop_times, rtol=5e-4)
    general = predict(landscape(PLAIN), (V, K @ basis.T, Q @ basis.T))
    np.testing.assert_allclose(general.drop_times, straight.drop_times, rtol=5e-4)
    np.testing.assert_allclose(general.levels, straight.levels, rtol=1e-9)
