"""Weights, curves and modules of PyTorch, by the letter of docs/how-to/pytorch.md where torch is installed.

What needs no torch is tested with a stand-in for a tensor that offers what iclflow may rely on, and nothing else.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from iclflow.system.arrays import as_array

TEXT = (Path(__file__).parents[1] / "docs" / "how-to" / "pytorch.md").read_text()
LOOP, MORE = re.findall(r"```torch\n(.*?)```", TEXT, re.DOTALL)


class Tensor:
    """A tensor on another device with a gradient: NumPy must not be able to read it as it is."""

    def __init__(self, array, ready=False):
        self.array, self.ready, self.dtype = array, ready, "torch.float64"

    def __array__(self, *options):
        raise TypeError("can't convert a tensor that requires grad")

    def detach(self):
        return Tensor(self.array, ready=True)

    def cpu(self):
        return self

    def numpy(self):
        assert self.ready
        return self.array


TASK, MODEL = icl.Task(dim=3, context=10, normalize="none"), icl.Separate(heads=2)
SETTINGS = {"samples": 50, "lr": 0.01, "steps": 5}


@pytest.fixture(scope="module")
def state():
    """The same weights under our names and, as tensors, under the public ones."""
    ours = icl.train(TASK, MODEL, init=0.1, **SETTINGS).initial_weights
    public = {f"{name}.weight": Tensor(array.reshape(-1, 4)) for name, array in ours.items()}
    return ours, public


def test_a_state_dict_under_public_names_is_the_same_as_our_arrays(state):
    """In all four verbs, and the public names alone say that there is no 1/N."""
    ours, public = state
    plain = icl.Task(dim=3, context=10)
    trained, expected = icl.train(plain, weights=public, **SETTINGS), icl.train(TASK, weights=ours, **SETTINGS)
    assert trained.task.normalize == "none"
    np.testing.assert_array_equal(trained.loss.values, expected.loss.values)
    predicted = icl.predict(plain, MODEL, weights=public), icl.predict(TASK, MODEL, weights=ours)
    np.testing.assert_array_equal(*(p.levels for p in predicted))
    np.testing.assert_array_equal(*(p.drop_times for p in predicted))
    curve = expected.loss.values
    found = icl.compare(Tensor(curve), plain, weights=public, lr=0.01), icl.compare(curve, TASK, weights=ours, lr=0.01)
    assert found[0].to_dict() == found[1].to_dict()
    probed = icl.probe(public, plain, shifts=False), icl.probe(ours, TASK, shifts=False)
    assert probed[0].to_dict() == probed[1].to_dict()


def test_an_explicit_normaliser_wins(state):
    run = icl.train(icl.Task(dim=3, context=10, normalize="context"), weights=state[1], **SETTINGS)
    assert run.task.normalize == "context"


def test_what_training_does_to_the_tensor_afterwards_does_not_reach_the_run(state):
    array = np.ones(3)
    copied = as_array(Tensor(array))
    array[:] = 0
    assert (copied == 1).all()


def test_sizes_come_from_the_state_dict(state):
    run = icl.train(icl.Task(context=10), weights=state[1], **SETTINGS)
    assert (run.task.dim, run.model.heads) == (3, 2)


def test_a_module_in_place_of_its_state_dict_is_refused_in_a_line():
    class Module:
        def state_dict(self):
            return {}

    with pytest.raises(
        icl.BadInput, match="weights: Module must be named arrays, a file or FILE:PREFIX; give its state"
    ):
        icl.train(TASK, weights=Module(), **SETTINGS)


def test_nothing_here_imports_torch():
    code = "import sys, iclflow as icl; icl.train, icl.probe, icl.compare, icl.predict; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.fixture(scope="module")
def page():
    """The page as a reader types it, without its figures."""
    pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    names = {}
    exec(LOOP, names)
    return names


def test_the_loop_of_the_page_is_the_run_of_this_program(page):
    """The same sequences and weights in both: losses agree to rounding, and so does their gap to theory."""
    run = icl.train(data=page["sequences"], weights=page["start"], lr=page["lr"], steps=999)
    np.testing.assert_allclose(page["losses"], run.loss.values, rtol=1e-9)
    found = icl.compare(page["losses"], page["task"], weights=page["start"], data=page["sequences"], lr=page["lr"])
    assert found.distances[0].mean == pytest.approx(icl.compare(run).mean_gap, rel=1e-6)


def test_the_module_as_a_function_is_its_state_dict(page):
    whole = icl.probe(page["model"], page["task"], shifts=False)
    weights = icl.probe(page["model"].state_dict(), page["task"], shifts=False)
    assert (whole.algorithm, whole.subject) == (weights.algorithm, "Attention")
    np.testing.assert_allclose(whole.gains.gain, weights.gains.gain, atol=0.02)
    exec(MORE, page)
