"""Moments of huge samples: the same bits for any number of workers, the same numbers as one walk."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.config import Experiment
from iclflow.data.sampled import sampled_moments
from iclflow.sweeps import blocks, map_reduce, sharing
from iclflow.training.plan import Plan

SETTINGS = {"dim": 2, "context": 3, "heads": 2, "lr": 0.1, "steps": 30, "seed": 4}


def huge(samples: int, **more) -> Experiment:
    return Experiment.from_flat({**SETTINGS, "samples": samples, **more})


@pytest.mark.parametrize("more", [{}, {"whiten": False}, {"icl_fraction": 0.5}, {"label_noise": 0.3, "out_dim": 2}])
def test_blocks_add_up_to_one_walk_over_the_sample(more):
    experiment = huge(9 * blocks.BLOCK * 8192 // 8 + 5, **more)  # a little more than a block, the last chunk short
    mine = map_reduce.moments_here(experiment, "all")
    plan = Plan(experiment)
    whole = sampled_moments(plan.samples(4)[0], "context", False, "all")
    for name in ("left", "cross", "power"):
        np.testing.assert_allclose(getattr(mine, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_the_order_in_which_blocks_are_computed_changes_no_bit(monkeypatch):
    monkeypatch.setattr(map_reduce, "BLOCK", 1)
    monkeypatch.setattr(map_reduce, "FAN", 3)
    monkeypatch.setattr(map_reduce, "block_count", lambda samples: -(-samples // 8192))
    experiment = huge(8 * 8192 + 100)
    straight = map_reduce.moments_here(experiment, "all")
    shuffled = late(map_reduce.huge_moments(Promise, experiment, "all"), np.random.default_rng(0))
    np.testing.assert_array_equal(straight.left, shuffled.left)
    np.testing.assert_array_equal(straight.cross, shuffled.cross)
    assert straight.power == shuffled.power


class Promise:
    """Work that is only done when its value is asked for."""

    def __init__(self, function, *arguments):
        self.function, self.arguments, self.value = function, arguments, None


def late(promise, dice):
    """The value, with everything it needs computed in a random order."""
    if not isinstance(promise, Promise):
        return promise
    if promise.value is None:
        ready = [None] * len(promise.arguments)
        for place in dice.permutation(len(ready)):
            ready[place] = late(promise.arguments[place], dice)
        promise.value = promise.function(*ready)
    return promise.value


def test_a_run_on_a_huge_sample_does_not_depend_on_the_number_of_workers(tmp_path):
    samples = blocks.HUGE + 1000
    grid = {"base": {**SETTINGS, "samples": samples}, "axes": {"init": [0.1, 0.2]}}
    grid["base"].pop("seed")
    sharing.KEPT.things.clear()
    sweeps = [icl.sweep(grid, tmp_path / str(n), workers=n) for n in (0, 2)]
    for other in sweeps[1:]:
        np.testing.assert_array_equal(sweeps[0].data["loss"].values, other.data["loss"].values)
    run = icl.train(icl.Task(dim=2, context=3), icl.Separate(heads=2), samples=samples, lr=0.1, steps=30, init=0.1)
    np.testing.assert_allclose(sweeps[0].data["loss"].values[0, 0, :31], run.loss.values, rtol=1e-9)


def test_memory_of_a_huge_sample_is_that_of_one_chunk():
    experiment = huge(10**9)
    assert blocks.block_count(10**9) == 7630
    sums = map_reduce.first_round(experiment, 0, 7629)  # the last block, far beyond what could be held
    assert sums.tokens.shape == (4, 2)
    assert blocks.is_huge(experiment)
    assert not blocks.is_huge(huge(1000))
