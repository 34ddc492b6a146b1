"""The scalar equation against numerical integration of the equation itself."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.errors import BadInput
from iclflow.theory import single_mode
from iclflow.theory.single_mode import Growth, clock, fallen, time_to_reach, value_at

G, M = 0.16, 0.0712  # a drive and a curvature of the size of the paper's first direction
C = (G / M) ** (1 / 3)


def integrate(field, start, times):
    """DOP853 at the limit of double precision."""
    run = solve_ivp(field, (0, times[-1]), start, method="DOP853", rtol=3e-14, atol=1e-24, t_eval=times)
    return run.y


@pytest.mark.parametrize("v0", [0.3, 0.05, 0.005])
def test_implicit_solution_solves_scalar_equation(v0):
    """[`implicit-solution`] v(t) agrees with integration to 1e-11 through the whole drop."""
    times = np.linspace(0, 1.3 / (G * v0) + 10, 60)
    numeric = integrate(lambda t, v: G * v**2 - M * v**5, [v0], times)[0]
    np.testing.assert_allclose(value_at(times, v0, G, M), numeric, rtol=1e-11)
    np.testing.assert_allclose(single_mode.scalar_flow(numeric, G, M), G * numeric**2 - M * numeric**5)
    rising = numeric < C * (1 - 1e-4)
    np.testing.assert_allclose(time_to_reach(numeric[rising], v0, G, M), times[rising], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("held", [0.0, 0.01, 1.0, 40.0])
def test_inverse_is_exact_at_both_ends(held):
    """[`implicit-solution`] The inverse returns its argument to 1e-12 from X = 1e-26 to 1 - X = 1e-26."""
    growth, u = Growth(G, M, held), np.linspace(-60, 60, 481)
    np.testing.assert_allclose(growth.logit_at(growth.age_at(u)), u, rtol=1e-12, atol=1e-12)


def test_clock_starts_like_the_unsaturated_head():
    """[`implicit-solution`] F(x) = -1/x + x^2/2 at small x: age 0 is the blow-up of dv/dt = g v^2."""
    x = np.array([1e-8, 1e-5, 1e-3, 1e-2])
    np.testing.assert_allclose(clock(x) + 1 / x, x**2 / 2, atol=1e-6 * x[-1] ** 2 + 4e-16 / x[0])
    np.testing.assert_allclose((clock(x) + 1 / x)[2:], x[2:] ** 2 / 2, rtol=1e-4)
    late = Growth(G, M).value(np.array([-1e9 / (G * C)]))
    np.testing.assert_allclose(late, C * 1e-9, rtol=1e-12)


def test_distance_to_saturation_keeps_its_digits():
    """[`implicit-solution`] 1 - X decays like exp(-3 g c t) down to 1e-200."""
    growth = Growth(G, M)
    u = growth.logit_at(np.array([50.0, 60.0, 400.0]) / (G * C))
    np.testing.assert_allclose(np.diff(u), 3 * np.array([10.0, 340.0]), rtol=1e-12)


@pytest.mark.parametrize("held", [0.3, 2.0, 20.0])
def test_component_in_a_grown_head(held):
    """[`component-solution`, `stretch`, `switch`] Closed forms of t, of the integral of v and of 1 - X."""
    growth, alpha, first = Growth(G, M, held), G / M, 1e-7
    start = float(growth.age_at(np.log(first / (1 - first))))
    assert start == pytest.approx(np.log(first) / (2 * G * held ** (1 / 3)), rel=1e-6)
    times = np.linspace(0, -1.6 * start + 40, 50)

    def field(t, y):
        w, v = y[0], (held + y[0]) ** (1 / 3)
        return [2 * w * (G - M * w) * v**4 / (held + 2 * w / 3), v, 1 - w / alpha]

    w, eta, left = integrate(field, [alpha * first, np.log(first) / (2 * G), 0.0], times)
    np.testing.assert_allclose(growth.fraction(times + start) * alpha, w, rtol=1e-10)
    np.testing.assert_allclose(growth.value(times + start) ** 3 - held, w, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(growth.eta(growth.logit_at(times + start)), eta, rtol=1e-6, atol=1e-6)
    assert left[-1] + start == pytest.approx(growth.switch_age, abs=1e-5)
    assert eta[-1] == pytest.approx(growth.stretch + growth.final_value * (times[-1] + start), rel=1e-6)


def test_new_head_switches_off_one_over_gc_before_blow_up():
    """[`switch`, `stretch`] A head on its own switches off at -1/gc, and eta gains kappa_0 = 0.7530."""
    growth, v0 = Growth(G, M), 1e-3
    times = np.array([0, 1.03 / (G * v0)])

    def field(t, y):
        return [G * y[0] ** 2 - M * y[0] ** 5, y[0], 1 - y[0] ** 3 * M / G]

    _, eta, left = integrate(field, [v0, np.log(v0 / C) / G, 0.0], times)[:, -1]
    assert left - 1 / (G * v0) == pytest.approx(growth.switch_age, rel=1e-6)
    assert eta - C * (times[-1] - 1 / (G * v0)) == pytest.approx(growth.stretch, rel=1e-6)
    assert growth.stretch * G == pytest.approx(0.7530, abs=1e-4)


def test_midpoint_of_the_drop():
    """[`drop`] Half of the loss is gone at X = 1 - 1/sqrt(2), whatever the head holds."""
    for held in (0.0, 1.0):
        growth = Growth(G, M, held)
        X = growth.fraction(growth.midpoint_age)
        assert fallen(X) == pytest.approx(0.5, abs=1e-14)
        assert growth.fallen_at(growth.midpoint_age) == pytest.approx(0.5, abs=1e-14)
        assert growth.gained(growth.midpoint_age) == pytest.approx(X * G / M)


@pytest.mark.parametrize(("v0", "v"), [(0.0, 0.5), (-0.1, 0.5), (0.1, 2 * C)])
def test_values_outside_the_range_are_refused(v0, v):
    with pytest.raises(BadInput, match="must lie between 0 and"):
        time_to_reach(v, v0, G, M)
