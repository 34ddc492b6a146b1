"""Merged attention: fixed points, escape and the whole drop, against the flow written out here."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory import merged
from iclflow.theory.collinear import flow
from iclflow.theory.landscape import landscape
from iclflow.theory.separate import SampleLandscape
from iclflow.theory.solve import solve

TASK = Task(dim=4, context=31, basis="identity")
LAM, N = np.array([0.4, 0.3, 0.2, 0.1]), 31
C1, B = np.diag(LAM**2), np.diag((1 + 1 / N) * LAM**2 + LAM / N)
MINIMUM = 0.13599507159802526  # Eq. 19 with all four directions

MATRIX = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.6]])
SKEW = Task(dim=3, context=7, spectrum=MATRIX, task_spectrum=np.diag([1.0, 2.0, 0.5]), label_noise=0.3)


def skew_moments(task):
    """C_1, B, Lambda and base loss of a task whose two covariances do not commute, from the definitions."""
    lam, omega = covariances(task)[:2]
    c1, power = lam @ omega @ lam, np.trace(lam @ omega) + task.label_noise
    return c1, (1 + 1 / task.context) * c1 + power / task.context * lam, lam, np.trace(lam @ omega)


def full_flow(v, U, time, c1=C1, b=B, lam=None, root=1.0, rtol=1e-10):
    """Eq. 8 in every weight; `root` is the factor sqrt(O) of O outputs."""
    lam = np.diag(LAM) if lam is None else lam
    H, D = len(v), len(c1)

    def field(_, w):
        v, U = w[:H], w[H:].reshape(H, D, D)
        G = root * c1 - b @ np.tensordot(v, U, 1) @ lam
        return np.concatenate([(U * G).sum((1, 2)), (v[:, None, None] * G).ravel()])

    path = solve_ivp(field, (0, time[-1]), np.r_[v, U.ravel()], "DOP853", t_eval=time, rtol=rtol, atol=1e-16)
    return path.y[:H].T, path.y[H:].T.reshape(-1, H, D, D)


def velocity(L, v, U):
    """The field that theory follows, for all heads."""
    root = np.sqrt(L.outputs)
    force = root * L.force(np.tensordot(v, U, 1) / root)
    return np.concatenate([part.ravel() for part in flow(v[:, None], U.reshape(len(U), -1), force.reshape(1, -1))])


def losses(v, U, c1=C1, b=B, lam=None, base=1.0, outputs=1):
    lam = np.diag(LAM) if lam is None else lam
    A = np.einsum("th,thij->tij", v, U) / np.sqrt(outputs)
    return base - 2 * (A * c1).sum((1, 2)) + (A * (b @ A @ lam)).sum((1, 2))


def reduction(L, v, U, time):
    """The state in which all heads have joined, from their growing part."""
    m = merged.modes(L)
    return solve(m, m.start(merged.alignment(L, v, U).alpha), time[-1]).at(time)


def random_start(scale, seed, heads=8, dim=4):
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal(heads), scale * rng.standard_normal((heads, dim, dim))


def crossing(time, loss, level):
    i = np.argmax(loss < level)
    return time[i - 1] + (loss[i - 1] - level) / (loss[i - 1] - loss[i]) * (time[i] - time[i - 1])


def test_flow_is_minus_half_the_gradient_of_the_loss():
    """[`merged-flow`] Central differences of the summed loss over outputs in every weight."""
    for task in (TASK, SKEW, SKEW.replace(out_dim=3)):
        L = landscape(task)
        v, U = random_start(1.0, 1, heads=2, dim=task.dim)

        def total(w, L=L, shape=U.shape):
            return L.outputs * L.loss(np.tensordot(w[:2], w[2:].reshape(shape), 1) / np.sqrt(L.outputs))

        w, h = np.r_[v, U.ravel()], 1e-6
        numeric = [-(total(w + h * e) - total(w - h * e)) / (4 * h) for e in np.eye(len(w))]
        np.testing.assert_allclose(velocity(L, v, U), numeric, rtol=1e-6, atol=1e-7)


def test_inner_products_of_heads_minus_products_of_values_never_change():
    """[`merged-conserved`] Along the integrated flow, to its tolerance."""
    v, U = random_start(0.3, 2, heads=3)
    vs, Us = full_flow(v, U, np.array([0.0, 5, 50, 500]), rtol=1e-12)
    start = merged.conserved(v, U)
    for v, U in zip(vs, Us, strict=True):
        np.testing.assert_allclose(merged.conserved(v, U), start, atol=1e-10)


def test_the_minimum_is_eq_11_and_no_step_lowers_it():
    """[`merged-minimum`] The paper's form; the force vanishes, also when covariances do not commute."""
    L = landscape(TASK)
    expected = np.linalg.inv(np.diag(LAM) + (np.diag(LAM) + np.eye(4)) / N)
    np.testing.assert_allclose(merged.minimiser(L), expected, rtol=1e-12, atol=1e-14)
    assert merged.lowest_loss(L) == pytest.approx(MINIMUM, rel=1e-12)
    skew = landscape(SKEW)
    assert np.abs(skew.force(merged.minimiser(skew))).max() < 1e-12
    assert skew.loss(merged.minimiser(skew)) == pytest.approx(merged.lowest_loss(skew), rel=1e-12)


