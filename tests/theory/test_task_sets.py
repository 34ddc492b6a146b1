"""Training on K fixed tasks: theory of its plateaus, of new tasks and of the vector blocks, against trained runs."""

import json

import numpy as np
import pytest

import iclflow as icl
from commands import call
from iclflow.comparison.comparing import crossing
from iclflow.data.moments import half_index
from iclflow.data.population import population_moments
from iclflow.theory.laws.task_sets import odd_drive, task_set_levels

TASK = icl.Task(dim=3, tasks=2, mirror_tasks=True, task_seed=4)
MODEL = icl.Separate(heads=4)


@pytest.fixture(scope="module")
def run():
    return icl.train(TASK, MODEL, init=5e-3, seed=1)


def test_two_tasks_are_learned_in_two_drops_at_the_predicted_times(run):
    predicted = icl.predict(TASK, MODEL, weights=run.initial_weights)
    assert len(predicted.drop_times) == 2
    assert predicted.reliable
    levels = icl.theory.plateau_losses(TASK)
    assert len(levels) == 3
    np.testing.assert_allclose(predicted.levels, levels, rtol=1e-12)
    middles = (levels[:-1] + levels[1:]) / 2
    seen = [crossing(run.time.values, run.loss.values, middle) for middle in middles]
    np.testing.assert_allclose(predicted.drop_times, seen, rtol=0.01)
    assert run.status == "ok"
    assert [d.observed_head for d in icl.compare(run).drops] == predicted.heads.tolist()


def test_train_and_test_loss_rest_at_the_predicted_levels(run):
    levels = task_set_levels(TASK)
    drops = icl.predict(TASK, MODEL, weights=run.initial_weights).drop_times
    for m, when in enumerate((drops[0] / 2, drops.mean(), None)):
        place = -1 if when is None else int(np.searchsorted(run.time.values, when))
        tolerance = 1e-2 if when is None else 1e-3  # the run ends while the loss is still falling a little
        assert run.loss.values[place] == pytest.approx(levels.train[m], rel=tolerance)
        assert run.loss_icl.values[place] == pytest.approx(levels.test[m], rel=tolerance)
    assert "loss_iwl" not in run.curves


def test_the_loss_on_new_tasks_is_that_of_the_task_law(run):
    A = task_set_levels(TASK).matrices[-1]
    test = population_moments(TASK.new_tasks, "context", "label")
    assert float(test.loss_and_slope(A[None, None])[0]) == pytest.approx(task_set_levels(TASK).test[-1], rel=1e-12)


def test_mirrored_tasks_leave_the_vector_blocks_at_zero_and_others_do_not(run):
    assert not run.final_weights["value"][:, 3, :3].any()
    odd = icl.train(TASK.replace(mirror_tasks=False), MODEL, init=0.1, lr=0.05, steps=40)
    assert np.abs(odd.final_weights["value"][:, 3, :3]).max() > 1e-4
    assert not icl.predict(odd.task, MODEL, weights=odd.initial_weights).reliable
    frozen = icl.train(odd.task, MODEL, init=0.1, lr=0.05, steps=40, freeze_vectors=True)
    assert icl.compare(frozen).prediction.reliable


def test_odd_moments_drive_the_vector_blocks_as_hard_as_the_exact_moments_say():
    task = icl.Task(dim=3, context=5, tasks=4, label_noise=0.1)
    cross = population_moments(task, "context", "all").cross[0].reshape(-1, 3)[half_index(4)]
    drive = odd_drive(task)
    assert drive.label == pytest.approx(np.linalg.norm(cross[3, :3]), rel=1e-12)
    assert drive.squared_labels == pytest.approx(np.linalg.norm(cross[3, 3]), rel=1e-12)
    assert drive.tokens == pytest.approx(np.linalg.norm(cross[:3, :3]), rel=1e-12)
    assert odd_drive(task.replace(mirror_tasks=True)).share == 0


@pytest.mark.parametrize("count", [1, 2, 7])
def test_there_are_as_many_levels_as_the_tasks_span_and_new_tasks_fare_worse(count):
    task = icl.Task(dim=3, tasks=count)
    levels = task_set_levels(task)
    assert len(levels.train) == min(count, 3) + 1 == len(icl.theory.plateau_losses(task))
    assert levels.test[-1] > icl.theory.minimum(task.new_tasks)
    assert (np.diff(levels.train) < 0).all()


def test_a_sample_of_k_tasks_has_a_test_loss_on_new_tasks(tmp_path):
    run = icl.train(TASK, MODEL, samples=300, test_samples=200, lr=0.1, steps=3, init=0.1)
    assert run.loss_icl.shape == run.loss.shape
    assert "loss_iwl" not in run.curves
    run.save(tmp_path / "run")
    again = icl.load(tmp_path / "run")
    assert again.task == run.task
    np.testing.assert_array_equal(again.loss_icl, run.loss_icl)


def test_a_sweep_over_the_number_of_tasks_has_the_loss_on_new_tasks(tmp_path):
    base = {"dim": 2, "mirror_tasks": True, "lr": 0.1, "steps": 3, "init": 0.1}
    swept = icl.sweep({"base": base, "axes": {"tasks": [1, 3]}}, tmp_path / "s", workers=0)
    assert np.isfinite(swept.data["loss_icl"].values).any(axis=-1).all()


def test_the_theory_of_k_tasks_on_the_command_line(capsys):
    code, out, _ = call(capsys, "theory", "--dim", "3", "--tasks", "2", "--init", "0.001", "--json")
    assert code == 0
    results = json.loads(out)
    assert len(results["plateau_losses"]) == len(results["test_losses"]) == 3
    assert results["visited"] == [0, 1, 2]
    assert len(results["drop_times"]) == 2
    code, out, _ = call(capsys, "theory", "--dim", "3", "--tasks", "2")
    assert "on new tasks" in out


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tasks": 0}, "tasks: 0 must be at least 1"),
        ({"tasks": 3, "icl_fraction": 0.5}, "tasks: 3 needs icl_fraction = 1"),
        ({"mirror_tasks": True}, "mirror_tasks: True needs tasks"),
    ],
)
def test_bad_task_sets_are_refused(settings, complaint):
    with pytest.raises(icl.BadInput, match=complaint):
        icl.Task(**settings)
    with pytest.raises(icl.BadInput, match="out_dim: 2 must be 1"):
        icl.theory.landscape(icl.Task(tasks=3, out_dim=2))
