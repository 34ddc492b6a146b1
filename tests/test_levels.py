"""Without a predicted curve, compare shows levels and the distance to linear attention; minibatches are smoothed."""

import json

import numpy as np
import pytest

import iclflow as icl
from iclflow.comparison.plateaus import averaged, find_drops, find_plateaus, needed_window

TASK, MODEL = icl.Task(dim=2, context=10), icl.Merged(heads=2)


@pytest.fixture(scope="module")
def adam():
    return icl.train(TASK, MODEL, init=0.05, lr=0.01, steps=800, optimizer="adam", records=4)


def test_the_levels_of_adam_are_those_of_the_task(adam):
    """No optimiser changes them, and it ends on the lowest, where it computes what linear attention computes."""
    found = icl.compare(adam)
    np.testing.assert_allclose(found.levels, icl.theory.plateau_losses(TASK), rtol=1e-12)
    assert found.loss[-1] == pytest.approx(found.levels[-1], rel=1e-3)
    assert found.nearest == 2
    assert found.distances[-1] < 1e-3 < 0.1 < found.distances[0]
    assert "no predicted curve (adam" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["distances"] == found.distances.tolist()
    assert "<svg" in found._repr_html_()


def test_the_distance_is_the_mean_square_between_predictions(adam):
    """Against a loop over sequences, written here: zero weights are as far from M_m as M_m is from predicting zero."""
    idle = icl.train(TASK, MODEL, init=1e-9, lr=1e-9, steps=3, optimizer="adam", records=2)
    found = icl.compare(idle).distances
    matrix = icl.theory.directions(TASK)
    sequences = icl.sample(TASK, 2000, 7)
    slow = []
    for s in sequences:
        beta = s[:-1, 2] @ s[:-1, :2] / 10
        slow.append((beta @ matrix.matrix(matrix.strength) @ s[-1, :2]) ** 2)
    assert found[2] == pytest.approx(np.mean(slow) / np.mean(sequences[:, -1, 2] ** 2), rel=1e-6)
    assert found[0] < 1e-12


def test_softmax_and_several_seeds_have_levels_too(quiet):
    found = icl.compare(icl.train(TASK, icl.Merged(heads=2, softmax=True), samples=200, lr=0.1, steps=20, seeds=2))
    assert [one.source for one in found] == ["sample", "sample"]
    assert found[0].levels[0] != found[1].levels[0]  # each seed has its own sample


def test_where_the_levels_are_not_known_it_still_says_so():
    run = icl.train(TASK, MODEL, init=0.05, lr=0.01, steps=5, optimizer="adam", weight_decay=0.1)
    with pytest.raises(icl.BadInput, match="adam"):
        icl.compare(run)


@pytest.fixture(scope="module")
def noisy():
    """Minibatches of 256: the noise of single losses is larger than the last drops."""
    settings = {"init": 3e-2, "samples": 5000, "lr": 0.2, "steps": 2500, "batch": 256, "records": 20}
    return icl.train(icl.Task(dim=4, context=31), icl.Separate(heads=5), **settings)


def test_the_noise_of_minibatches_is_not_taken_for_drops(noisy):
    found = icl.compare(noisy)
    assert found.window > 1
    assert "of a falling fit to means over" in str(found)
    times = [drop.observed_time for drop in found.drops if drop.observed_time is not None]
    assert min(times) > 100  # 0.37 before, the first batch below the middle of a drop
    assert found.drops[0].error < 0.05
    levels = [plateau.observed_level for plateau in found.plateaus]
    assert min(-np.diff(levels)) > 0.1  # no plateau is taken for two


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.1, 0.2])
def test_drops_under_heavy_noise_are_found_where_they_are(noise, seed):
    """Three drops of a third each under white noise of up to 0.6 of a drop, which single points would hide."""
    rng, time = np.random.default_rng(seed), np.linspace(0, 1000, 20_000)
    clean = sum(1 / 3 / (1 + np.exp((time - middle) / 4)) for middle in (200, 450, 750))
    loss = clean + noise * rng.standard_normal(len(time))
    drops = find_drops(time, loss)
    np.testing.assert_allclose(drops.times, [200, 450, 750], atol=15)
    np.testing.assert_allclose(find_plateaus(time, loss).levels, [1, 2 / 3, 1 / 3, 0], atol=0.06)


def test_a_curve_without_noise_is_not_averaged():
    time = np.linspace(0, 50, 5000)
    for loss in (1 / (1 + np.exp(time - 25)), np.exp(-time), np.ones(5000)):
        assert needed_window(loss) == 1
    np.testing.assert_array_equal(averaged(time, 1), time)
    np.testing.assert_array_equal(averaged(np.arange(5.0), 2), [0.5, 2.5, 4.0])