def test_zero_function_saddles_have_one_unstable_direction_a_head_at_the_stated_rate():
    """[`merged-zero-set`] Full spectrum of the Jacobian by differences, at a nonzero U orthogonal to C_1."""
    L, heads = landscape(TASK), 3
    U = random_start(1.0, 3, heads=heads)[1]
    U -= np.einsum("hij,ij->h", U, C1)[:, None, None] * C1 / np.sum(C1 * C1)
    assert merged.is_zero_fixed_point(L, np.zeros(heads), U)
    w, h = np.r_[np.zeros(heads), U.ravel()], 1e-6
    field = lambda w: velocity(L, w[:heads], w[heads:].reshape(heads, 4, 4))
    assert np.abs(field(w)).max() < 1e-14
    jacobian = np.array([(field(w + h * e) - field(w - h * e)) / (2 * h) for e in np.eye(len(w))])
    spectrum = np.sort(np.linalg.eigvalsh((jacobian + jacobian.T) / 2))
    growing, decaying = merged.zero_fixed_point_rates(L, U)
    np.testing.assert_allclose(spectrum[-heads:], np.sort(growing), rtol=1e-7)
    np.testing.assert_allclose(spectrum[:heads], np.sort(decaying), rtol=1e-7)
    assert np.abs(spectrum[heads:-heads]).max() < 1e-8
    np.testing.assert_allclose(merged.zero_fixed_point_rates(L, 0 * U)[0], np.linalg.norm(C1))


def test_a_point_that_is_no_fixed_point_is_refused():
    with pytest.raises(BadInput, match="orthogonal"):
        merged.zero_fixed_point_rates(landscape(TASK), random_start(1.0, 3)[1])


def test_the_plateau_lengthens_by_log_ten_over_the_drive_for_every_decade_of_weights():
    """[`merged-escape`] Slope of the half-drop time in ln(1/w): 1/||Lambda^2||_F within 1e-6."""
    L = landscape(TASK)
    times = [merged.half_time(L, w**2) for w in (1e-4, 1e-6)]
    assert (times[1] - times[0]) / np.log(1e2) == pytest.approx(1 / np.linalg.norm(LAM**2), rel=1e-6)
    assert merged.escape_time(L, 1e-3) == pytest.approx(np.log(1e3) / np.linalg.norm(LAM**2))
    ratio = merged.escape_time(landscape(TASK.replace(out_dim=4)), 1e-3) / merged.escape_time(L, 1e-3)
    assert ratio == pytest.approx(1 / 2)


