"""The probe on K fixed tasks: dMMSE and ridge side by side, and what linear attention is nearest to."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.data.spectrum import task_vectors
from iclflow.probing.contexts import draw
from iclflow.probing.posterior import task_posterior_mean
from iclflow.theory.laws.task_sets import task_set_levels

TASK = icl.Task(dim=3, context=12, tasks=4, label_noise=0.3)
TASKS = task_vectors(TASK)[:, 0]


def dmmse(sequences):
    """By loops over sequences and tasks."""
    answers = []
    for rows in sequences:
        x, y = rows[:-1, :3], rows[:-1, 3]
        evidence = [np.exp(-np.sum((y - x @ w) ** 2) / (2 * TASK.label_noise)) for w in TASKS]
        answers.append([sum(e * (w @ rows[-1, :3]) for e, w in zip(evidence, TASKS, strict=True)) / sum(evidence)])
    return np.array(answers)


def test_dmmse_is_named_where_it_is_run():
    contexts = draw(TASK, 300)
    slow = dmmse(contexts.tokens[:200])
    np.testing.assert_allclose(task_posterior_mean(contexts, task_vectors(TASK), 0.3)[:200], slow, atol=1e-9)
    found = icl.probe(dmmse, TASK, shifts=False)
    assert found.algorithm == "dmmse"
    assert found.distances["dmmse"] < 1e-9
    assert found.distances["ridge in context"] > 0.01


def test_linear_attention_on_few_tasks_is_its_fixed_point_and_not_dmmse():
    task = TASK.replace(mirror_tasks=True, label_noise=0.0)
    model = icl.Separate(heads=3)
    weights = model.balanced(task_set_levels(task).matrices[-1], task)
    found = icl.probe(weights, task, shifts=False)
    assert found.distances["least squares shrunk"] < 1e-9
    assert found.distances["dmmse"] > 0.02
    assert found.distances["dmmse"] > found.distances["least squares shrunk"]


def test_without_noise_the_task_that_fits_is_chosen():
    task = TASK.replace(label_noise=0.0)
    contexts = draw(task, 300)
    guess = task_posterior_mean(contexts, task_vectors(task), 0.0)
    np.testing.assert_allclose(guess, contexts.target, atol=1e-8)
    assert "dmmse" not in icl.probe(lambda s: 0 * s[:, -1, -1:], task.new_tasks, shifts=False).distances
    assert icl.probe(lambda s: 0 * s[:, -1, -1:], task, shifts=False).algorithm == "zero"


def test_the_probe_of_a_single_task_knows_one_component():
    task = icl.Task(dim=3, context=12, tasks=1, mirror_tasks=True)
    model = icl.Separate(heads=3)
    levels = task_set_levels(task)
    found = icl.probe(model.balanced(levels.matrices[1], task), task)
    [unseen] = [shift for shift in found.off_distribution if shift.name == "new tasks"]
    assert unseen.theory == pytest.approx(levels.test[1] / levels.test[0])
    assert abs(unseen.measured - unseen.theory) < 5 * unseen.standard_error
    assert found.distances["pcr-1 shrunk"] == pytest.approx(0, abs=1e-9)
    assert np.isfinite(list(found.distances.values())).all()
