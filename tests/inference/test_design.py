"""From a wanted staircase to a task and weights, checked by theory that does not know of it."""

import numpy as np
import pytest

import iclflow as icl


def test_the_papers_ladder_gives_its_task():
    """[`level-inverse`] Levels alone give the spectrum and the context."""
    task = icl.design(icl.theory.plateau_losses(icl.Task())).task
    assert np.abs(np.array(task.spectrum) - [0.4, 0.3, 0.2, 0.1]).max() < 1e-8
    assert (task.context, task.label_noise) == (31, 0.0)


@pytest.mark.parametrize("context", [None, 8, 40])
def test_any_falling_ladder_has_a_task(context):
    """[`level-inverse`] Where no whole context has these levels, a little label noise makes up for it."""
    wanted = [1.3, 0.8, 0.5, 0.45]
    found = icl.design(wanted, context=context)
    assert np.abs(icl.theory.plateau_losses(found.task) - wanted).max() < 1e-9
    assert context is None or found.task.context == context
    assert found.task.label_noise >= 0


def test_wanted_times_come_true():
    """[`design-times`] The flow from the weights crosses the middle of each drop when it should."""
    wanted, times = [1.0, 0.7, 0.5, 0.4], [100.0, 300.0, 800.0]
    found = icl.design(wanted, drop_times=times)
    run = icl.train(found.task, found.model, weights=found.weights, time=1500.0)
    for upper, lower, t in zip(wanted, wanted[1:], times, strict=False):
        assert np.interp(-(upper + lower) / 2, -run.loss.values, run.time.values) == pytest.approx(t, rel=5e-3)


def test_times_choose_any_order():
    found = icl.design([1.0, 0.9, 0.5], drop_times=[200.0, 500.0])
    assert icl.predict(found.task, found.model, weights=found.weights).levels == pytest.approx(
        [1.0, 0.9, 0.5], abs=1e-3
    )


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"levels": [1.0, 0.9, 0.5]}, "nearest are 1, 0.6, 0.5"),
        ({"levels": [1.0, 0.5, -0.1]}, "positive"),
        ({"levels": [1.0, 0.7, 0.5, 0.4], "context": 3}, "at least 6"),
        ({"levels": [1.0, 0.7, 0.5], "drop_times": [5.0]}, "2 positive times"),
        ({"levels": [1.0, 0.7, 0.5], "model": icl.Merged()}, "separate"),
        ({"levels": [1.0, 0.7, 0.5], "model": icl.Separate(heads=1)}, "needs 2"),
        ({"levels": "abc"}, "numbers"),
    ],
)
def test_what_no_task_has_is_refused_with_the_nearest(asked, word):
    with pytest.raises(icl.BadInput, match=word):
        icl.design(**asked)


def test_the_nearest_end_is_one_that_exists():
    """The end that a refusal names is that of a task with the same proportions and the context that was asked for."""
    wanted = np.array([1.0, 0.7, 0.5, 0.4])
    with pytest.raises(icl.BadInput) as refused:
        icl.design(wanted, context=3)
    end = float(str(refused.value).rsplit(" ", 1)[1])
    nearest = 1 - (1 - wanted) * (1 - end) / (1 - wanted[-1])
    again = icl.design(nearest, context=3).task
    assert again.label_noise < 1e-4
    assert np.abs(icl.theory.plateau_losses(again) - nearest).max() < 1e-6
