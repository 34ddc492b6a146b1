"""Flow, fixed points and curvature of separate attention against numerical derivatives of the loss."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from iclflow.config import Task
from iclflow.data.spectrum import covariances
from iclflow.errors import BadInput
from iclflow.theory import separate
from iclflow.theory.equations import Layout, Parts
from iclflow.theory.landscape import directions, landscape
from iclflow.theory.rotation import learning_path, rotation_rate
from iclflow.theory.separate import SampleLandscape

PLAIN = Task(dim=4, context=31)
SKEW = Task(dim=4, context=31, task_spectrum=(1.0, 3.0, 1.5, 2.5))  # drive and saved loss in different order
FIXED = np.array([[2.0, 0.3, -0.1], [0.3, 1.0, 0.4], [-0.1, 0.4, 0.8]])
TWISTED = Task(spectrum=(0.5, 0.3, 0.2), context=7, basis="identity", task_spectrum=FIXED)


@cache
def matrices(task):
    """Cross moment, context covariance, token covariance from the definitions, one output, fixed length N."""
    token, omega = covariances(task)[:2]
    cross = token @ omega @ token
    return cross, (1 + 1 / task.context) * cross + np.trace(token @ omega) * token / task.context, token


def loss(task, v, K, Q):
    """Mean loss, written out once more; for weights with leading batch axes, real or complex."""
    C, B, L = matrices(task)
    A = np.einsum("...h,...hrd,...hre->...de", v, K, Q) / np.sqrt(task.out_dim)
    base = np.trace(L @ covariances(task).task)
    return base - 2 * np.sum(A * C, axis=(-2, -1)) + np.sum(A * (B @ A @ L), axis=(-2, -1))


def velocity(L, v, K, Q):
    """The field that theory follows."""
    (H, R, D), root = K.shape, np.sqrt(L.outputs)
    parts = Parts(v, K, Q, np.zeros((H, 0, D)), np.zeros((H, R, 0)), np.zeros((H, 0)))
    layout = Layout.of(parts, L.outputs)
    rows = layout.join(parts)
    return layout.split(layout.label_velocity(rows, root * L.force(layout.matrix(rows) / root)))[:3]


def pack(v, K, Q):
    return np.concatenate([v, K.ravel(), Q.ravel()])


def unpack(y, K):
    H, n, batch = len(K), K.size, y.shape[:-1]
    return y[..., :H], y[..., H : H + n].reshape(*batch, *K.shape), y[..., H + n :].reshape(*batch, *K.shape)


def gradient(task, y, K):
    """-1/2 of the gradient of the loss summed over outputs, by a complex step: exact to rounding."""
    shifted = y[..., None, :] + 1e-30j * np.eye(y.shape[-1])
    return -0.5 * task.out_dim * loss(task, *unpack(shifted, K)).imag / 1e-30


def hessian(task, weights):
    """Central differences of the exact gradient, which is a polynomial of degree 5."""
    y, K, step = pack(*weights), weights[1], 1e-4
    units = step * np.eye(len(y))
    return (gradient(task, y + units, K) - gradient(task, y - units, K)) / (2 * step)


def random_weights(heads, rank, size, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal(heads),
        rng.standard_normal((heads, rank, size)),
        rng.standard_normal((heads, rank, size)),
    )


@pytest.mark.parametrize("task", [PLAIN, SKEW, TWISTED, PLAIN.replace(out_dim=3)])
@pytest.mark.parametrize("rank", [1, 2])
def test_vector_field_is_the_gradient(task, rank):
    """[`separate-flow`] The flow is minus half the gradient to 1e-12; with G transposed it is not."""
    v, K, Q = random_weights(3, rank, task.dim)
    field = velocity(landscape(task), v, K, Q)
    exact = gradient(task, pack(v, K, Q), K)
    np.testing.assert_allclose(pack(*field), exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    G = landscape(task).force(separate.effective_matrix(v, K, Q) / np.sqrt(task.out_dim)) * np.sqrt(task.out_dim)
    wrong = v[:, None, None] * (K @ G.T)
    true_query = exact[len(v) + K.size :].reshape(K.shape)
    assert np.linalg.norm(wrong - true_query) > 0.01 * np.linalg.norm(true_query)


def test_conserved_quantities_have_zero_derivative():
    """[`conserved`] v^2 - |K|^2 and KK' - QQ' do not change along the flow, and KK' alone does."""
    v, K, Q = random_weights(3, 2, 3)
    dv, dK, dQ = velocity(landscape(TWISTED), v, K, Q)
    step = 1e-6
    values = [separate.conserved(v + s * dv, K + s * dK, Q + s * dQ) for s in (step, -step)]
    size = np.abs(dK).max() * np.abs(K).max()
    for plus, minus in zip(*values, strict=True):
        np.testing.assert_allclose((plus - minus) / (2 * step), 0, atol=1e-8 * size)
    moved = 2 * np.einsum("hrd,hrd->h", K, dK)
    assert np.abs(moved).min() > 1e-3 * size


