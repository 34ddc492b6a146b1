"""The probe says what it cannot tell: on the way between, uphill, about so many steps, a small sample, a lost flag."""

import numpy as np
import pytest

import hand_built
import iclflow as icl
from commands import call
from iclflow.models.reduced import coefficients, effective_matrix, head_matrices
from iclflow.theory.algorithm import plateau_matrix

TASK = icl.Task(dim=4, context=31)
MATRICES = [plateau_matrix(TASK, m) for m in range(5)]


def probed(A):
    return icl.probe(hand_built.separate(A), TASK, shifts=False)


def test_a_step_uphill_is_not_gradient_descent():
    found = probed(-MATRICES[4])
    assert found.algorithm == "none"
    assert found.entries["gd 1 step"].parameter[-1] == 0
    assert min(found.distances.values()) > 0.8


@pytest.mark.parametrize("m", range(4))
def test_halfway_between_two_fixed_points_is_between_them(m):
    """[`between`] None of these lies near a name that it would deserve, and some lie near a step of descent."""
    found = probed((MATRICES[m] + MATRICES[m + 1]) / 2)
    names = ["zero", "pcr-1 shrunk", "pcr-2 shrunk", "pcr-3 shrunk", "least squares shrunk"]
    assert (found.algorithm, found.last.between) == ("none", (names[m], names[m + 1]))
    assert f"between {names[m]} and {names[m + 1]} (50% of component {m + 1})" in str(found)
    assert found.to_dict()["between"] == names[m : m + 2]


def descent(steps, rate):
    def predict(sequences):
        x, y, query = sequences[:, :-1, :4], sequences[:, :-1, 4], sequences[:, -1, :4]
        w = np.zeros((len(x), 4))
        for _ in range(steps):
            w += rate * np.einsum("pnd,pn->pd", x, y - np.einsum("pnd,pd->pn", x, w)) / x.shape[1]
        return np.sum(w * query, axis=1, keepdims=True)

    return predict


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_steps_of_descent_are_counted_rightly(steps):
    found = icl.probe(descent(steps, 1.0), TASK, shifts=False)
    assert (found.algorithm, found.last.label) == ("gd", f"gd {steps} steps")
    assert f"gd about {steps} steps (step 1" in str(found.last)  # other counts with other steps are almost as near


@pytest.fixture(scope="module")
def small_sample():
    """A converged run on 120 sequences."""
    return icl.train(TASK, icl.Merged(heads=8), init=0.1, samples=120, lr=0.1, steps=4000, freeze_vectors=True, seed=1)


def test_a_small_sample_is_named_as_the_reason(small_sample):
    found = icl.probe(small_sample, shifts=False)
    assert found.algorithm == "none"
    [note] = found.notes
    assert note.startswith("this is least squares on the sample that it was trained on (distance ")
    assert f"note: {note}" in str(found)
    bare = icl.probe(small_sample.final_weights, TASK, shifts=False)
    assert "sequences can be this far from every candidate for no other reason" in bare.notes[0]


def test_inside_the_drop_of_merged_attention_nothing_is_named(small_sample):
    """It passes near a step of descent and near regression on three components, and rests at neither."""
    run = icl.train(TASK, icl.Merged(heads=8), init=1e-2, lr=0.1, steps=2000)
    found = icl.probe(run, shifts=False)
    assert [v.algorithm for v in found.verdicts if "inside a drop" in v.where].count("none") > 10
    assert {v.algorithm for v in found.verdicts} == {"zero", "none", "least_squares"}
    inside = next(v for v in found.verdicts if v.where)
    assert inside.between == ("zero", "least squares shrunk")
    assert found.last.where == ""


def test_inside_the_drops_of_separate_attention_no_descent_appears():
    run = icl.train(TASK, icl.Separate(heads=5), init=0.05, engine="moments", records=400, spacing="even", seed=2)
    found = icl.probe(run, shifts=False)
    assert {v.algorithm for v in found.verdicts} == {"zero", "pcr", "least_squares", "none"}
    assert sum("between" in v.where for v in found.verdicts) > 2
    assert "violated by at most: C1" in str(found)
    assert found.fixed_points.conditions["hold"]


