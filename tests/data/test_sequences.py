"""Samples follow their law, in whatever order their chunks are computed."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.data import sequences
from iclflow.data.sequences import Law, Sample, as_array, fresh
from iclflow.data.spectrum import covariances, in_weight_task


def sample(count=4000, seed=0, whiten=True, **task):
    task = icl.Task(**{"dim": 3, "context": 5, **task})
    return task, Sample(Law.of(task), count, (seed,), whiten)


def recovered_tasks(data, dim):
    """The task vectors behind noiseless labels, by least squares on every sequence."""
    x, y = data[:, :, :dim], data[:, :, dim:]
    return np.stack([np.linalg.lstsq(a, b, rcond=None)[0].T for a, b in zip(x, y, strict=True)])


def test_tokens_are_centred_at_every_position():
    _, data = sample()
    assert np.abs(as_array(data)[:, :, :3].mean(axis=0)).max() < 1e-14


def test_task_vectors_are_white_to_rounding_output_by_output():
    task, data = sample(out_dim=2, task_spectrum=[2.0, 1.0, 0.5], basis="identity")
    w = recovered_tasks(as_array(data), 3)
    for o in range(2):
        np.testing.assert_allclose(w[:, o].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(np.cov(w[:, o].T), covariances(task).task, atol=1e-11)


def test_without_whitening_or_with_shared_tasks_they_are_only_white_on_average():
    for options in ({"whiten": False}, {"icl_fraction": 0.99}):
        w = recovered_tasks(as_array(sample(**options)[1]), 3)[:, 0]
        assert 1e-3 < np.abs(np.cov(w.T) - np.eye(3)).max() < 0.2


def test_token_covariance_within_five_standard_errors():
    task, data = sample(count=20000)
    x = as_array(data)[:, 2, :3]
    cov = covariances(task).token
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 20000)
    assert (np.abs(np.cov(x.T) - cov) < 5 * error).all()


@pytest.mark.parametrize("p", [0.25, 0.6])
def test_a_fraction_of_the_sequences_has_its_own_task_and_the_rest_shares_one(p):
    task, data = sample(count=1000, icl_fraction=p)
    w = recovered_tasks(as_array(data), 3)[:, 0]
    shared = np.abs(w - in_weight_task(task)[0]).max(axis=1) < 1e-9
    assert shared.sum() == round((1 - p) * 1000)
    assert abs(shared[:100].sum() - (1 - p) * 100) <= 1


def test_at_fraction_zero_context_labels_tell_nothing():
    task, data = sample(count=20000, icl_fraction=0.0)
    rows = as_array(data)
    np.testing.assert_allclose(rows[:, -1, 3], rows[:, -1, :3] @ in_weight_task(task)[0], atol=1e-12)
    labels, tokens = rows[:, :-1, 3], rows[:, :-1, :3]
    assert abs(labels.var() - 1) < 5 * np.sqrt(2 / labels.size)
    assert np.abs(np.einsum("pn,pnd->d", labels, tokens) / labels.size).max() < 5 / np.sqrt(labels.size)


def test_noise_is_on_the_context_and_on_the_query_only_if_asked():
    for query in (False, True):
        clean = as_array(sample()[1])
        noisy = as_array(sample(label_noise=0.5, query_noise=query)[1])
        extra = noisy[:, :, 3] - clean[:, :, 3]
        assert abs(extra[:, :-1].var() - 0.5) < 5 * 0.5 * np.sqrt(2 / extra[:, :-1].size)
        assert (np.abs(extra[:, -1]).max() > 0) == query


def test_a_sample_is_the_same_in_any_order_and_without_keeping_its_draws(monkeypatch):
    _, data = sample(count=20000)
    backwards = [data.chunk(i) for i in (2, 1, 0)][::-1]
    monkeypatch.setattr(sequences, "KEEP_BYTES", 0)
    _, forgetful = sample(count=20000)
    assert np.array_equal(np.concatenate(backwards), as_array(forgetful))
    assert not forgetful._kept


def test_seeds_draw_different_samples_and_streams_are_independent():
    first, second = as_array(sample(seed=0)[1]), as_array(sample(seed=1)[1])
    assert abs(np.corrcoef(first[:, 0, 0], second[:, 0, 0])[0, 1]) < 5 / np.sqrt(4000)


def test_fresh_batches_never_repeat():
    law = Law.of(icl.Task(dim=3, context=5))
    assert np.abs(fresh(law, (0,), 0, 8) - fresh(law, (0,), 1, 8)).max() > 0.1


def test_too_few_samples_to_whiten_are_refused():
    with pytest.raises(icl.BadInput, match="samples: 3 must exceed dim"):
        sample(count=3)