@pytest.mark.parametrize(("scale", "late", "loss_gap"), [(1e-2, 2e-3, 4e-3), (1e-3, 2e-4, 4e-4), (1e-5, 1e-6, 4e-6)])
def test_five_numbers_predict_the_loss_of_a_hundred_and_thirty_six_random_weights(scale, late, loss_gap):
    """[`merged-reduction`] Mean errors over seeds of half-drop time and loss shrink with the start."""
    L, time = landscape(TASK), np.linspace(0, 120, 1201)
    lateness, gaps = [], []
    for seed in range(5):
        v, U = random_start(scale, seed)
        actual = losses(*full_flow(v, U, time))
        expected = merged.modes(L).loss(reduction(L, v, U, time))
        middle = (1 + MINIMUM) / 2
        true = crossing(time, actual, middle)
        lateness.append(abs(crossing(time, expected, middle) / true - 1))
        gaps.append(np.abs(expected - actual).max())
        assert merged.half_time(L, merged.alignment(L, v, U).alpha) == pytest.approx(true, rel=5 * late + 1e-4)
    assert np.mean(lateness) < late
    assert np.mean(gaps) < loss_gap


def test_head_values_and_gains_follow_the_reduction():
    """[`merged-reduction`] Each head carries its share of one value and of one diagonal matrix."""
    L, time = landscape(TASK), np.array([0.0, 20, 30, 40, 60, 120])
    v, U = random_start(1e-5, 7)
    vs, Us = full_flow(v, U, time)
    states, share = reduction(L, v, U, time), merged.alignment(L, v, U).share
    value, entries = np.exp(states[2:, :1]), states[2:, :1:-1]  # of rising eigenvalues, turned round
    np.testing.assert_allclose(vs[2:], value * share, atol=5e-5)
    np.testing.assert_allclose(Us[2:], np.einsum("h,ti,ij->thij", share, value * entries, np.eye(4)), atol=5e-5)
    np.testing.assert_allclose(np.linalg.norm(entries, axis=1), 1, rtol=1e-7)


def test_the_reduction_holds_for_covariances_that_do_not_commute_and_for_several_outputs():
    """[`merged-reduction`] Twelve weights of one head, with the drive times sqrt(O)."""
    for outputs in (1, 2):
        L, (c1, b, lam, base) = landscape(SKEW.replace(out_dim=outputs)), skew_moments(SKEW)
        root, time = np.sqrt(outputs), np.linspace(0, 30, 301)
        v, U = random_start(1e-5, 4, heads=3, dim=3)
        actual = losses(*full_flow(v, U, time, c1, b, lam, root), c1, b, lam, base, outputs)
        assert actual[-1] < 0.9 * actual[0]
        np.testing.assert_allclose(merged.modes(L).loss(reduction(L, v, U, time)), actual, atol=2e-5 * base)


def test_alpha_and_not_the_norm_of_a_layer_is_the_initial_scale():
    """[`merged-alpha`] The layer's norm misses the half-drop time by per cents, alpha by its square."""
    L, time = landscape(TASK), np.linspace(0, 90, 1801)
    by_alpha, by_norm, middle = [], [], (1 + MINIMUM) / 2
    for seed in range(5):
        v, U = random_start(1e-3, seed)
        true = crossing(time, losses(*full_flow(v, U, time)), middle)
        by_alpha.append(abs(merged.half_time(L, merged.alignment(L, v, U).alpha) / true - 1))
        by_norm.append(abs(merged.half_time(L, v @ v) / true - 1))
    assert max(by_alpha) < 5e-4
    assert np.mean(by_norm) > 0.02


def test_bad_starts_are_refused():
    L = landscape(TASK)
    for alpha in (0.0, 50.0):
        with pytest.raises(BadInput, match="alpha"):
            merged.half_time(L, alpha)
    with pytest.raises(BadInput, match="initial"):
        merged.escape_time(L, 0.0)


@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_modes_of_a_sample_are_those_of_the_population_where_both_apply(decay):
    """[`merged-sample`] A population landscape needs no basis to be found: both roads give one drop."""
    L = landscape(Task(dim=3, context=9, label_noise=0.2))
    form = np.einsum("ab,cd->acbd", L.context, L.query)
    general, diagonal = merged.modes(SampleLandscape(L.cross, form, L.base), decay), merged.modes(L, decay)
    assert general.loss(general.rest()) == pytest.approx(diagonal.loss(diagonal.rest()), rel=1e-12)
    times = [merged.half_time(one, 1e-6, decay) for one in (L, SampleLandscape(L.cross, form, L.base))]
    assert times[0] == pytest.approx(times[1], rel=1e-6)
