"""Records refuse what has no meaning, in one line that names field, value and what is allowed."""

import math

import numpy as np
import pytest

import iclflow as icl
from iclflow.config import Training
from iclflow.experiment import Experiment

BAD = [
    ({"dim": 0}, "dim: 0 must be at least 1"),
    ({"dim": 2.5}, "dim: 2.5 must be a whole number"),
    ({"context": "many"}, "context: 'many' must be a whole number"),
    ({"out_dim": -1}, "out_dim: -1 must be at least 1"),
    ({"spectrum": "pink"}, "spectrum: 'pink' must be linear, white, power:A"),
    ({"spectrum": "power:"}, "spectrum: 'power:' must be"),
    ({"spectrum": "power:inf"}, "spectrum: 'power:inf' must be"),
    ({"spectrum": "1,two"}, "spectrum: '1,two' must be numbers separated by commas"),
    ({"spectrum": "nowhere.npy"}, "spectrum: 'nowhere.npy' must be an existing file"),
    ({"spectrum": [1.0, -1.0]}, "spectrum: .* must be non-negative"),
    ({"spectrum": [0.0, 0.0]}, "spectrum: .* not all zero"),
    ({"spectrum": [1.0, math.nan]}, "spectrum: holds NaN"),
    ({"spectrum": [[1.0, 2.0], [2.0, 1.0]]}, "spectrum: the matrix must be positive semi-definite"),
    ({"spectrum": [[1.0, 2.0], [0.0, 1.0]]}, "spectrum: the matrix must be symmetric"),
    ({"spectrum": [[1.0, 2.0, 3.0]]}, r"spectrum: shape \(1, 3\)"),
    ({"spectrum": [1.0, 1.0], "dim": 3}, "spectrum: has 2 directions, must have dim = 3"),
    ({"task_spectrum": [1.0, 1.0]}, "task_spectrum: has 2 directions"),
    ({"spectrum": [[1.0]], "basis": "random"}, "basis: a full covariance matrix brings its own"),
    ({"basis": "tilted"}, "basis: 'tilted' must be one of"),
    ({"label_noise": -0.1}, "label_noise: -0.1 must be at least 0"),
    ({"label_noise": math.inf}, "label_noise: inf must be a finite number"),
    ({"icl_fraction": 1.5}, "icl_fraction: 1.5 must be at most 1"),
    ({"normalize": "l2"}, "normalize: 'l2' must be one of 'context', 'tokens' or 'none'"),
    ({"query_noise": True}, "query_noise: True needs label_noise"),
    ({"prefix_loss": True, "label_noise": 0.1}, "query_noise: must be on"),
    ({"lengthh": 3}, "lengthh: unknown name"),
    ({"contxt": 3}, "contxt: unknown name; did you mean 'context'"),
    ({"model": "rnn"}, "model: 'rnn' must be one of merged, mlp, separate, or module:Class"),
    ({"heads": 0}, "heads: 0 must be at least 1"),
    ({"rank": 5}, "rank: 5 must be at most dim = 4"),
    ({"model": "merged", "rank": 1}, "rank: does not apply to model 'merged'"),
    ({"model": "mlp", "softmax": True}, "softmax: does not apply to model 'mlp'"),
    ({"model": "mlp", "out_dim": 2}, "out_dim: 2 must be 1 for the mlp"),
    (
        {"model": "merged", "softmax": True, "engine": "moments", "samples": 9},
        "engine: 'moments' must be 'tokens'",
    ),
    (
        {"model": "merged", "softmax": True, "normalize": "context", "samples": 9},
        "normalize: 'context' must be",
    ),
    ({"model": "merged", "softmax": True}, "batch: fresh samples"),
    ({"engine": "tokens"}, "batch: fresh samples"),
    ({"samples": 1}, "samples: 1 must be a whole number of at least 2"),
    ({"samples": 10.5}, "samples: 10.5 must be"),
    ({"samples": "lots"}, "samples: 'lots' must be"),
    ({"samples": math.nan}, "samples: nan must be"),
    ({"samples": 10, "batch": 11}, "batch: 11 must be at most samples = 10"),
    ({"batch": 4, "engine": "moments", "samples": 10}, "batch: needs engine 'tokens'"),
    ({"init": 0}, "init: 0.* must be greater than 0"),
    ({"init": math.inf}, "init: inf must be a finite number"),
    ({"init_law": "zeros"}, "init_law: 'zeros' must be one of"),
    ({"lr": -1.0}, "lr: -1.0 must be greater than 0"),
    ({"lr": math.nan}, "lr: nan must be"),
    ({"steps": 0}, "steps: 0 must be at least 1"),
    ({"steps": 10, "time": 3.0}, "time: belongs to the flow"),
    ({"engine": "moments", "time": 3.0}, "time: belongs to the flow"),
    ({"engine": "flow", "steps": 3}, "steps: belongs to descent"),
    ({"engine": "flow", "lr": 0.1}, "lr: belongs to descent"),
    ({"time": 3.0, "lr": 0.1}, "lr: belongs to descent"),
    ({"engine": "flow", "optimizer": "adam"}, "optimizer: 'adam' must be 'sgd'"),
    ({"engine": "flow", "dtype": "float32"}, "dtype: 'float32' must be 'float64'"),
    ({"optimizer": "lion"}, "optimizer: 'lion' must be one of"),
    ({"seed": -1}, "seed: -1 must be at least 0"),
    ({"seeds": 0}, "seeds: 0 must be at least 1"),
    ({"records": 1}, "records: 1 must be at least 2"),
    (
        {"prefix_loss": True, "icl_fraction": 0, "seed": 1},
        "samples: must be given for prefix_loss with icl_fraction 0",
    ),
    ({"data": "x.npz", "samples": 100}, "samples: come from the data file"),
    ({"data": "x.npz", "test_samples": 100}, "test_samples: come from the data file"),
]


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_what_has_no_meaning_is_refused_in_one_line(settings, message):
    with pytest.raises(icl.BadInput, match=f"^{message}") as caught:
        Experiment.from_flat(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [s for s, _ in BAD if set(s) <= set(icl.Task.model_fields)])
