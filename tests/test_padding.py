"""A roomy run is the same run with zeros around it."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.config import Training
from iclflow.experiment import Experiment
from iclflow.training.padding import larger_model
from iclflow.training.plan import Plan
from iclflow.training.start import run_experiment

CASES = [
    (icl.Task(dim=3), icl.Separate(heads=3), {"time": 200.0}),
    (icl.Task(dim=3, label_noise=0.3), icl.Separate(heads=2, rank=2), {"lr": 0.1, "steps": 500}),
    (icl.Task(dim=5, task_spectrum="power:0.5"), icl.Merged(heads=4), {"time": 50.0}),
    (icl.Task(dim=9, normalize="none"), icl.Merged(heads=2), {"lr": 0.001, "steps": 300}),
]


@pytest.mark.parametrize(("task", "model", "length"), CASES)
def test_a_roomy_run_is_the_same_run(task, model, length):
    experiment = Experiment(task=task, model=model, training=Training(init=0.1, tolerance=1e-10, **length))
    plain, roomy = (run_experiment(experiment, roomy=room) for room in (False, True))
    for name in plain.final_weights:
        assert roomy.final_weights[name].shape == plain.final_weights[name].shape
        np.testing.assert_allclose(roomy.final_weights[name], plain.final_weights[name], atol=1e-7)
    assert roomy.loss.values[-1] == pytest.approx(plain.loss.values[-1], abs=1e-9)
    if "steps" in length:
        np.testing.assert_allclose(roomy.loss, plain.loss, rtol=1e-10)


@pytest.mark.parametrize("change", [{"samples": 500}, {"icl_fraction": 0.5}, {"out_dim": 2}, {"heads": 21}])
def test_what_does_not_fit_is_trained_as_it_is(change, quiet):
    told = {"model": "merged", "dim": 3, "heads": 4, "lr": 0.05, "steps": 20, **change}
    experiment = Experiment.from_flat(told)
    plan = Plan(experiment)
    weights = plan.initial(0)
    assert larger_model(plan.loss(0, weights, plan.blocks(weights), lambda share, words: None)) is None
    plain, roomy = (run_experiment(experiment, roomy=room) for room in (False, True))
    np.testing.assert_array_equal(plain.loss, roomy.loss)


def test_a_function_is_told_of_progress_and_may_stop_the_run():
    class Enough(Exception):
        pass

    def tell(share, words):
        raise Enough

    experiment = Experiment(task=icl.Task(dim=2), model=icl.Separate(heads=2), training=Training(time=10.0))
    with pytest.raises(Enough):
        run_experiment(experiment, progress=tell)