@pytest.mark.parametrize("task", [PLAIN, SKEW, TWISTED, PLAIN.replace(out_dim=2)])
def test_every_subset_is_a_fixed_point(task):
    """[`fixed-points`, `ansatz`] All 2^D ansatz points stop the flow at loss L(S), both to 1e-13."""
    d, found = directions(task), []
    for learned, level in separate.fixed_points(d):
        for rank in (1, 2):
            weights = separate.ansatz_weights(d, learned, heads=task.dim, rank=rank)
            assert np.abs(gradient(task, pack(*weights), weights[1])).max() < 1e-13
            assert loss(task, *weights) == pytest.approx(level, abs=1e-13)
            state = separate.conditions(d, learned, *weights)
            assert state.hold()
            assert state.hold_as_published()
        found.append((tuple(learned), level))
    assert len({mask for mask, _ in found}) == 2**task.dim
    assert {mask for mask, _ in found} == set(product((False, True), repeat=task.dim))


def test_published_levels():
    """[`plateau`] Eq. 19 for D = 4, N = 31: the numbers of the nested sets."""
    d = directions(Task(spectrum=(0.4, 0.3, 0.2, 0.1), context=31))
    levels = {tuple(mask): level for mask, level in separate.fixed_points(d)}
    nested = [levels[tuple(np.arange(4) < m)] for m in range(5)]
    np.testing.assert_allclose(nested, [1, 0.64057971, 0.37737216, 0.2098046, 0.13599507], atol=5e-9)


def test_rank_head_rests_at_cube_root_of_sum():
    """[`rank-strength`] v^3 is the sum of the strengths a head holds."""
    d = directions(PLAIN)
    v, K, _ = separate.ansatz_weights(d, np.array([True, False, True, True]), heads=1, rank=3)
    assert v[0] ** 3 == pytest.approx(d.strength[[0, 2, 3]].sum())
    np.testing.assert_allclose(np.sum(K**2, axis=2)[0], d.strength[[0, 2, 3]] / v[0])


@pytest.mark.parametrize("task", [PLAIN, SKEW])
def test_hessian_spectrum_and_index_at_every_subset(task):
    """[`hessian`, `index`] All 16 subsets: eigenvalues to 1e-8 of finite differences, index by counting."""
    d = directions(task)
    for learned, _ in separate.fixed_points(d):
        weights = separate.ansatz_weights(d, learned, heads=5)
        numeric = np.linalg.eigvalsh(hessian(task, weights))
        formula = separate.hessian_spectrum(d, learned, heads=5)
        np.testing.assert_allclose(formula, numeric, rtol=0, atol=1e-8 * np.abs(numeric).max() + 1e-9)
        assert separate.escape_directions(d, learned) == np.sum(numeric > 1e-5)


def test_visited_saddles_are_degenerate():
    """[`index`] The nested sets of the plain task have index 0: no exponential escape from any of them."""
    d = directions(PLAIN)
    assert [separate.escape_directions(d, np.arange(4) < m) for m in range(5)] == [0] * 5
    assert separate.escape_directions(d, np.array([False, True, False, False])) == 1


def test_silent_head_outside_the_span_can_still_rest():
    """[`conditions`] C3 is sufficient, not necessary: k'Gq = 0 is enough for a silent head."""
    d, learned = directions(PLAIN), np.array([True, False, False, False])
    v, K, Q = separate.ansatz_weights(d, learned, heads=3)
    g = d.drive
    K[1, 0] = d.left @ np.array([0, 1.0, 1.0, 0])
    Q[1, 0] = d.right @ np.array([0, 1.0, -g[1] / g[2], 0])
    state = separate.conditions(d, learned, v, K, Q)
    assert np.abs(gradient(PLAIN, pack(v, K, Q), K)).max() < 1e-14
    assert state.hold()
    assert not state.hold_as_published()
    Q[1, 0] = d.right[:, 1]
    assert not separate.conditions(d, learned, v, K, Q).hold()
    assert np.abs(gradient(PLAIN, pack(v, K, Q), K)).max() > 1e-3
    Q[1, 0] = d.right[:, 0]  # C3 as published: the query inside the learned span
    assert separate.conditions(d, learned, v, K, Q).hold_as_published()


def test_speaking_head_outside_the_span_is_no_fixed_point():
    """[`conditions`] C1 and C2 fail where they should."""
    d, learned = directions(PLAIN), np.array([True, False, False, False])
    v, K, Q = separate.ansatz_weights(d, learned, heads=3)
    assert separate.conditions(d, np.array([True, True, False, False]), v, K, Q).matrix > 0.1
    K[0, 0] += 0.1 * d.left[:, 2]
    assert separate.conditions(d, learned, v, K, Q).span[0] > 0.05


