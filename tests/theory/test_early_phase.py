"""Blow-up times and paths against integration of the constant-force flow, and against Carlson's integral."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.errors import BadInput
from iclflow.theory.early_phase import (
    blow_up_time,
    early_phase,
    early_phases,
    one_direction_blow_up,
    propagate,
    weights_after,
)
from iclflow.theory.legs import Legs

DRIVE = np.array([0.16, 0.09, 0.04, 0.01])


def draw(seed, rank, size=4, spread=0.0):
    """A head with entries near 1e-3; `spread` decades make its three kinds of weight unequal."""
    rng = np.random.default_rng(seed)
    scale = 1e-3 * 10.0 ** rng.uniform(-spread, 0, 3)
    return (
        scale[0] * rng.standard_normal(),
        scale[1] * rng.standard_normal((rank, size)),
        scale[2] * rng.standard_normal((rank, size)),
    )


def run(head, drive, times):
    """The flow in a constant force, written out for one head."""
    v, k, q = head
    n = k.size

    def field(t, y):
        v, k, q = y[0], y[1 : 1 + n].reshape(k_shape), y[1 + n :].reshape(k_shape)
        return np.concatenate([[np.sum(drive * k * q)], (v * drive * q).ravel(), (v * drive * k).ravel()])

    k_shape = k.shape
    start = np.concatenate([[v], k.ravel(), q.ravel()])
    out = solve_ivp(field, (0, times[-1]), start, method="DOP853", rtol=1e-13, atol=1e-20, t_eval=times)
    return [(y[0], y[1 : 1 + n].reshape(k_shape), y[1 + n :].reshape(k_shape)) for y in out.y.T]


@pytest.mark.parametrize("rank", [1, 3])
def test_path_and_sign_agree_with_integration(rank):
    """[`early-phase`] 20 random heads, up to a time 2/g before blow-up, to 1e-8; final signs always right."""
    turned = 0
    for seed in range(20):
        head = draw(seed, rank, spread=1.0)
        path = early_phase(*head, DRIVE)
        times = np.append(path.time * np.array([0.2, 0.6]), path.time - 2 / DRIVE[0])
        times = np.sort(times[times > 0])
        for time, (v, k, q) in zip(times, run(head, DRIVE, times), strict=True):
            got = path.weights(time)
            size = max(abs(v), np.abs(k).max(), np.abs(q).max())
            for mine, numeric in zip(got, (v, k, q), strict=True):
                np.testing.assert_allclose(mine, numeric, rtol=0, atol=1e-8 * size)
            np.testing.assert_allclose(path.value(np.array([time])), v, rtol=0, atol=1e-8 * size)
        assert np.sign(v) == path.sign
        turned += path.turns
    assert turned >= 2  # both kinds of path were tried


def test_blow_up_time_is_where_integration_diverges():
    """[`blow-up`] 1/v extrapolates to zero at T*, to 1e-8 of T*."""
    for seed in range(12):
        head = draw(seed, 1)
        expected = blow_up_time(*head, DRIVE)

        def stop(t, y):
            return abs(y[0]) - 1e3

        stop.terminal = True
        v, k, q = head

        def field(t, y):
            return np.concatenate([[DRIVE @ (y[1:5] * y[5:])], y[0] * DRIVE * y[5:], y[0] * DRIVE * y[1:5]])

        out = solve_ivp(
            field, (0, 2 * expected), [v, *k[0], *q[0]], method="DOP853", rtol=1e-12, atol=1e-18, events=stop
        )
        end = out.t[-1] + 1 / (DRIVE[0] * abs(out.y[0, -1]))
        assert end == pytest.approx(expected, rel=1e-8)


def test_one_direction_is_carlsons_integral():
    """[`carlson`] Quadrature and closed form agree to 1e-12 over four decades of imbalance and all signs."""
    for seed in range(300):
        v, k, q = draw(seed, 1, size=1, spread=4.0)
        closed = one_direction_blow_up(v, k[0, 0], q[0, 0], 0.16)
        assert blow_up_time(v, k, q, np.array([0.16])) == pytest.approx(closed, rel=1e-12)


def test_balanced_head_takes_one_over_gv():
    """[`carlson`] T* = 1/(g v) for v = k = q, and the head with one sign turned never grows."""
    one = np.array([[1e-3]])
    assert one_direction_blow_up(1e-3, 1e-3, 1e-3, 0.2) == pytest.approx(5000, rel=1e-12)
    assert blow_up_time(1e-3, one, one, np.array([0.2])) == pytest.approx(5000, rel=1e-12)
    assert one_direction_blow_up(-1e-3, 1e-3, 1e-3, 0.2) == np.inf
    stuck = early_phase(-1e-3, one, one, np.array([0.2]))
    assert stuck.time == np.inf
    v, k, q = stuck.weights(100.0)  # dv/dt = g v^2 from below
    assert (v, k[0, 0], q[0, 0]) == pytest.approx((-1e-3 / 1.02, 1e-3 / 1.02, 1e-3 / 1.02), rel=1e-9)


@pytest.mark.parametrize(("v", "k", "q"), [(1e-3, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 1e-3, 0.0)])
def test_heads_without_two_live_parts_never_grow(v, k, q):
    path = early_phase(v, np.array([[k]]), np.array([[q]]), np.array([0.2]))
    assert path.time == np.inf == one_direction_blow_up(v, k, q, 0.2)
    assert path.weights(1e3) == (v, np.array([[k]]), np.array([[q]]))


def test_blow_up_scales_with_init_and_drive():
    """[`blow-up`] T* is exactly proportional to 1/init and to 1/g, the paper's lambda^-2."""
    v, k, q = draw(3, 2)
    one = blow_up_time(v, k, q, DRIVE)
    assert blow_up_time(v / 50, k / 50, q / 50, DRIVE) == pytest.approx(50 * one, rel=1e-11)
    assert blow_up_time(v, k, q, DRIVE / 7) == pytest.approx(7 * one, rel=1e-11)


