"""White tokens: the closed forms against the flow of every weight."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.config import Task
from iclflow.errors import BadInput
from iclflow.theory import merged
from iclflow.theory.landscape import landscape
from iclflow.theory.laws import white
from iclflow.theory.solve import solve

TASKS = [
    Task(dim=4, context=31, spectrum="white"),
    Task(dim=3, context=5, spectrum=(1.0, 1.0, 1.0)),
    Task(dim=3, context=9, spectrum=(0.5,) * 3, task_spectrum=(2.0,) * 3, label_noise=0.4),
    Task(dim=2, context=6, spectrum=(0.7, 0.7), out_dim=3, normalize="tokens"),
]
IDS = ["public", "identity", "noisy", "outputs"]


def head_flow(task, a, y, time):
    """Values `a` and traces `y` of heads whose U are multiples of the identity, from Wick's rule."""
    D, N, O = task.dim, task.context, task.out_dim
    c = 1 / D if task.spectrum == "white" else task.spectrum[0]
    w = task.task_spectrum[0] if task.task_spectrum else 1.0
    shrink = N / (N + 1) if task.normalize == "tokens" else 1.0
    cross = shrink * c**2 * w
    context = shrink**2 * ((1 + 1 / N) * c**2 * w + (D * c * w + task.label_noise) * c / N)

    def field(_, state):
        a, y = state.reshape(2, -1)
        pull = np.sqrt(O * D) * cross - context * c * (a @ y)
        return np.concatenate([y * pull, a * pull])

    path = solve_ivp(field, (0, time[-1]), np.r_[a, y], "DOP853", t_eval=time, rtol=1e-12, atol=1e-16)
    states = path.y.T.reshape(len(time), 2, -1)
    sigma = np.einsum("th,th->t", states[:, 0], states[:, 1]) / np.sqrt(O * D)
    return sigma, D * (c * w - 2 * sigma * cross + sigma**2 * context * c)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_riccati_solution_holds_for_unequal_heads_of_mixed_sign(task):
    """[`white-riccati`] [`white-loss`] Gain and loss of three imbalanced heads, within 1e-9 of the flow."""
    a, y = np.array([0.02, -0.03, 0.01]), np.array([0.05, 0.01, -0.02])
    time = np.linspace(0, 12 / white.white_landscape(task).drive, 60)
    alpha, beta = np.sum((a + y) ** 2) / 4, np.sum((a - y) ** 2) / 4
    sigma, losses = head_flow(task, a, y, time)
    assert sigma[-1] > 0.9 * white.white_landscape(task).final
    got = white.gain(task, alpha, beta, time)
    np.testing.assert_allclose(got, sigma, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(white.loss(task, got), losses, rtol=1e-9)


def test_heads_without_a_growing_part_fall_to_the_zero_function():
    """[`white-riccati`] alpha = 0 lies on the stable manifold of the saddle."""
    a, time = np.array([0.3, -0.2]), np.linspace(0, 3, 30)
    sigma, _ = head_flow(TASKS[1], a, -a, time)
    np.testing.assert_allclose(white.gain(TASKS[1], 0.0, a @ a, time), sigma, rtol=1e-9)
    assert abs(sigma[-1]) < 1e-2 * abs(sigma[0])


def test_eq_10_is_the_balanced_form_for_identity_covariance_and_not_for_trace_one():
    """[`white-paper`] [`white-balanced`] Eq. 10 with w_init^2 = alpha; the public `white` spectrum is I/D."""
    time = np.linspace(0, 10, 80)
    task, w = TASKS[1], 1e-3
    sigma, _ = head_flow(task, np.array([w]), np.array([w]), time)
    np.testing.assert_allclose(white.paper_gain(3, 5, w, time), sigma, rtol=1e-8)
    np.testing.assert_allclose(white.gain(task, w**2, 0.0, time), sigma, rtol=1e-8)
    public = Task(dim=3, context=5, spectrum="white")
    assert np.abs(white.gain(public, w**2, 0.0, time) - white.paper_gain(3, 5, w, time)).max() > 0.3
    assert white.white_landscape(public).drive == pytest.approx(3**-1.5)


@pytest.mark.parametrize(("scale", "error"), [(1e-2, 1e-3), (1e-3, 1e-5)])
def test_random_key_query_matrices_follow_the_closed_form(scale, error):
    """[`merged-alpha`] All entries random: the half-drop time misses by about the weights squared."""
    task, time = TASKS[0], np.linspace(0, 120, 2401)
    c, N, D = 0.25, 31, 4
    context = (1 + 1 / N) * c**2 + c / N

    def field(_, w):
        v, U = w[:8], w[8:].reshape(8, D, D)
        G = c**2 * np.eye(D) - context * c * np.tensordot(v, U, 1)
        return np.concatenate([(U * G).sum((1, 2)), (v[:, None, None] * G).ravel()])

    rng = np.random.default_rng(0)
    w = scale * rng.standard_normal(8 + 8 * D * D)
    start = merged.alignment(landscape(task), w[:8], w[8:].reshape(8, D, D))
    path = solve_ivp(field, (0, 120), w, "DOP853", t_eval=time, rtol=1e-10, atol=1e-15).y
    sigma = np.einsum("ht,hdt->t", path[:8], path[8:].reshape(8, D * D, -1)[:, :: D + 1]) / D
    half = white.white_landscape(task).final / 2
    cross = [np.interp(half, s, time) for s in (sigma, white.gain(task, start.alpha, start.beta, time))]
    assert cross[1] == pytest.approx(cross[0], rel=error)


def test_the_reduction_for_any_covariance_is_the_closed_form_on_a_white_one():
    """[`merged-reduction`] [`white-balanced`] Two roads of the theory meet."""
    for task in TASKS:
        time = np.linspace(0, 15 / white.white_landscape(task).drive, 50)
        m = merged.modes(landscape(task))
        reduced = m.loss(solve(m, m.start(1e-8), time[-1]).at(time))
        closed = white.loss(task, white.gain(task, 1e-8, 0.0, time))
        np.testing.assert_allclose(reduced, closed, rtol=1e-6)


def test_what_is_not_white_is_refused():
    for task, word in (
        (Task(), "spectrum: 'linear' must be white"),
        (Task(dim=2, spectrum="white", task_spectrum=(1.0, 2.0)), "task_spectrum"),
    ):
        with pytest.raises(BadInput, match=word):
            white.white_landscape(task)
    with pytest.raises(BadInput, match="alpha, beta"):
        white.gain(TASKS[0], -1.0, 0.0, np.array([0.0]))
