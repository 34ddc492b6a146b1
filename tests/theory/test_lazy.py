"""The lazy regime: kernels by differentiation, the frozen curve against the true flow."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.theory.landscape import landscape
from iclflow.theory.laws import lazy

TASK = Task(dim=4, context=31)
SCENE = landscape(TASK)
D = 4


def split(w, H, R):
    """Weights of merged (R = 0) or separate attention from one vector, and their effective matrix."""
    if R == 0:
        v, U = w[:H], w[H:].reshape(H, D, D)
        return (v, U), np.tensordot(v, U, 1)
    v, K, Q = w[:H], *w[H:].reshape(2, H, R, D)
    return (v, K, Q), np.einsum("h,hri,hrj->ij", v, K, Q)


def kernel(parts):
    return lazy.kernel_merged(*parts) if len(parts) == 2 else lazy.kernel_separate(*parts)


def size(H, R):
    return H * (1 + D * D) if R == 0 else H * (1 + 2 * R * D)


def paired(H, R, scale, seed):
    """Heads in pairs with opposite values, so that training starts from the zero function."""
    parts, _ = split(scale * np.random.default_rng(seed).standard_normal(size(H // 2, R)), H // 2, R)
    v, *rest = parts
    return np.concatenate([np.r_[v, -v], *(np.concatenate([r, r]).ravel() for r in rest)])


def jacobian(w, H, R):
    h = 1e-6
    return np.array([(split(w + h * e, H, R)[1] - split(w - h * e, H, R)[1]).ravel() / (2 * h) for e in np.eye(len(w))])


@pytest.mark.parametrize("R", [0, 1, 3])
def test_the_kernel_is_the_jacobian_times_its_transpose(R):
    """[`lazy-kernel`] Differences of the effective matrix in every weight; 0 stands for merged."""
    w = np.random.default_rng(R).standard_normal(size(3, R))
    J = jacobian(w, 3, R)
    np.testing.assert_allclose(kernel(split(w, 3, R)[0]), J.T @ J, atol=1e-6)


@pytest.mark.parametrize("R", [0, 2])
def test_the_mean_kernel_is_a_multiple_of_the_identity(R):
    """[`lazy-rate`] Mean over 1500 draws within five standard errors, every entry."""
    rng, H, scales = np.random.default_rng(3), 5, np.array([0.5, 0.8, 1.2])
    draws = []
    for _ in range(1500):
        w = rng.standard_normal(size(H, R))
        parts = [s * part for s, part in zip(scales, split(w, H, R)[0], strict=False)]
        draws.append(kernel(parts))
    draws = np.array(draws)
    rate = lazy.rate_merged(H, 0.5, 0.8) if R == 0 else lazy.rate_separate(H, R, *scales)
    error = draws.std(0) / np.sqrt(len(draws)) + 1e-12
    assert (np.abs(draws.mean(0) - rate * np.eye(D * D)) < 5.5 * error).all()


@pytest.mark.parametrize(("R", "H", "scale"), [(0, 100, 0.8), (1, 100, 0.8)], ids=["merged", "separate"])
def test_large_weights_follow_the_frozen_kernel(R, H, scale):
    """[`lazy-loss`] Excess loss within 2e-3 of its start by the empirical kernel; never faster than at 0."""
    w = paired(H, R, scale, seed=1)
    parts, A = split(w, H, R)
    assert np.abs(A).max() < 1e-12
    K = kernel(parts)
    time = np.r_[0, np.geomspace(1e-3, 30, 60)]

    def field(_, w):
        parts, A = split(w, H, R)
        G = SCENE.cross - SCENE.context @ A @ SCENE.query
        if R == 0:
            v, U = parts
            return np.concatenate([(U * G).sum((1, 2)), (v[:, None, None] * G).ravel()])
        v, K, Q = parts
        pull = v[:, None, None]
        return np.concatenate(
            [np.einsum("hri,ij,hrj->h", K, G, Q), (pull * (Q @ G.T)).ravel(), (pull * (K @ G)).ravel()]
        )

    path = solve_ivp(field, (0, time[-1]), w, "DOP853", t_eval=time, rtol=1e-8, atol=1e-10).y.T
    true = np.array([SCENE.loss(split(w, H, R)[1]) for w in path])
    frozen = lazy.frozen_loss(SCENE, K, A, time)
    assert np.abs(frozen - true).max() < 2e-3 * (true[0] - 0.136)
    rate = lazy.rate_merged(H, scale, scale) if R == 0 else lazy.rate_separate(H, R, scale, scale, scale)
    mean = lazy.frozen_loss(SCENE, rate, A, time)
    assert np.abs(mean - true).max() < 0.12 * (true[0] - 0.136)
    assert (np.diff(np.diff(true) / np.diff(time)) > -1e-9).all()


def test_the_mean_curve_is_a_sum_of_exponentials_in_the_eigenbasis():
    """[`lazy-loss`] The printed sum over pairs of directions, term by term."""
    lam, N = np.array([0.4, 0.3, 0.2, 0.1]), 31
    L = landscape(TASK.replace(basis="identity"))
    start = np.random.default_rng(0).standard_normal((4, 4))
    m = np.outer((1 + 1 / N) * lam**2 + lam / N, lam)
    gap = start - np.diag(1 / (lam + (lam + 1) / N))
    time = np.linspace(0, 20, 30)
    expected = 0.13599507159802526 + (m * gap**2 * np.exp(-2 * 3.0 * m * time[:, None, None])).sum((1, 2))
    np.testing.assert_allclose(lazy.frozen_loss(L, 3.0, start, time), expected, rtol=1e-10)
    assert lazy.frozen_loss(L, 3.0, start, time)[0] == pytest.approx(L.loss(start), rel=1e-10)


@pytest.mark.parametrize(("R", "power"), [(0, 2), (1, 4)], ids=["merged", "separate"])
def test_curves_of_different_scales_collapse_when_time_is_rescaled(R, power):
    """[`lazy-kernel`] Time times s^2 (merged) or s^4 (separate) at fixed random directions."""
    time, start = np.geomspace(0.01, 10, 20), np.zeros((4, 4))
    curves = []
    for s in (1.0, 2.0):
        K = kernel(split(paired(20, R, s, seed=2), 20, R)[0])
        curves.append(lazy.frozen_loss(SCENE, K, start, time / s**power))
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-10)


def test_several_outputs_are_refused():
    with pytest.raises(BadInput, match="out_dim"):
        lazy.frozen_loss(landscape(TASK.replace(out_dim=2)), 1.0, np.zeros((4, 4)), np.array([0.0]))
