"""In-context against in-weight learning, against moments enumerated over every Gaussian variable."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import roots_hermitenorm

from iclflow.config import Task
from iclflow.data.spectrum import covariances, in_weight_task
from iclflow.errors import BadInput
from iclflow.theory import in_weight

PUBLIC = Task(dim=4, context=31, spectrum="white")  # the published figure: trace 1, N = 31
FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def gaussian_grid(nodes):
    """All points and weights of a product of Gauss-Hermite rules, one entry of `nodes` a variable."""
    rules = [roots_hermitenorm(n) for n in nodes]
    points = np.array(list(itertools.product(*(r[0] for r in rules))))
    weights = np.prod(np.array(list(itertools.product(*(r[1] / r[1].sum() for r in rules)))), axis=1)
    return points, weights


@cache
def enumerated(task, fraction):
    """E[psi psi'], E[y psi], E[y^2] of psi = S_ab x_c / N, exactly: all variables on a quadrature grid."""
    D, N = task.dim, task.context
    cov, w0 = covariances(task), in_weight_task(task)[0]
    token_root, task_root = np.linalg.cholesky(cov.token), np.linalg.cholesky(cov.task)
    noisy = task.label_noise > 0
    extra = N if (noisy or fraction == 0) else 0  # label noise, or labels that are noise
    grid, weight = gaussian_grid([3] * (N * D) + [4] * D + [3] * extra)
    x = grid[:, : N * D].reshape(-1, N, D) @ token_root.T
    q = grid[:, N * D : N * D + D] @ token_root.T
    spread = np.sqrt(1 + task.label_noise) if fraction == 0 else np.sqrt(task.label_noise)
    noise = spread * grid[:, N * D + D :] if extra else np.zeros((len(grid), N))
    own, own_weight = gaussian_grid([3] * D) if fraction > 0 else (np.zeros((0, D)), np.zeros(0))
    laws = [(fraction * b, task_root @ a, True) for a, b in zip(own, own_weight, strict=True)]
    laws += [(1 - fraction, w0, fraction > 0)] if fraction < 1 else []
    C, b, power = 0.0, 0.0, 0.0
    for share, w, tells in laws:
        y = (x @ w if tells else 0.0) + noise
        tokens = np.concatenate([x, y[..., None]], axis=2)
        hidden = np.pad(q, ((0, 0), (0, 1)))
        S = np.einsum("pna,pnb->pab", tokens, tokens) + np.einsum("pa,pb->pab", hidden, hidden)
        psi = np.einsum("pab,pc->pabc", S / N, q).reshape(len(q), -1)
        target = q @ w
        C = C + share * (psi * weight[:, None]).T @ psi
        b = b + share * (weight * target) @ psi
        power = power + share * weight @ target**2
    return C, b, float(power)


def invariants(task):
    """The six rotation-invariant tensors about w_0, in the task's own coordinates, as rows on psi."""
    D = task.dim
    along = np.append(in_weight_task(task)[0] / np.sqrt(D), 0.0)
    label = np.append(np.zeros(D), 1.0)
    across = np.diag(np.append(np.ones(D), 0.0)) - np.outer(along, along)
    cut = np.eye(D + 1)[:, :D]
    rows = [
        np.einsum("a,b,c->abc", along, along, along),
        np.einsum("a,b,c->abc", along, label, along),
        np.einsum("a,b,c->abc", label, label, along),
        np.einsum("a,bc->abc", along, across),
        np.einsum("a,bc->abc", label, across),
        np.einsum("ab,c->abc", across, along),
    ]
    return np.array([(row @ cut).ravel() for row in rows])


SMALL = [
    Task(dim=2, context=2, spectrum="white"),
    Task(dim=3, context=1, spectrum=(0.8,) * 3, task_spectrum=(1.5,) * 3, task_seed=3),
    Task(dim=2, context=2, spectrum=(0.6, 0.6), label_noise=0.3),
]


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("task", SMALL, ids=["public", "three", "noisy"])
def test_moments_of_the_six_invariants_are_exact(task, fraction):
    """[`iwl-form`] Wick and six nodes against enumeration over tokens, labels, query and task vector."""
    C, b, power = enumerated(task, fraction)
    T = invariants(task)
    form = in_weight.form(task.replace(icl_fraction=fraction))
    np.testing.assert_allclose(form.C, T @ C @ T.T, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(form.b, T @ b, rtol=1e-11, atol=1e-13)
    assert form.power == pytest.approx(power, rel=1e-12)


def test_test_laws_are_pure_whatever_the_training_law():
    """[`iwl-form`] `in_context` is p = 1 and `in_weight` is p = 0, with labels that say nothing."""
    task = SMALL[0].replace(icl_fraction=0.3)
    for law, fraction in (("in_context", 1.0), ("in_weight", 0.0)):
        pure = in_weight.form(task.replace(icl_fraction=fraction))
        for a, b in zip(in_weight.form(task, law), pure, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("fraction", [0.0, 0.4, 1.0])
def test_cross_tensor_of_any_covariance(fraction):
    """[`iwl-cross`] Unequal eigenvalues, another task covariance and label noise, by enumeration."""
    task = Task(dim=2, context=2, spectrum=(0.9, 0.4), task_spectrum=(1.0, 2.0), label_noise=0.2)
    b = enumerated(task, fraction)[1].reshape(3, 3, 2)
    np.testing.assert_allclose(in_weight.cross_tensor(task.replace(icl_fraction=fraction)), b, rtol=1e-11, atol=1e-14)


def test_prefixes_average_the_moments_of_all_context_lengths():
    """[`iwl-form`] [`iwl-cross`] Lengths 1 and 2, each with its own normaliser."""
    task = SMALL[0].replace(icl_fraction=0.3)
    whole = in_weight.form(task.replace(prefix_loss=True))
    parts = [in_weight.form(task.replace(context=n)) for n in (1, 2)]
    np.testing.assert_allclose(whole.C, (parts[0].C + parts[1].C) / 2, rtol=1e-12)
    np.testing.assert_allclose(whole.b, (parts[0].b + parts[1].b) / 2, rtol=1e-12)
    tensors = [in_weight.cross_tensor(task.replace(context=n)) for n in (1, 2)]
    np.testing.assert_allclose(in_weight.cross_tensor(task.replace(prefix_loss=True)), sum(tensors) / 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("fraction", "rate"), list(zip(FRACTIONS, (0.500, 0.513, 0.399, 0.289, 0.186, 0.125), strict=True))
)
def test_escape_rates_of_the_published_setting(fraction, rate):
    """[`iwl-escape`] [`iwl-white`] Singular values of the whole tensor: in-weight learning is faster."""
    task = PUBLIC.replace(icl_fraction=fraction)
    rates = in_weight.escape(task).rates
    assert rates[0] == pytest.approx(rate, abs=6e-4)
    others = list(rates)
    for rate in np.linalg.svd(in_weight.modes(task).drive)[1]:
        nearest = others.pop(int(np.argmin(np.abs(others - rate))))
        assert nearest == pytest.approx(rate, rel=1e-12)
    np.testing.assert_allclose(others, min(others), rtol=1e-12)  # of a vector across w_0, D - 1 times
    assert others[0] < rates[0]


def full_flow(task, value, key_query, time):
    """Gradient flow of every merged weight on enumerated moments; training, in-context and in-weight loss."""
    H, E, D = key_query.shape
    C, b, _ = enumerated(task.replace(icl_fraction=1.0), task.icl_fraction)

    def field(_, w):
        V, KQ = w[: H * E].reshape(H, E), w[H * E :].reshape(H, E, D)
        theta = np.einsum("ha,hbc->abc", V, KQ).ravel()
        pull = (b - C @ theta).reshape(E, E, D)
        pull = (pull + pull.transpose(1, 0, 2)) / 2
        return np.r_[np.einsum("abc,hbc->ha", pull, KQ).ravel(), np.einsum("abc,ha->hbc", pull, V).ravel()]

    start = np.r_[value.ravel(), key_query.ravel()]
    path = solve_ivp(field, (0, time[-1]), start, "DOP853", t_eval=time, rtol=1e-10, atol=1e-15).y.T
    V, KQ = path[:, : H * E].reshape(-1, H, E), path[:, H * E :].reshape(-1, H, E, D)
    theta = np.einsum("tha,thbc->tabc", V, KQ).reshape(len(time), -1)
    losses = []
    for fraction in (task.icl_fraction, 1.0, 0.0):
        C, b, power = enumerated(task.replace(icl_fraction=1.0), fraction)
        losses.append(power - 2 * theta @ b + np.einsum("ti,ij,tj->t", theta, C, theta))
    return losses


def random_start(task, heads, scale, seed):
    """v and U random, vector blocks zero, as published."""
    rng, D = np.random.default_rng(seed), task.dim
    value, key_query = np.zeros((heads, D + 1)), np.zeros((heads, D + 1, D))
    value[:, -1], key_query[:, :-1] = (
        scale * rng.standard_normal(heads),
        scale * rng.standard_normal((heads, D, D)),
    )
    return value, key_query


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("task", SMALL[:2], ids=["public", "three"])
def test_five_numbers_follow_all_three_losses_of_the_full_flow(task, fraction):
    """[`iwl-five`] [`iwl-alpha`] Random heads of 1e-6 with all their blocks, on three laws, past the drop."""
    task = task.replace(icl_fraction=fraction)
    value, key_query = random_start(task, 3, 1e-6, seed=2)
    alpha = in_weight.growing_part(task, value, key_query)
    half = in_weight.half_time(task, alpha)
    time = np.linspace(0, 1.6 * half, 161)
    losses = full_flow(task, value, key_query, time)
    course = in_weight.course(task, alpha, time)
    middle = (losses[0][0] + in_weight.resting_point(task).train) / 2
    crossing = np.interp(-middle, -np.minimum.accumulate(losses[0]), time)
    assert half == pytest.approx(crossing, rel=2e-3)
    first, second = in_weight.escape(task).rates[:2]
    left_behind = 1e-6 ** (1 - second / first)  # what the next weights have grown to when the first arrive
    for theory, flow in zip((course.train, course.in_context, course.in_weight), losses, strict=True):
        np.testing.assert_allclose(theory, flow, atol=(1e-3 + left_behind) * losses[0][0])


def test_gradient_of_the_five_numbers_is_the_one_that_is_followed():
    """[`iwl-five`] Velocities of s, v, f, h, r are minus half the loss gradient, that of f over D - 1."""
    task = PUBLIC.replace(icl_fraction=0.4)
    form, h = in_weight.form(task), 1e-6
    middle = in_weight.half_time(task, 1e-6)
    scalars = in_weight.course(task, 1e-6, np.array([0.0, middle - 1e-3, middle, middle + 1e-3])).scalars
    velocity = (scalars[3] - scalars[1]) / 2e-3
    loss = lambda x: form.loss(in_weight.coefficients(x))
    slope = np.array([(loss(scalars[2] + h * e) - loss(scalars[2] - h * e)) / (2 * h) for e in np.eye(5)])
    np.testing.assert_allclose(velocity, -slope / 2 / np.array([1, 1, 3, 1, 1]), rtol=1e-4, atol=1e-6)


LEVELS = list(
    zip(
        FRACTIONS,
        (0.0606, 0.1136, 0.1273, 0.1341, 0.1377, 0.1389),
        (0.0123, 0.0624, 0.0945, 0.1184, 0.1335, 0.1389),
        (0.0083, 0.0083, 0.0071, 0.0051, 0.0027, 0.0),
        strict=True,
    )
)


@pytest.mark.parametrize(("fraction", "rest", "lowest", "late"), LEVELS)
def test_levels_of_the_published_setting(fraction, rest, lowest, late):
    """[`iwl-rest`] [`iwl-levels`] Resting level, global minimum and rate of leaving, to printed digits."""
    task = PUBLIC.replace(icl_fraction=fraction)
    point = in_weight.resting_point(task)
    assert point.train == pytest.approx(rest, abs=6e-5)
    assert in_weight.global_minimum(task) == pytest.approx(lowest, abs=6e-5)
    assert point.late_rate == pytest.approx(late, abs=6e-5)


def test_closed_levels_at_the_two_ends():
    """[`iwl-levels`] 2/(N+2), 2.409 and 1.0957, and the exact moments at these points."""
    ends = [in_weight.resting_point(PUBLIC.replace(icl_fraction=p)) for p in (0.0, 1.0)]
    assert in_weight.in_weight_plateau(31) == pytest.approx(ends[0].train, rel=1e-6)
    assert in_weight.in_context_loss_of_in_weight_solution(4, 31) == pytest.approx(ends[0].in_context, rel=1e-6)
    assert in_weight.in_weight_loss_of_in_context_solution(4, 31) == pytest.approx(ends[1].in_weight, rel=1e-6)
    assert ends[0].in_context == pytest.approx(2.409, abs=5e-4)
    assert ends[1].in_weight == pytest.approx(1.0957, abs=5e-5)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("task", SMALL[:2], ids=["public", "three"])
def test_the_resting_point_is_critical_and_is_left_at_the_late_rate(task, fraction):
    """[`iwl-rest`] The full gradient tensor there: zero on the grown weights, largest singular value."""
    point = in_weight.resting_point(task.replace(icl_fraction=fraction))
    C, b, _ = enumerated(task, fraction)
    D = task.dim
    s, v, f, h, r = point.scalars
    w = in_weight_task(task)[0] / np.sqrt(D)
    V = np.append(s * w, v)
    KQ = np.concatenate([f * (np.eye(D) - np.outer(w, w)) + h * np.outer(w, w), r * w[None]])
    theta = np.einsum("a,bc->abc", V, KQ).ravel()
    pull = (b - C @ theta).reshape(D + 1, D + 1, D)
    pull = (pull + pull.transpose(1, 0, 2)) / 2
    assert np.abs(np.einsum("abc,bc->a", pull, KQ)).max() < 1e-9
    assert np.abs(np.einsum("abc,a->bc", pull, V)).max() < 1e-9
    rates = np.linalg.svd(pull.reshape(D + 1, -1))[1]
    assert rates[0] == pytest.approx(point.late_rate, rel=1e-6)
    assert rates[0] > 1e-3


def test_a_second_drop_follows_within_a_fifth_of_the_predicted_time():
    """[`iwl-late`] The full flow from random weights passes halfway from that level to the minimum."""
    task = SMALL[0].replace(icl_fraction=0.0)
    value, key_query = random_start(task, 4, 1e-6, seed=1)
    alpha = in_weight.growing_part(task, value, key_query)
    predicted = in_weight.late_drop_time(task, alpha)
    time = np.linspace(0, 2 * predicted, 400)
    train = full_flow(task, value, key_query, time)[0]
    rest, lowest = in_weight.resting_point(task).train, in_weight.global_minimum(task)
    second = np.interp(-(rest + lowest) / 2, -np.minimum.accumulate(train), time)
    assert second == pytest.approx(predicted, rel=0.2)
    assert in_weight.late_drop_time(PUBLIC, 1e-10) == np.inf


def test_in_weight_ability_comes_first_and_goes_again():
    """[`iwl-five`] The published picture at p = 0.4: minimum 0.342 and end of the test losses."""
    task = PUBLIC.replace(icl_fraction=0.4)
    draws = [in_weight.growing_part(task, *random_start(task, 8, 1e-6 * np.sqrt(31), seed)) for seed in range(500)]
    course = in_weight.course(task, float(np.mean(draws)), np.linspace(0, 124, 500))
    assert course.in_weight.min() == pytest.approx(0.342, abs=2e-3)
    assert course.in_weight[-1] > 1.0
    assert course.in_context.max() > 1.05
    assert course.in_context[-1] < 0.17


def test_what_the_reduction_cannot_do_is_refused():
    for task, word in (
        (Task(icl_fraction=0.5), "spectrum: 'linear' must be white"),
        (Task(icl_fraction=0.5, spectrum="white", task_spectrum=(1.0, 1.0, 1.0, 2.0)), "task_spectrum"),
        (Task(icl_fraction=0.5, spectrum="white", out_dim=2), "out_dim"),
        (Task(icl_fraction=0.5, dim=1), "dim: 1"),
    ):
        with pytest.raises(BadInput, match=word):
            in_weight.form(task)
    with pytest.raises(BadInput, match="law"):
        in_weight.form(PUBLIC, "test")
    with pytest.raises(BadInput, match="alpha"):
        in_weight.course(PUBLIC, 0.0, np.array([0.0, 1.0]))
