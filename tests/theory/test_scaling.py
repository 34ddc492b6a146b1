"""Scaling laws: exponents and amplitudes against the scalar equations, these against slower solutions."""

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import zeta

import iclflow as icl
from commands import call
from iclflow.theory.landscape import directions
from iclflow.theory.laws.scaling import merged_excess, scalar_modes, scaling_laws, separate_excess
from iclflow.theory.single_mode import fallen, value_at

D = 3000


def power_task(a, b, context=10**12):
    return icl.Task(dim=D, context=context, spectrum=f"power:{a}", task_spectrum=f"power:{b}", basis="identity")


@pytest.mark.parametrize(("a", "b"), [(1.5, 0.0), (2.0, 0.0), (1.2, 0.5), (1.5, 1.0)])
def test_exponents_and_amplitudes_are_those_of_the_scalar_equations(a, b):
    """Directions beyond D are not learned: their worth is added, so that D itself does not bend the law."""
    task, size = power_task(a, b), 1e-3
    laws, modes = scaling_laws(task), scalar_modes(task)
    beyond = modes.saved[0] * zeta(a + b, D + 1)
    reached = np.geomspace(60, 300, 8)
    time = reached ** (2 * a + b) / modes.drive[0] / size
    separate = separate_excess(modes, size, time) + beyond
    np.testing.assert_allclose(separate, laws.separate(size * time), rtol=0.015)
    assert np.polyfit(np.log(time), np.log(separate), 1)[0] == pytest.approx(laws.separate.exponent, abs=5e-3)
    time = np.geomspace(1, 100, 8) * 20 ** (2 * a + b - 0.5) / modes.drive[0]
    merged = merged_excess(modes, 1e-6, time) + beyond
    np.testing.assert_allclose(merged, laws.merged(time), rtol=0.01)
    assert np.polyfit(np.log(time), np.log(merged), 1)[0] == pytest.approx(laws.merged.exponent, abs=5e-3)


def test_heads_and_context_limit_the_loss_by_their_own_laws():
    task = power_task(2.0, 0.0).replace(dim=100_000)
    laws, modes = scaling_laws(task), scalar_modes(task)
    kept = np.array([50, 100, 200])
    left = np.array([modes.saved[n:].sum() for n in kept]) + modes.saved[0] * zeta(2.0, 100_001)
    np.testing.assert_allclose(left, laws.components(kept), rtol=0.02)
    contexts = np.array([10**4, 10**5])
    lowest = np.array([scalar_modes(task.replace(context=int(n))).minimum for n in contexts])
    np.testing.assert_allclose(lowest, laws.context(contexts), rtol=0.02)


def by_scipy(modes, alpha, time):
    """Value and entries as they stand in Eq. 8, by another solver."""

    def field(_, w):
        force = modes.drive - modes.curvature * w[0] * w[1:]
        return np.r_[w[1:] @ force, w[0] * force]

    start = np.sqrt(alpha) * np.r_[1, modes.drive / np.linalg.norm(modes.drive)]
    path = solve_ivp(field, (0, time[-1]), start, "DOP853", t_eval=time, rtol=1e-11, atol=1e-14).y.T
    return (1 - path[:, :1] * path[:, 1:] * modes.curvature / modes.drive) ** 2 @ modes.saved


def test_the_scalar_equations_are_solved_as_by_the_slower_ways():
    task = icl.Task(dim=6, context=40, spectrum="power:1.2", label_noise=0.1, basis="identity")
    modes, d, time = scalar_modes(task), directions(task), np.array([3.0, 100.0, 900.0])
    np.testing.assert_allclose(modes.drive, d.drive, rtol=1e-12)
    np.testing.assert_allclose(modes.curvature, d.curvature, rtol=1e-12)
    assert modes.minimum == pytest.approx(icl.theory.minimum(task))
    c = np.cbrt(d.strength)
    fractions = np.array(
        [(value_at(time, 0.05, g, m) / c[n]) ** 3 for n, (g, m) in enumerate(zip(d.drive, d.curvature, strict=True))]
    )
    np.testing.assert_allclose(separate_excess(modes, 0.05, time), d.saved @ (1 - fallen(fractions)), rtol=1e-6)
    np.testing.assert_allclose(merged_excess(modes, 1e-4, time), by_scipy(modes, 1e-4, time), rtol=1e-5)


def test_what_is_no_power_law_is_refused():
    for task, complaint in (
        (icl.Task(), "spectrum: 'linear' must be power:A"),
        (icl.Task(spectrum="power:0.8"), "must have a > 0 and a \\+ b > 1"),
        (icl.Task(spectrum="power:2", task_spectrum="white"), "task_spectrum: 'white' must be power:A"),
    ):
        with pytest.raises(icl.BadInput, match=complaint):
            scaling_laws(task)
    with pytest.raises(icl.BadInput, match="own tasks and one output"):
        scalar_modes(icl.Task(tasks=3))
    with pytest.raises(icl.BadInput, match="sizes: must lie between"):
        separate_excess(scalar_modes(icl.Task()), 9.0, np.ones(1))


def test_scaling_laws_on_the_command_line(capsys):
    arguments = ("theory", "--scaling", "--dim", "60", "--spectrum", "power:1.5", "--init", "0.001")
    code, out, _ = call(capsys, *arguments, "--json")
    results = json.loads(out)
    assert code == 0
    assert results["laws"]["separate"]["exponent"] == pytest.approx(-1 / 6)
    assert (np.diff(results["times"]["separate"]) > 0).all()
    assert "exponent" in call(capsys, *arguments)[1]
