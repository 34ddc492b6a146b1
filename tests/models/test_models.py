"""Every model computes what the slow twin computes, and starts where its law says."""

import numpy as np
import pytest

import iclflow as icl
import twin
from iclflow.data.spectrum import Covariances
from iclflow.models.initial import initial_weights
from iclflow.models.parts import check_weights, put_back, take, vectors_are_zero
from iclflow.models.reduced import coefficients, effective_matrix, is_reduced

TASK = icl.Task(dim=3)
MODELS = [
    icl.Merged(heads=3),
    icl.Merged(heads=2, softmax=True),
    icl.Separate(heads=2, rank=3),
    icl.Separate(heads=3, rank=1, softmax=True),
    icl.MLP(heads=4),
]


def start(model, law="random", init=0.5, dim=3, out_dim=1, seed=0, basis=None):
    identity = np.eye(dim)
    known = Covariances(identity, identity, np.ones(dim), identity if basis is None else basis)
    return initial_weights(model, icl.Task(dim=dim, out_dim=out_dim), law, init, seed, known)


def prediction(model, weights, sequence, normalize):
    """With the query's label hidden, as every engine does it."""
    hidden = sequence.copy()
    hidden[-1, 3:] = 0
    return model.predict(weights, hidden, icl.Task(dim=3, out_dim=sequence.shape[1] - 3, normalize=normalize))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("normalize", ["context", "tokens", "none"])
def test_a_model_predicts_what_explicit_loops_predict(model, normalize):
    rng = np.random.default_rng(3)
    for out_dim in (1,) if model.kind == "mlp" else (1, 2):
        weights = start(model, out_dim=out_dim)
        sequence = rng.standard_normal((6, 3 + out_dim))
        slow = twin.predict(weights, sequence, 3, normalize, getattr(model, "softmax", False))
        fast = prediction(model, weights, sequence, normalize)
        np.testing.assert_allclose(fast, np.real(slow), rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_label_of_the_query_is_hidden(model):
    weights, sequence = start(model), np.random.default_rng(0).standard_normal((5, 4))
    other = sequence.copy()
    other[-1, 3] += 10
    np.testing.assert_array_equal(
        prediction(model, weights, sequence, "none"), prediction(model, weights, other, "none")
    )


@pytest.mark.parametrize("model", MODELS)
def test_what_is_not_trained_cannot_reach_the_prediction(model):
    weights, sequence = start(model), np.random.default_rng(0).standard_normal((5, 4))
    noise = {name: array + 7.0 for name, array in weights.items()}
    same = put_back(model, noise, take(model, weights, TASK, "all"), TASK, "all")
    np.testing.assert_array_equal(
        prediction(model, weights, sequence, "none"), prediction(model, same, sequence, "none")
    )


def test_entry_law_has_the_asked_deviation_and_zero_vectors():
    model = icl.Separate(heads=400, rank=4)
    weights = start(model, "entry", init=0.1)
    assert vectors_are_zero(model, weights, TASK)
    for block in (weights["key"][:, :, :3], weights["query"], weights["value"][:, :3]):
        assert abs(block.std() / 0.1 - 1) < 5 / np.sqrt(2 * block.size)


def test_public_law_divides_by_the_root_of_the_stacked_size_for_separate_only():
    separate, merged = icl.Separate(heads=300, rank=4), icl.Merged(heads=300)
    weights = start(separate, "public", init=1.0, out_dim=2)
    for name, array in weights.items():
        assert abs(array.std() * np.sqrt(array.size) - 1) < 0.15, name
    assert abs(start(merged, "public", init=0.5)["value"][:, :3].std() - 0.5) < 0.02


def test_public_law_zeroes_the_vectors_of_the_last_output_only():
    merged = start(icl.Merged(heads=2), "public", out_dim=2)
    assert not merged["value"][:, 4, :3].any()
    assert not merged["key_query"][:, 4, :3].any()
    assert merged["value"][:, 3, :3].all()
    assert merged["key_query"][:, 3, :3].all()
    separate = start(icl.Separate(heads=2), "public", out_dim=2)
    assert not separate["key"][:, :, 4].any()
    assert separate["key"][:, :, 3].all()
    assert not separate["value"][:, 4, :3].any()


@pytest.mark.parametrize("model", [icl.Merged(heads=3), icl.Separate(heads=3, rank=2), icl.MLP(heads=3)])
def test_norm_law_gives_every_head_of_every_layer_the_asked_norm(model):
    part = take(model, start(model, "norm", init=0.3, dim=4), icl.Task(dim=4), "label")
    for name, array in part.items():
        by_head = np.moveaxis(array, 1 if name == "second" else 0, 0).reshape(3, -1)
        np.testing.assert_allclose(np.linalg.norm(by_head, axis=1), 0.3)


def test_aligned_law_puts_one_eigenvector_in_every_head_balanced():
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    weights = start(icl.Separate(heads=4), "aligned", init=0.2, basis=basis)
    for d in range(3):
        np.testing.assert_allclose(weights["key"][d, 0, :3], 0.2 * basis[:, d])
        np.testing.assert_allclose(weights["query"][d, 0, :3], 0.2 * basis[:, d])
        assert weights["value"][d, 3, 3] == pytest.approx(0.2)
    assert not weights["key"][3].any()
    pair = start(icl.Separate(heads=2, rank=2), "aligned", init=0.2, basis=basis)
    assert pair["value"][0, 3, 3] ** 2 == pytest.approx(np.sum(pair["key"][0] ** 2))


def test_random_law_leaves_no_entry_at_zero():
    for model in MODELS:
        assert all(array.all() for array in start(model, "random").values())


def test_laws_draw_from_the_seed():
    model = icl.Merged()
    assert np.array_equal(start(model, "entry", seed=1)["value"], start(model, "entry", seed=1)["value"])
    assert not np.array_equal(start(model, "entry", seed=1)["value"], start(model, "entry", seed=2)["value"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("key"), "'key' is missing"),
        (lambda w: w.update(key=w["key"][:, :, :2]), r"'key' has shape \(2, 1, 2\), must be \(2, 1, 4\)"),
        (lambda w: w["query"].__setitem__((0, 0, 0), np.nan), "'query' holds NaN"),
        (lambda w: w.update(value=w["value"].astype(complex)), "'value' has type complex128"),
    ],
)
def test_weights_that_do_not_fit_are_named(change, message):
    model = icl.Separate(heads=2)
    weights = start(model)
    change(weights)
    with pytest.raises(icl.BadInput, match=message):
        check_weights(model, icl.Task(dim=3), weights)


