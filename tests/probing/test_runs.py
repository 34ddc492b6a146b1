"""What the probe says of training runs at the paper's scale."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.comparison.plateaus import find_plateaus


def middles(run):
    """Times in the middle of every plateau of the observed loss."""
    seen = find_plateaus(run.time.values, run.loss.values)
    return seen.starts + seen.lengths / 2


@pytest.fixture(scope="module")
def staircase():
    run = icl.train(icl.Task(dim=4, context=31), icl.Separate(heads=5), init=1e-3, time=1.2e5, records=400)
    return run, icl.probe(run)


def test_every_plateau_of_a_rank_one_run_is_named_with_its_components(staircase):
    """[`naming`] Zero, then regression on 1, 2, 3 components, then M_D; each far from every other answer."""
    run, found = staircase
    verdicts = [found.at(time) for time in middles(run)]
    names = [(v.algorithm, v.components) for v in verdicts]
    pcr = [("pcr", tuple(range(1, m + 1))) for m in (1, 2, 3)]
    assert names == [("zero", ()), *pcr, ("least_squares", (1, 2, 3, 4))]
    assert max(v.distance for v in verdicts) < 1e-6
    assert [v.label for v in verdicts[1:]] == [f"pcr-{m} shrunk" for m in (1, 2, 3)] + ["least squares shrunk"]
    assert min(v.margin for v in verdicts[:4]) > 0.04
    # One step preconditioned by the inverse covariance is all but the same as the minimum at this length.
    assert (verdicts[4].runner_up, verdicts[4].margin > 0.0025) == ("gd 1 step preconditioned", True)


def test_at_the_end_ridge_ties_and_least_squares_proper_does_not(staircase):
    """[`ridge-tie`] M_D is ridge up to a factor; in-context least squares has zero loss and is far from it."""
    _, found = staircase
    assert (found.algorithm, found.components) == ("least_squares", (1, 2, 3, 4))
    assert found.last.ties == ("least squares shrunk", "ridge")
    assert found.distances["least squares in context"] == pytest.approx(0.136, abs=0.01)
    assert found.entries["ridge"].parameter[-1] > 0


def test_components_are_learned_one_by_one_and_each_has_a_head(staircase):
    _, found = staircase
    assert (np.diff(found.gains.learned) >= 0).all()
    assert found.gains.learned[[0, -1]].tolist() == [0, 4]
    np.testing.assert_allclose(found.gains.gain[-1], 1, atol=1e-6)
    assert sorted(found.heads.carrier) == sorted(set(found.heads.carrier))
    aligned = found.heads.alignment[list(found.heads.carrier), range(4)]
    np.testing.assert_allclose(aligned, 1, atol=1e-3)
    assert found.heads.imbalance < 1e-4
    assert found.vector_blocks == {"value": 0.0, "key": 0.0}
    assert found.fixed_points.conditions["hold"]
    assert (found.fixed_points.nearest, found.fixed_points.index) == ((1, 2, 3, 4), 0)


def test_off_distribution_losses_are_those_of_the_named_algorithm(staircase):
    """[`off-distribution`] Ten shifts, one sample each, within four standard errors of the formula."""
    _, found = staircase
    names = [shift.name for shift in found.off_distribution]
    assert {"context 8", "context 124", "reversed covariance", "queries x3", "label noise 1"} < set(names)
    for shift in found.off_distribution:
        assert abs(shift.measured - shift.theory) < 4 * shift.standard_error, shift
    losses = dict(zip(names, [shift.theory for shift in found.off_distribution], strict=True))
    assert losses["context 8"] > losses["as trained"] > losses["context 124"]
    assert losses["reversed covariance"] > 1


def test_merged_attention_is_only_ever_zero_or_the_minimum():
    run = icl.train(icl.Task(dim=4, context=31), icl.Merged(heads=8), init=1e-4, time=800)
    found = icl.probe(run, shifts=False)
    names = [(v.algorithm, v.components) for v in map(found.at, middles(run))]
    assert names == [("zero", ()), ("least_squares", (1, 2, 3, 4))]
    assert found.last.distance < 1e-4
    assert found.fixed_points.of_this_model


def test_rank_two_is_named_on_its_conspicuous_plateaus():
    """Those before a new head has to grow, m = 0, 2, 4, 6, last longer than the one behind each."""
    task = icl.Task(dim=8, context=31)
    run = icl.train(task, icl.Separate(heads=5, rank=2), init=1e-3, records=800)
    found = icl.probe(run, shifts=False)
    seen = find_plateaus(run.time.values, run.loss.values)
    for m in (0, 2, 4, 6):
        at = int(np.argmin(np.abs(seen.levels - icl.theory.plateau_losses(task)[m])))
        assert seen.lengths[at] > 10 * seen.lengths[at + 1]
        verdict = found.at(seen.starts[at] + seen.lengths[at] / 2)
        assert (verdict.algorithm, verdict.components) == ("pcr" if m else "zero", tuple(range(1, m + 1)))
        assert verdict.distance < 1e-4
        assert verdict.margin > 0.03
    carrier = found.heads.carrier
    assert [carrier[m] == carrier[m + 1] for m in range(7)] == [True, False, True, False, True, False, True]


@pytest.mark.parametrize("spectrum", ["linear", "white"])
def test_a_run_without_tasks_in_context_is_in_weight(spectrum):
    """p = 0: a map of the query alone, read out through the power of the labels."""
    run = icl.train(icl.Task(icl_fraction=0.0, spectrum=spectrum), icl.Merged(heads=8), init=1e-3, time=200)
    found = icl.probe(run, shifts=False)
    assert (found.algorithm, found.components, found.last.label) == ("in_weight", (), "in weight through label power")
    assert found.last.distance < 1e-4
    assert found.verdicts[0].algorithm == "zero"
    assert found.vector_blocks["key_query"] > 1
