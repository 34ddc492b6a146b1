"""Plateaus and drops are found where they are, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from iclflow.comparison.plateaus import find_drops, find_plateaus
from iclflow.errors import BadInput

GRIDS = ("even", "log")


def grid(kind, end, points):
    return np.linspace(0, end, points) if kind == "even" else np.r_[0, np.geomspace(1e-5 * end, end, points - 1)]


def staircase(time, middles, widths, sizes, floor=0.1):
    return floor + (sizes / (1 + np.exp(np.clip((time[:, None] - middles) / widths, -500, 500)))).sum(1)


def stairs(dim, growth, rng):
    """Middles of plateaus whose lengths grow by `growth`, with drops much shorter than these."""
    gaps = 10 * growth ** np.arange(dim)
    middles = np.cumsum(gaps)
    sizes = rng.uniform(0.7, 1.3, dim)
    return middles, gaps * rng.uniform(0.01, 0.05, dim), sizes / sizes.sum(), middles[-1] + gaps[-1]


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("growth", [1.0, 1.8, 2.5])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 1e-2])
@pytest.mark.parametrize("dim", range(1, 9))
def test_every_drop_of_a_staircase_is_found(dim, noise, growth, kind):
    """Count, middles (within a drop's width) and sizes of 1 to 8 drops under up to 1 % noise."""
    rng = np.random.default_rng([dim, int(growth * 10), int(1e4 * noise), len(kind)])
    middles, widths, sizes, end = stairs(dim, growth, rng)
    time = grid(kind, end, 20_000)
    loss = staircase(time, middles, widths, sizes) + noise * rng.standard_normal(len(time))
    drops, plateaus = find_drops(time, loss), find_plateaus(time, loss)
    assert len(drops.times) == dim
    assert len(plateaus.levels) == dim + 1
    assert (np.abs(drops.times - middles) < widths).all()
    np.testing.assert_allclose(drops.sizes, sizes, atol=1e-4 + 1.5 * noise)
    levels = 0.1 + np.append(np.cumsum(sizes[::-1])[::-1], 0.0)
    np.testing.assert_allclose(plateaus.levels, levels, atol=1e-4 + noise)
    ends = plateaus.starts + plateaus.lengths
    assert (plateaus.lengths > 0).all()
    assert (plateaus.starts[1:] > drops.times).all()
    assert (ends[:-1] < drops.times).all()
    assert plateaus.starts[0] == 0
    assert ends[-1] == pytest.approx(end)


@given(
    rates=st.lists(st.floats(-4, 0), min_size=1, max_size=8),
    weights=st.lists(st.floats(0.01, 1), min_size=8, max_size=8),
    decades=st.floats(0, 4.5),
    kind=st.sampled_from(GRIDS),
    points=st.sampled_from([10, 50, 300, 5000]),
)
@settings(max_examples=200, deadline=None)
def test_no_sum_of_exponentials_has_a_drop_or_a_plateau(rates, weights, decades, kind, points):
    """The lazy regime: time constants up to four decades apart, on any grid, for any length of the record."""
    time = grid(kind, 10**decades, points)
    loss = np.exp(-time[:, None] * 10.0 ** np.array(rates)) @ np.array(weights[: len(rates)])
    assert len(find_drops(time, loss).times) == 0
    assert len(find_plateaus(time, loss).levels) == (1 if 1 - loss[-1] / loss[0] < 0.005 else 0)


@pytest.mark.parametrize("noise", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("kind", GRIDS)
def test_noise_on_an_exponential_decay_makes_no_drop(noise, kind):
    rng = np.random.default_rng(5)
    for points in (100, 1000, 20_000):
        for rates in ([1.0], [1.0, 0.1], [1.0, 0.05, 0.01]):
            time = grid(kind, 100.0, points)
            loss = np.exp(-time[:, None] * rates).mean(1) + noise * rng.standard_normal(points)
            assert len(find_drops(time, loss).times) == 0


def test_power_laws_and_damped_starts_have_no_drop():
    """Convex curves, and one that only hesitates at the start as descent with momentum does."""
    time = np.linspace(0, 50, 2000)
    for loss in (1 / (1 + time), (1 + time) ** -0.3, (1 + time) * np.exp(-time), 5 - 0.05 * time):
        assert len(find_drops(time, loss).times) == 0
        assert len(find_plateaus(time, loss).levels) == 0


def test_a_run_that_never_left_or_has_just_begun_to_fall_has_one_plateau_and_no_drop():
    time, rng = np.linspace(0, 10, 1000), np.random.default_rng(0)
    for loss in (np.ones(1000), 1 + 0.01 * rng.standard_normal(1000), 2 - np.exp(5 * (time - 10))):
        assert len(find_drops(time, loss).times) == 0
        plateaus = find_plateaus(time, loss)
        assert len(plateaus.levels) == 1
        assert plateaus.levels[0] == pytest.approx(loss[:500].mean(), abs=0.01)


@pytest.mark.parametrize("kind", GRIDS)
def test_three_million_noisy_points_are_thinned_without_moving_the_drops(kind):
    rng = np.random.default_rng(1)
    time = grid(kind, 1000.0, 3_000_000)
    middles, sizes = np.array([5.0, 60.0, 500.0]), np.array([0.5, 0.3, 0.2])
    loss = staircase(time, middles, middles * 0.02, sizes) + 0.01 * rng.standard_normal(len(time))
    drops = find_drops(time, loss)
    np.testing.assert_allclose(drops.times, middles, rtol=0.01)
    np.testing.assert_allclose(drops.sizes, sizes, atol=0.01)


def test_spikes_and_lost_points_do_not_count():
    time = np.linspace(0, 100, 4000)
    loss = staircase(time, np.array([30.0, 60.0]), np.array([1.0, 1.0]), np.array([0.5, 0.5]))
    loss[[100, 900, 2500]] += 20
    loss[[7, 1300]] = np.nan, np.inf
    np.testing.assert_allclose(find_drops(time, loss).times, [30, 60], atol=0.05)


def test_a_real_saddle_to_saddle_run_has_its_four_plateaus():
    """One aligned head an eigenvalue, Eq. 21: the levels are those of Eq. 19."""
    lam, N = np.array([0.4, 0.3, 0.2, 0.1]), 31
    curvature = lam**3 * (1 + (1 + 1 / lam) / N)
    time = np.r_[0, np.geomspace(1, 1e5, 400)]
    v = solve_ivp(lambda t, v: lam**2 * v**2 - curvature * v**5, (0, 1e5), np.full(4, 0.02), "LSODA",
                  t_eval=time, rtol=1e-9, atol=1e-12).y  # fmt: skip
    loss = 1 - 2 * lam**2 @ v**3 + curvature @ v**6
    np.testing.assert_allclose(
        find_plateaus(time, loss).levels, [1, 0.64057971, 0.37737216, 0.2098046, 0.13599507], atol=2e-3
    )


def test_bad_curves_are_refused_in_one_line():
    for time, loss, word in (
        ([0, 1, 2], [1, 2], "shape"),
        ([0, 2, 1], [3, 2, 1], "rising"),
        ([0, 1, 2], [1, np.nan, 1], "at least 3"),
    ):
        with pytest.raises(BadInput, match=word):
            find_drops(np.array(time), np.array(loss))
