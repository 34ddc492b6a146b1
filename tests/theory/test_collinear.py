"""Heads that have become collinear, against SciPy's integrators, which share no code with them."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.errors import BadInput
from iclflow.theory.collinear import Modes
from iclflow.theory.solve import solve

NEAR = Modes(1.0, 1, np.array([1.0, 0.5, 0.2]), np.array([1.1, 0.7, 0.4]))
ROW = Modes(1.0, 1, np.array([[1.0, 0.5, 0.2], [0.3, 0.1, 0.4]]), np.diag([1.1, 0.7, 0.4, 0.9, 1.2, 0.8]) + 0.1)
FAR = Modes(2.0, 2, np.array([3.0, 1e-1, 2e-3]), np.array([9.0, 1e-2, 3e-6]))  # the last needs 1e6 times as long


def reference(modes: Modes, alpha: float, time: np.ndarray) -> np.ndarray:
    """The same equations by an implicit method of SciPy, as they stand in the text."""

    def field(_, y):
        a, n, r = np.exp(y[0]), y[1 : 1 + rows], y[1 + rows :]
        curvature = modes.curvature if modes.curvature.ndim == 2 else np.diag(modes.curvature)
        G = drive - (curvature @ (a**2 * np.outer(n, r)).ravel()).reshape(drive.shape)
        return np.r_[n @ G @ r, G @ r - n * (n @ G @ r), n @ G - r * (n @ G @ r)]

    drive = np.atleast_2d(modes.drive)
    rows, (u, _, w) = len(drive), np.linalg.svd(drive)
    start = np.r_[np.log(alpha) / 2, np.r_[u[:, 0], w[0]] * np.copysign(1.0, u[-1, 0])]
    return solve_ivp(field, (0, time[-1]), start, method="Radau", rtol=1e-11, atol=1e-13, t_eval=time).y.T


@pytest.mark.parametrize("modes", [NEAR, FAR, ROW], ids=["near", "far", "row"])
@pytest.mark.parametrize("alpha", [1e-2, 1e-12])
def test_states_are_those_of_another_solver_at_and_between_the_steps(modes, alpha):
    half = solve(modes, modes.start(alpha), 1e4).crossing(modes.loss, 0.7 * modes.base)
    time = np.unique(np.r_[np.linspace(0, 4 * half, 60), np.geomspace(half, 1e7, 60)])
    path = solve(modes, modes.start(alpha), 1e7)
    assert len(path.time) < 1500  # however long it rests
    np.testing.assert_allclose(path.at(time), reference(modes, alpha, time), atol=3e-7)
    np.testing.assert_array_equal(path.at(path.time), path.states)


def test_a_crossing_is_where_the_loss_between_the_steps_has_the_level():
    path = solve(NEAR, NEAR.start(1e-6), 1e3)
    for level in (0.9, 0.5, 0.3):
        when = path.crossing(NEAR.loss, level)
        assert NEAR.loss(path.at(np.array([when])))[0] == pytest.approx(level, abs=1e-9)
    assert path.crossing(NEAR.loss, -1.0) == np.inf
    assert path.crossing(NEAR.loss, 1.5) == np.inf  # below it from the start


@pytest.mark.parametrize("modes", [NEAR, ROW], ids=["number", "row"])
def test_the_resolvent_inverts_the_derivative_of_the_right_hand_side(modes):
    """One column of the derivative after another by central differences, for states with shifts of their own."""
    rng, size = np.random.default_rng(0), len(modes.start(1.0))
    states, shifts, right = rng.normal(0, 0.5, (2, size)), np.array([[0.7], [3.0]]), rng.normal(size=(2, size))
    if modes is NEAR:
        states[:, 1], right[:, 1] = 1.0, 0.0  # a value of one number has no other direction
    solved = modes.resolvent(states)(shifts)(right.ravel()).reshape(2, size)
    for state, shift, x, b in zip(states, shifts, solved, right, strict=True):
        h = 1e-6
        columns = [(modes.velocity(state + h * e) - modes.velocity(state - h * e)) / (2 * h) for e in np.eye(size)]
        np.testing.assert_allclose(shift * x - np.stack(columns, axis=1) @ x, b, rtol=1e-7, atol=1e-8)


def test_a_growing_part_that_is_not_positive_is_refused():
    for alpha in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(BadInput, match="alpha"):
            NEAR.start(alpha)
