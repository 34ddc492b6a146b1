"""Several layers under the probe: steps of descent by layer, who holds what, and tokens that move."""

import json

import numpy as np
import pytest

import hand_built
import iclflow as icl
from commands import call
from iclflow.theory.algorithm import plateau_matrix
from iclflow.theory.depth import best_steps, lowest_loss

TASK = icl.Task(dim=3, context=20, basis="identity")
INVERSE = 1 / np.array(icl.data.spectrum.covariances(TASK).eigenvalues)
SHORT, LONG = np.diag([0.6, 0.6, 0.5] * INVERSE), np.diag([1.2, 0.0, 1.1] * INVERSE)


def stacked(*matrices, build=hand_built.separate, **more):
    """Layers that compute beta' A x_q one after the other."""
    layers = [build(A, **more) for A in matrices]
    return {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}


@pytest.mark.parametrize("build", [hand_built.separate, hand_built.merged])
@pytest.mark.parametrize("normalize", ["context", "none"])
def test_every_layer_is_a_step_with_the_directions_that_it_holds(build, normalize):
    """[`steps-by-layer`]"""
    scale = 1 if normalize == "context" else 1 / TASK.context
    weights = stacked(scale * SHORT, scale * LONG, build=build)
    found = icl.probe(weights, TASK.replace(normalize=normalize))
    assert (found.algorithm, found.components) == ("gd", (1, 2, 3))
    assert found.last.label == "gd 2 steps by layer"
    assert found.last.distance < 1e-20 < 1e-3 < found.distances["least squares shrunk"]
    assert found.layers.holds == ((1, 2, 3), (1, 3))
    assert found.layers.share[1, 1] == pytest.approx(0, abs=1e-12)
    assert found.layers.acting == 2
    assert not found.layers.gd_plus_plus
    assert np.allclose(found.layers.token_power, 1)
    for shift in found.off_distribution:
        assert shift.measured == pytest.approx(shift.theory, rel=1e-9)


def test_the_best_steps_of_theory_are_recognised_without_a_fitted_number():
    best = best_steps(TASK, 2, draws=512)[1]
    found = icl.probe(stacked(*best), TASK, shifts=False)
    assert (found.algorithm, found.last.label, found.last.parameter) == ("gd", "gd 2 steps best", None)
    assert found.last.distance < 1e-20
    turned = best_steps(TASK, 3, looped=True, draws=512)[1]
    looped = icl.probe(stacked(turned[0]), TASK, model=icl.Separate(layers=3, looped=True), shifts=False)
    assert (looped.last.label, looped.layers.acting) == ("gd 3 steps best", 3)


def test_layers_that_do_not_act_leave_the_algorithm_of_one_layer():
    for order in ((plateau_matrix(TASK, 2), 0 * SHORT), (0 * SHORT, plateau_matrix(TASK, 2))):
        found = icl.probe(stacked(*order), TASK, shifts=False)
        assert (found.algorithm, found.components, found.layers.acting) == ("pcr", (1, 2), 1)
        assert not any("by layer" in label for label in found.distances)
    assert sorted(found.layers.holds) == [(), (1, 2)]


def test_a_step_uphill_and_arbitrary_weights_are_not_descent():
    uphill = icl.probe(stacked(SHORT, -0.5 * SHORT), TASK, shifts=False)
    assert uphill.layers.acting == 1
    assert not any("by layer" in label for label in uphill.distances)
    rng = np.random.default_rng(0)
    turned = SHORT @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    found = icl.probe(stacked(LONG + turned, SHORT - 1.5 * turned), TASK, shifts=False)
    assert found.algorithm == "none"
    assert found.layers.mixing.min() > 0.2


def test_tokens_that_move_between_the_steps_make_gd_plus_plus():
    weights = stacked(SHORT, SHORT)
    weights["value"][0, :, :3, :3] = 0.5 * weights["value"][0, :, 3, 3, None, None] * np.eye(3)
    found = icl.probe(weights, TASK, shifts=False)
    assert (found.algorithm, found.last.label) == ("gd", "gd++ 2 steps by layer")
    assert found.last.distance < 1e-20 < 1e-3 < found.distances["gd 2 steps by layer"]
    assert found.layers.gd_plus_plus
    assert found.layers.token_change[0] > 0.2 > found.layers.token_change[1]
    assert (found.layers.token_power[0] < 0.9).all()
    weights["value"][1, :, :3, :3] = 7.0  # behind the last layer nobody reads the tokens
    assert icl.probe(weights, TASK, shifts=False).last.distance < 1e-20
    weights["key"][1, :, :, 3] = 0.2  # a block that mixes tokens and labels is no part of it
    assert icl.probe(weights, TASK, shifts=False).distances["gd++ 2 steps by layer"] > 1e-4