def test_a_forgotten_flag_is_named(capsys, tmp_path):
    public = hand_built.public(hand_built.merged(MATRICES[4] / 31))
    np.savez(tmp_path / "w.npz", **public)
    notes = icl.probe(str(tmp_path / "w.npz"), TASK.replace(normalize="context"), shifts=False).notes
    assert any(n.startswith("with --normalize none these weights would be least squares shrunk") for n in notes)
    assert icl.probe(str(tmp_path / "w.npz"), shifts=False).notes == ()
    zero = icl.probe(hand_built.merged(0 * MATRICES[4]), TASK, shifts=False)
    assert (zero.algorithm, zero.notes) == ("zero", ())


def test_a_forgotten_softmax_is_named():
    """Softmax is linear in small scores; two opposite heads cancel what it does to scores of zero."""
    weights = hand_built.merged(MATRICES[4] / 40)
    weights["value"] *= 20
    weights["value"][1], weights["key_query"][1] = -weights["value"][0], -weights["key_query"][0]
    model = icl.Merged(heads=2, softmax=True)
    assert icl.probe(weights, TASK, model=model, shifts=False).algorithm != "none"
    found = icl.probe(weights, TASK.replace(normalize="none"), shifts=False)
    assert found.algorithm == "none"
    assert any(note.startswith("with --softmax these weights would be") for note in found.notes)


def test_the_public_network_is_read():
    own = hand_built.mlp(MATRICES[3] / 31)
    found = icl.probe({"fc1.weight": own["first"], "fc2.weight": own["second"]}, TASK, shifts=False)
    assert (found.algorithm, found.components, found.model.kind) == ("pcr", (1, 2, 3), "mlp")


def test_heads_carry_what_runs_through_their_vector_blocks():
    """[`effective-matrix`] A head whose value row is a vector and whose key is a label entry acts as v k' does."""
    standard = hand_built.separate(MATRICES[2])
    swapped = {name: np.array(array) for name, array in standard.items()}
    swapped["value"][0] = swapped["key"][0] = 0
    swapped["value"][0, 4, :4] = standard["key"][0, 0, :4]
    swapped["key"][0, 0, 4] = standard["value"][0, 4, 4]
    model = icl.Separate(heads=4)
    a, b = (head_matrices(model, weights, TASK) for weights in (standard, swapped))
    np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(b.sum(axis=0), effective_matrix(coefficients(model, swapped, TASK), TASK), atol=1e-12)
    found = icl.probe(swapped, TASK, shifts=False)
    assert found.heads.carrier[:2] == icl.probe(standard, TASK, shifts=False).heads.carrier[:2]
    assert None not in found.heads.carrier[:2]


def test_heads_and_directions_count_from_one_in_print(capsys, tmp_path):
    import json

    weights = hand_built.separate(MATRICES[2])
    found = icl.probe(weights, TASK, shifts=False)
    carrier = found.to_dict()["heads"]["carrier"]
    assert carrier == [None if head is None else head + 1 for head in found.heads.carrier]
    rows = [line.split() for line in str(found).splitlines()]
    assert [row[0] for row in rows if len(row) == 10 and row[0].isdigit()] == ["1", "2", "3", "4"]
    theory = json.loads(call(capsys, "theory", "--json", "--init", "1e-3")[1])
    predicted = icl.predict(TASK, icl.Separate(heads=5), init=1e-3)
    assert theory["heads"] == (predicted.heads + 1).tolist()
    assert theory["directions"] == (predicted.directions + 1).tolist()
    merged = json.loads(call(capsys, "theory", "--json", "--init", "1e-3", "--model", "merged")[1])
    assert (merged["heads"], merged["directions"]) == ([-1], [-1])


def test_two_snapshots_say_how_to_keep_more(capsys, tmp_path):
    small = ("train", "--model", "merged", "--heads", 2, "--lr", 0.1, "--steps", 20, "--no-figure")
    assert call(capsys, *small, "--out", tmp_path / "a")[0] == 0
    assert "--save-weights" in call(capsys, "probe", tmp_path / "a")[1]