def test_overall_signs_do_not_matter():
    """[`early-phase`] Turning the signs of any two of value, key and query leaves the time unchanged."""
    v, k, q = draw(5, 2)
    times = [blow_up_time(a * v, b * k, a * b * q, DRIVE) for a in (1, -1) for b in (1, -1)]
    assert times == pytest.approx([times[0]] * 4, rel=1e-12)


def test_times_after_blow_up_are_refused():
    head = draw(0, 1)
    with pytest.raises(BadInput, match="blow-up at"):
        propagate(*head, DRIVE, 1e9)
    with pytest.raises(BadInput, match="must not be negative"):
        blow_up_time(*head, -DRIVE)
    v, _, _ = propagate(*head, DRIVE, 10.0)
    assert v == pytest.approx(early_phase(*head, DRIVE).weights(10.0)[0])


@pytest.mark.parametrize("rank", [1, 3])
def test_many_heads_at_once_go_where_each_goes_by_itself(rank, monkeypatch):
    """Heads that rise, that pass a minimum, that turn and that never grow, in one integral of all."""
    drive = np.append(DRIVE, 0.0)  # one direction is learned already
    heads = [draw(seed, rank, size=5, spread=1.0) for seed in range(30)]
    heads.append((1e-3, np.ones((rank, 5)), -np.ones((rank, 5))))
    apart = [early_phase(*head, drive) for head in heads]
    climbs = []
    monkeypatch.setattr(Legs, "climb", lambda legs, end, climb=Legs.climb: climbs.append(1) or climb(legs, end))
    together = early_phases(heads, drive)
    assert len(climbs) == 2  # one for all arrivals, one for all ascents
    assert {path.turns for path in apart} == {True, False}
    assert any(path.arrival for path in apart)
    np.testing.assert_allclose([p.time for p in together], [p.time for p in apart], rtol=1e-12)
    time = 0.5 * min(path.time for path in apart)
    for (v, k, q), path in zip(weights_after(together, time), apart, strict=True):
        alone = path.weights(time)
        size = max(np.abs(alone[1]).max(), abs(alone[0]))
        for mine, theirs in zip((v, k, q), alone, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-11 * size)
