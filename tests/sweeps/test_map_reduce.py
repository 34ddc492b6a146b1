"""Moments of huge samples: the same bits for any number of workers, the same numbers as one walk."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.data.sampled import sampled_moments
from iclflow.experiment import Experiment
from iclflow.sweeps.store.protocol import Store
from iclflow.sweeps.sweep_file import grid_from
from iclflow.sweeps.workers import blocks, map_reduce, sharing
from iclflow.sweeps.workers.workers import Cluster
from iclflow.training.plan import Plan

SETTINGS = {"dim": 2, "context": 3, "heads": 2, "lr": 0.1, "steps": 30, "seed": 4}


def huge(samples: int, **more) -> Experiment:
    return Experiment.from_flat({**SETTINGS, "samples": samples, **more})


@pytest.mark.parametrize("more", [{}, {"whiten": False}, {"icl_fraction": 0.5}, {"label_noise": 0.3, "out_dim": 2}])
def test_blocks_add_up_to_one_walk_over_the_sample(more):
    experiment = huge(9 * blocks.BLOCK * 8192 // 8 + 5, **more)  # a little more than a block, the last chunk short
    mine = map_reduce.huge_moments(map_reduce.at_once, experiment, "all")
    plan = Plan(experiment)
    whole = sampled_moments(plan.samples(4)[0], "context", False, "all")
    for name in ("left", "cross", "power"):
        np.testing.assert_allclose(getattr(mine, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_the_order_in_which_blocks_are_computed_changes_no_bit(monkeypatch):
    monkeypatch.setattr(map_reduce, "BLOCK", 1)
    monkeypatch.setattr(map_reduce, "FAN", 3)
    monkeypatch.setattr(map_reduce, "block_count", lambda samples: -(-samples // 8192))
    experiment = huge(8 * 8192 + 100)
    straight = map_reduce.huge_moments(map_reduce.at_once, experiment, "all")
    shuffled = late(map_reduce.huge_moments(Promise, experiment, "all"), np.random.default_rng(0))
    np.testing.assert_array_equal(straight.left, shuffled.left)
    np.testing.assert_array_equal(straight.cross, shuffled.cross)
    assert straight.power == shuffled.power


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 10, 27, 28, 82])
def test_branches_of_blocks_add_up_in_the_same_tree_level_by_level(count, monkeypatch):
    monkeypatch.setattr(map_reduce, "FAN", 3)
    monkeypatch.setattr(map_reduce, "MANY", 9)
    tasks = []
    submit = lambda function, *arguments: tasks.append(function) or function(*arguments)
    total = map_reduce.summed(submit, count, one_number)
    parts = [one_number(i) for i in range(count)]
    while len(parts) > 1:
        parts = [map_reduce.added(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    np.testing.assert_array_equal(total.tokens, parts[0].tokens)
    leaves = tasks.count(map_reduce.added_blocks)
    assert leaves == (count if count <= 9 else -(-count // 3))


def one_number(block: int) -> map_reduce.First:
    number = np.random.default_rng(block).standard_normal(50) * 10.0 ** (block % 7)
    return map_reduce.First(number, number, number)


def test_few_partial_sums_of_a_huge_sample_are_alive_at_a_time():
    alive, most = 0, 0

    def submit(function, *arguments):
        nonlocal alive, most
        alive += 1 if function is map_reduce.added_blocks else 1 - len(arguments)
        most = max(most, alive)
        return

    map_reduce.summed(submit, blocks.block_count(10**9), one_number)
    assert alive == 1
    assert most <= 3 * blocks.FAN


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


def test_no_more_than_two_huge_groups_are_out_at_a_time(tmp_path):
    workers = Cluster(None, Store(tmp_path, grid_from({}), "digest", {}), "session", 8, ours=True)
    workers.huge = {"a", "b"}
    workers.given = {"1": (0, "a", None)}
    assert workers.takes("c", huge(10**8))
    workers.given["2"] = (1, "b", None)
    assert not workers.takes("c", huge(10**8))
    assert workers.takes("a", huge(10**8))
    assert workers.takes("d", huge(1000))


def test_memory_of_a_huge_sample_is_that_of_one_chunk():
    experiment = huge(10**9)
    assert blocks.block_count(10**9) == 7630
    sums = map_reduce.first_round(7629, experiment, 0)  # the last block, far beyond what could be held
    assert sums.tokens.shape == (4, 2)
    assert blocks.is_huge(experiment)
    assert not blocks.is_huge(huge(1000))