def test_every_built_in_model_offers_the_whole_contract():
    for model in MODELS:
        for name in ("shapes", "predict", "theta", "pull_back", "reduced", "balanced", "aligned"):
            assert model.offers(name)
        assert set(model.axes) == set(model.shapes(TASK))


@pytest.mark.parametrize("model", [model for model in MODELS if model.linear])
def test_balanced_weights_compute_the_matrix_that_was_asked_for(model):
    """Coefficients, heads and effective matrix are three roads to the same matrix."""
    A = np.random.default_rng(1).standard_normal((3, 3))
    weights = model.replace(heads=3).balanced(A, TASK)
    heads = model.reduced(weights, TASK)
    np.testing.assert_allclose(np.einsum("h,hij->ij", heads.value, heads.key_query), A, atol=1e-12)
    theta = coefficients(model, weights, TASK)
    np.testing.assert_allclose(effective_matrix(theta, TASK), A, atol=1e-12)
    assert is_reduced(theta, TASK)


def test_the_effective_matrix_counts_what_runs_through_the_vector_blocks():
    """Two outputs: against the fit of the predictions of all sequences with x = 0 at the query's token."""
    model, task = icl.Merged(heads=2), icl.Task(dim=3, out_dim=2, context=5, normalize="none")
    weights = start(model, "random", out_dim=2)
    theta = coefficients(model, weights, task)
    assert not is_reduced(theta, task)
    value, block = weights["value"][:, 3:], weights["key_query"][:, :, :3]
    slow = np.zeros((3, 3))
    for h in range(2):
        for o in range(2):
            slow += (value[h, o, 3 + o] * block[h, :3] + np.outer(value[h, o, :3], block[h, 3 + o])) / 2
    np.testing.assert_allclose(effective_matrix(theta, task), slow, rtol=1e-12)