@pytest.mark.parametrize("task", [PLAIN, TWISTED])
def test_rank_optimum_of_a_sample_meets_the_population(task):
    """[`rank-optimum`] Alternating least squares finds the closed form, and no random start ends lower."""
    L, rng = landscape(task), np.random.default_rng(0)
    C, B, query = matrices(task)
    sample = SampleLandscape(C, np.einsum("ab,cd->acbd", B, query), L.base)
    best = directions(task)
    for rank in range(task.dim + 1):
        A = separate.rank_optimum(L, rank)
        assert np.linalg.matrix_rank(A, tol=1e-9) == rank
        np.testing.assert_allclose(separate.rank_optimum(sample, rank), A, rtol=0, atol=1e-7 * np.abs(A).max() + 1e-12)
        top = np.sort(best.saved)[::-1][:rank].sum()
        assert sample.loss(A) == pytest.approx(best.base - top, abs=1e-12)
        other = separate.alternate(sample, rng.standard_normal((task.dim, task.dim)), rank) if rank else A
        assert sample.loss(other) >= sample.loss(A) - 1e-12


def test_sample_rank_optimum_is_stationary():
    """[`rank-optimum`] On moments that do not factorise the residual force has rank D - m."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((200, 9)) @ rng.standard_normal((9, 9))
    y = z @ rng.standard_normal(9) + rng.standard_normal(200)
    L = SampleLandscape((y @ z / 200).reshape(3, 3), (z.T @ z / 200).reshape(3, 3, 3, 3), float(np.mean(y**2)))
    for rank in (1, 2):
        A = separate.rank_optimum(L, rank)
        force = np.linalg.svd(L.force(A))[1]
        assert np.all(force[3 - rank :] < 1e-4 * np.linalg.norm(L.cross))
        assert L.loss(A) == pytest.approx(np.mean((y - z @ A.ravel()) ** 2))


def test_rotation_rate_is_a_hessian_eigenvalue():
    """[`rotation`, `path`] lambda = .4, .2 and omega = 1, 3: mu = .0300, path {} {1} {2} {1,2}."""
    task = Task(spectrum=(0.4, 0.2), context=31, task_spectrum=(1.0, 3.0))
    d = directions(task)
    numeric = np.linalg.eigvalsh(hessian(task, separate.ansatz_weights(d, np.array([True, False]), heads=2)))
    assert rotation_rate(d, 0, 1) == pytest.approx(numeric[-1], rel=1e-7)
    assert rotation_rate(d, 0, 1) == pytest.approx(0.0300, abs=1e-4)
    assert rotation_rate(d, 1, 0) < 0
    assert learning_path(d, places=2) == ((), (0,), (1,), (0, 1))
    assert learning_path(directions(PLAIN), places=4) == ((), (0,), (0, 1), (0, 1, 2), (0, 1, 2, 3))


def test_bad_input_is_named():
    """Ties, too many directions, covariances that do not commute, wrong shapes, too few heads."""
    white = directions(Task(dim=3, context=8, spectrum="white"))
    with pytest.raises(BadInput, match="save the same loss"):
        next(separate.fixed_points(white))
    with pytest.raises(BadInput, match="at most 20"):
        next(separate.fixed_points(directions(Task(dim=21, context=8))))
    with pytest.raises(BadInput, match="share eigenvectors"):
        separate.hessian_spectrum(directions(TWISTED), np.zeros(3, bool), 3)
    with pytest.raises(BadInput, match="share eigenvectors"):
        separate.escape_directions(directions(TWISTED), np.zeros(3, bool))
    with pytest.raises(BadInput, match="cannot hold 4"):
        separate.ansatz_weights(directions(PLAIN), np.ones(4, bool), heads=3)
    with pytest.raises(BadInput, match="cannot hold 4"):
        separate.hessian_spectrum(directions(PLAIN), np.ones(4, bool), heads=3)
    with pytest.raises(BadInput, match="shapes"):
        separate.check_shapes(np.zeros(2), np.zeros((3, 1, 4)), np.zeros((3, 1, 4)))
    with pytest.raises(BadInput, match="must be finite"):
        separate.check_shapes(np.full(2, np.nan), np.zeros((2, 1, 4)), np.zeros((2, 1, 4)))
    with pytest.raises(BadInput, match="must have full rank"):
        separate.rank_optimum(SampleLandscape(np.eye(2), np.ones((2, 2, 2, 2)), 1.0), 1)
    features = np.random.default_rng(0).standard_normal((3, 2, 2))  # three sequences for four features
    with pytest.raises(BadInput, match="too few"):
        separate.rank_optimum(SampleLandscape(np.eye(2), np.einsum("pac,pbd->acbd", features, features), 1.0), 1)
    with pytest.raises(BadInput, match="must lie between 0 and 4"):
        separate.rank_optimum(landscape(PLAIN), 5)