def test_python_records_refuse_alike(settings):
    with pytest.raises(icl.BadInput):
        icl.Task(**settings)


@pytest.mark.parametrize(
    "settings", [{"dim": True}, {"spectrum": [0.5, True]}, {"label_noise": False}, {"tasks": True}]
)
def test_true_is_no_number(settings):
    """A file that says `dim = true` would have trained with dim = 1."""
    with pytest.raises(icl.BadInput, match=next(iter(settings))):
        icl.Task(**settings)
    with pytest.raises(icl.BadInput, match="heads"):
        icl.Separate(heads=True)
    assert icl.Separate(softmax=True).softmax is True


def test_records_are_frozen_and_hashable():
    task = icl.Task(spectrum=[0.7, 0.3])
    with pytest.raises(ValueError, match="frozen"):
        task.dim = 3
    assert hash(task) == hash(icl.Task(spectrum=[0.7, 0.3]))


def test_dim_comes_from_the_spectrum():
    assert icl.Task(spectrum="0.5,0.3,0.2").dim == 3
    assert icl.Task(spectrum=np.eye(5)).dim == 5


def test_text_and_numbers_mean_the_same():
    words = Experiment.from_flat({"dim": "3", "lr": "0.1", "samples": "1e4", "softmax": False, "label_noise": "0.5"})
    numbers = Experiment.from_flat({"dim": 3, "lr": 0.1, "samples": 10_000, "softmax": False, "label_noise": 0.5})
    assert words == numbers


def test_replace_keeps_what_was_given_and_forgets_nothing():
    task = icl.Task(dim=3).replace(context=5)
    assert task.model_fields_set == {"dim", "context"}
    assert Training(samples=5).replace(lr=0.1).samples == 5


def test_infinity_survives_the_flat_form():
    flat = Experiment.from_flat({}).flat()
    assert flat["samples"] == "inf"
    assert Experiment.from_flat(flat).population
