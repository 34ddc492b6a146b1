"""The edge of stability: sharpness against differenced forces, the map of one mode, and the warning."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.prediction.edges import edge_warning, stable_rates
from iclflow.theory import directions, landscape, merged, separate
from iclflow.theory.collinear import flow
from iclflow.theory.equations import Layout
from iclflow.theory.laws import edge

TASK = icl.Task(dim=3, context=2000, spectrum="1,.1,.005", basis="identity")


def largest_eigenvalue(force, at, small=1e-5):
    """Of minus the derivative of a force, by central differences."""
    basis = small * np.eye(len(at))
    columns = [(force(at + e) - force(at - e)) / (2 * small) for e in basis]
    return -np.linalg.eigvals(np.array(columns)).real.min()


def test_the_sharpness_is_that_of_the_hessian():
    """[`edge`] on every plateau of separate attention, and at the minimum of merged attention."""
    d, L, layout = directions(TASK), landscape(TASK), Layout(rank=1, dim=3, channels=0, weight=1.0)
    for m, sharp in enumerate(edge.sharpness(d, 3)):
        v, K, Q = separate.ansatz_weights(d, np.arange(3) < m, 3)
        rows = lambda w: w.reshape(3, layout.size)
        force = lambda w, rows=rows: layout.label_velocity(rows(w), L.force(layout.matrix(rows(w)))).ravel()
        at = np.column_stack([v, K[:, 0], Q[:, 0]]).ravel()
        assert sharp == pytest.approx(largest_eigenvalue(force, at), rel=1e-6, abs=1e-6)
    A = merged.minimiser(L)
    v = np.sqrt(np.linalg.norm(A))
    force = lambda w: np.concatenate(flow(w[:1], w[1:], L.force(w[0] * w[1:].reshape(3, 3)).reshape(1, 9)))
    found = largest_eigenvalue(force, np.concatenate([[v], (A / v).ravel()]))
    assert edge.merged_sharpness(L) == pytest.approx(found, rel=1e-6)


def test_a_late_drop_can_lower_the_edge():
    """[`edge`] once the first eigenvalue is about 26 times that of the drop, at long contexts."""
    near, far = (icl.Task(dim=2, context=10**6, spectrum=f"1,{1 / ratio}") for ratio in (20, 32))
    falls = [np.diff(edge.largest_steps(edge.sharpness(directions(task), 2))[1:])[0] < 0 for task in (near, far)]
    assert falls == [False, True]


def test_a_mode_rests_below_two_thirds_and_doubles_its_period_above():
    """[`mode-map`]"""
    assert len(np.unique(edge.mode_orbit(0.98 * edge.MODE_EDGE).round(6))) == 1
    assert len(np.unique(edge.mode_orbit(1.02 * edge.MODE_EDGE).round(6))) == 2
    assert np.isfinite(edge.mode_orbit(1.42)).all()
    assert np.isnan(edge.mode_orbit(1.45)).all()


def test_the_warning_names_the_drop(quiet):
    model = icl.Separate(heads=3)
    rates = stable_rates(TASK, model)
    lr = float(rates[3] + rates[1]) / 2
    assert "is stable until drop 3 and not after it" in edge_warning(TASK, model, lr)
    assert edge_warning(TASK, model, 0.9 * float(rates[3])) is None
    assert edge_warning(TASK, model, lr, beta=0.9) is None
    assert edge_warning(TASK, icl.Separate(heads=3, rank=2), lr) is None
    run = icl.train(TASK, model, lr=lr, steps=5)
    assert any("is stable until drop 3" in warning for warning in run.summary["warnings"])
    assert any("drop 3" in note for note in icl.predict(TASK, model, lr=lr).notes)
