"""One drop: its shape, and the closed form from height, slope and time back to what made it."""

import numpy as np
import pytest
import scipy

import iclflow as icl
from iclflow.inference.drop import HALF_SLOPE, context_of, drop_shape, eigenvalue_of, pace_of, saved_by
from iclflow.theory.landscape import directions

SPECTRUM, CONTEXT = np.array([0.4, 0.3, 0.2, 0.1]), 31


def test_shape_is_the_integrated_scalar_equation():
    """[`drop-shape`] An integrator that knows dx/dz = x^2 - x^5 alone gives the same S, and its slope."""
    start, since = 1 / 50, -50 + 0.5 / 50**2  # z = -1/x + x^2/2 + O(x^5)
    z = np.linspace(-49.9, 5, 40)
    found = scipy.integrate.solve_ivp(lambda _, x: x**2 - x**5, (since, 5), [start], t_eval=z, rtol=1e-11, atol=1e-13)
    X = found.y[0] ** 3
    shape, slope = drop_shape(z)
    assert np.abs(shape - (2 * X - X**2)).max() < 1e-6
    assert abs(slope - 2 * (1 - X) * 3 * found.y[0] ** 2 * (found.y[0] ** 2 - found.y[0] ** 5)).max() < 1e-5


def test_half_slope():
    """[`drop-inverse`] The slope where half of a drop is done."""
    z = np.linspace(-3, 1, 400_001)
    shape, slope = drop_shape(z)
    assert slope[np.argmin(np.abs(shape - 0.5))] == pytest.approx(HALF_SLOPE, rel=1e-4)
    assert pytest.approx(0.583535, abs=1e-6) == HALF_SLOPE


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_height_and_pace_are_those_of_the_landscape(noise, outputs):
    """[`drop-inverse`] T^2 = g^2/m and w = g (g/m)^(1/3), of the directions that theory builds on."""
    task = icl.Task(
        spectrum=tuple(SPECTRUM.tolist()), context=CONTEXT, label_noise=noise, out_dim=outputs, basis="identity"
    )
    d = directions(task)
    saved = saved_by(SPECTRUM, 1 / CONTEXT, 1 + noise)
    assert np.allclose(saved, d.saved, rtol=1e-12)
    assert np.allclose(pace_of(SPECTRUM, saved, outputs), d.drive * np.cbrt(d.strength), rtol=1e-12)
    assert np.allclose(context_of(SPECTRUM, saved, 1 + noise), CONTEXT, rtol=1e-9)


def test_levels_back_to_the_spectrum():
    """[`level-inverse`] The paper's ladder gives .4 .3 .2 .1."""
    levels = icl.theory.plateau_losses(icl.Task(spectrum=tuple(SPECTRUM.tolist()), context=CONTEXT))
    assert np.abs(eigenvalue_of(-np.diff(levels), 1 / CONTEXT, 1.0) - SPECTRUM).max() < 1e-8
