"""Every model computes what the slow twin computes, and starts where its law says."""

import numpy as np
import pytest

import iclflow as icl
import twin
from iclflow.engines.token_loss import prediction
from iclflow.models import check_weights, kind, put_back, take, vectors_are_zero
from iclflow.models.initial import initial_weights

MODELS = [
    icl.Merged(heads=3),
    icl.Merged(heads=2, softmax=True),
    icl.Separate(heads=2, rank=3),
    icl.Separate(heads=3, rank=1, softmax=True),
    icl.MLP(heads=4),
]


def start(model, law="random", init=0.5, dim=3, out_dim=1, seed=0, basis=None, drive=None):
    basis = np.eye(dim) if basis is None else basis
    return initial_weights(model, dim, out_dim, law, init, seed, basis, np.eye(dim) if drive is None else drive)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("normalize", ["context", "tokens", "none"])
def test_a_model_predicts_what_explicit_loops_predict(model, normalize):
    rng = np.random.default_rng(3)
    for out_dim in (1,) if model.kind == "mlp" else (1, 2):
        weights = start(model, out_dim=out_dim)
        sequence = rng.standard_normal((6, 3 + out_dim))
        slow = twin.predict(weights, sequence, 3, normalize, model.softmax)
        fast = prediction(model, weights, sequence, 3, normalize)
        np.testing.assert_allclose(fast, np.real(slow), rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_label_of_the_query_is_hidden(model):
    weights, sequence = start(model), np.random.default_rng(0).standard_normal((5, 4))
    other = sequence.copy()
    other[-1, 3] += 10
    np.testing.assert_array_equal(
        prediction(model, weights, sequence, 3, "none"), prediction(model, weights, other, 3, "none")
    )


@pytest.mark.parametrize("model", MODELS)
def test_what_is_not_trained_cannot_reach_the_prediction(model):
    weights, sequence = start(model), np.random.default_rng(0).standard_normal((5, 4))
    noise = {name: array + 7.0 for name, array in weights.items()}
    same = put_back(model, noise, take(model, weights, 3, "all"), 3, "all")
    np.testing.assert_array_equal(
        prediction(model, weights, sequence, 3, "none"), prediction(model, same, sequence, 3, "none")
    )


def test_entry_law_has_the_asked_deviation_and_zero_vectors():
    model = icl.Separate(heads=400, rank=4)
    weights = start(model, "entry", init=0.1)
    assert vectors_are_zero(model, weights, 3)
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
    part = take(model, start(model, "norm", init=0.3, dim=4), 4, "label")
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


def test_every_kind_of_model_offers_the_same_names():
    for model in MODELS:
        assert {"shapes", "trained", "vectors", "theta", "pull_back", "predict"} <= set(kind(model).__all__)