def test_several_labels_take_the_same_steps():
    task = TASK.replace(out_dim=2)
    found = icl.probe(stacked(SHORT, LONG, out_dim=2), task, shifts=False)
    assert (found.last.label, found.layers.holds) == ("gd 2 steps by layer", ((1, 2, 3), (1, 3)))
    assert found.last.distance < 1e-20


def test_a_run_goes_from_zero_to_two_steps_also_by_the_command_line(tmp_path, capsys):
    task, model = icl.Task(dim=2, context=20), icl.Separate(heads=2, layers=2)
    how = {"init": 0.03, "lr": 0.4, "steps": 9000, "gram_samples": 256, "freeze_vectors": True, "records": 60}
    icl.train(task, model, progress=False, **how).save(tmp_path / "run")
    code, out, err = call(capsys, "probe", tmp_path / "run", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["algorithm"], found["components"]) == ("gd", [1, 2])
    assert found["label"] in ("gd 2 steps by layer", "gd 2 steps best")
    assert found["distances"]["gd 2 steps best"] < 2e-3
    assert found["layers"]["holds"] == [[1, 2], [1, 2]]
    names = found["along_training"]["algorithm"]
    assert names[0] == "zero"
    assert names.index("pcr") < names.index("gd")
    assert found["along_training"]["distances"]["gd 2 steps by layer"][0] is None
    code, out, _ = call(capsys, "probe", tmp_path / "run")
    assert code == 0
    assert "2 of 2 layers act; the tokens stay as they are" in out


def test_a_run_with_all_blocks_trained_ends_as_gd_plus_plus():
    """The first layer shrinks the tokens as well, and the loss ends far below that of the best two plain steps."""
    task, model = icl.Task(dim=2, context=20), icl.Separate(heads=2, layers=2)
    how = {"init": 0.1, "seed": 1, "lr": 0.1, "steps": 14_000, "gram_samples": 1024, "records": 30}
    run = icl.train(task, model, progress=False, **how)
    found = icl.probe(run, shifts=False)
    assert run.loss.values[-1] < lowest_loss(task, 2) / 5
    assert (found.last.label, found.layers.acting, found.layers.gd_plus_plus) == ("gd++ 2 steps by layer", 2, True)
    assert found.last.distance < 1e-3 < 0.3 < found.distances["gd 2 steps by layer"]
    assert (found.layers.token_power[0] < 0.4).all()
    names = [verdict.algorithm for verdict in found.verdicts]
    assert names.index("zero") < names.index("pcr") < names.index("gd")
    assert "2 of 2 layers act; the tokens move between the steps (GD++)" in str(found)


BAD = [
    ("looped.npz", "layers: 1 must be at least 2 for looped weights"),
    ("looped.npz --layers 0", "layers: '0' must be at least 1"),
    ("two.npz --layers 3", "layers: 3 contradicts the weights, which have 2"),
    ("two.npz --softmax", "softmax: has no meaning with layers above 1"),
    ("two.npz --normalize tokens", "normalize: 'tokens' must be 'context' or 'none' with layers above 1"),
]


@pytest.mark.parametrize(("arguments", "line"), BAD)
def test_what_several_layers_cannot_be_is_one_line(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", **stacked(SHORT, LONG))
    np.savez("looped.npz", **stacked(SHORT))
    code, out, err = call(capsys, "probe", *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"iclflow: {line}"), err


def test_looped_weights_are_probed_with_their_number_of_layers(capsys, tmp_path):
    np.savez(tmp_path / "looped.npz", **stacked(SHORT))
    flags = ("--dim", 3, "--context", 20, "--basis", "identity", "--layers", 3, "--json")
    found = json.loads(call(capsys, "probe", tmp_path / "looped.npz", *flags)[1])
    assert (found["algorithm"], found["label"], found["layers"]["acting"]) == ("gd", "gd 3 steps by layer", 3)
