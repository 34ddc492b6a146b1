"""What a subject predicts, against explicit loops; algorithms in context, against their definitions."""

import numpy as np
import pytest

import hand_built
import iclflow as icl
import twin
from iclflow.data.sequences import Law, fresh
from iclflow.data.spectrum import covariances
from iclflow.models.reduced import coefficients, effective_matrix
from iclflow.probing.contexts import draw, read_contexts
from iclflow.probing.outputs import fitted_matrices, outputs
from iclflow.probing.setting import described_by, setting_of
from iclflow.probing.subject import read_subject
from iclflow.theory.algorithm import plateau_matrix

TASK = icl.Task(dim=3, context=20, label_noise=0.1)


def test_final_weights_of_other_implementations_agree_with_a_direct_computation(golden):
    """[`effective-matrix`] Predictions of a few sequences, and three distances on all of them, by explicit loops."""
    subject = read_subject(str(golden.path), None, None, None)
    setting, meta = setting_of(subject), golden.meta
    found = outputs(subject, setting.contexts).predictions[-1]
    sequences, weights, dim = golden.arrays["sequences"], golden.weights("final_weights."), meta["dim"]
    some = range(0, len(sequences), max(1, len(sequences) // 6))
    for p in some:
        direct = twin.predict(weights, sequences[p], dim, meta["normalize"], meta["softmax"], golden.layers)
        np.testing.assert_allclose(found[p], np.real(direct), rtol=1e-9, atol=1e-12)
    distances = icl.probe(str(golden.path), shifts=False).distances
    base = np.mean(sequences[:, -1, dim:] ** 2)
    assert distances["zero"] == pytest.approx(np.mean(found**2) / base, rel=1e-9)
    context, labels, query = sequences[:, :-1, :dim], sequences[:, :-1, dim:], sequences[:, -1, :dim]
    regression = np.stack(
        [np.linalg.lstsq(x, y, rcond=None)[0].T @ q for x, y, q in zip(context, labels, query, strict=True)]
    )
    direct = np.mean((found - regression) ** 2) / base
    assert distances["least squares in context"] == pytest.approx(direct, rel=1e-6)
    token = np.concatenate(list(sequences[:, :, :dim]))
    value, vectors = np.linalg.eigh(token.T @ token / len(token))
    beta = np.einsum("pno,pnd->pod", labels, context) / context.shape[1]
    first = np.einsum("pod,d,pe,e->po", beta, vectors[:, -1], query, vectors[:, -1]) / value[-1]
    assert distances["pcr-1"] == pytest.approx(np.mean((found - first) ** 2) / base, rel=1e-6)


def test_filters_are_the_algorithms_that_they_stand_for():
    """[`context-filters`] Normal equations, projections and explicit iteration, sequence by sequence."""
    sequences = fresh(Law.of(TASK), (5,), 0, 12)
    contexts = read_contexts(sequences, 1)
    raw, white = contexts.spectral(), np.linalg.inv(np.linalg.cholesky(covariances(TASK).token)).T
    root = np.linalg.svd(white)[0] @ np.diag(np.linalg.svd(white)[1]) @ np.linalg.svd(white)[0].T
    for p, sequence in enumerate(sequences):
        x, y, q = sequence[:-1, :3], sequence[:-1, 3], sequence[-1, :3]
        gram, beta = x.T @ x / 20, x.T @ y / 20
        expect = lambda w, guess, p=p, q=q: np.testing.assert_allclose(guess[p, 0], w @ q, rtol=1e-9)
        expect(np.linalg.lstsq(x, y, rcond=None)[0], raw.least_squares())
        expect(np.linalg.solve(gram + 0.3 * np.eye(3), beta), raw.ridge(0.3))
        first = np.linalg.svd(x)[2][:2].T
        expect(first @ np.linalg.lstsq(x @ first, y, rcond=None)[0], raw.least_squares(2))
        for inverse, guess in (
            (np.eye(3), raw.descent(0.7, 5)),
            (root @ root, contexts.spectral(root).descent(0.7, 5)),
        ):
            w = np.zeros(3)
            for _ in range(5):
                w = w + 0.7 * inverse @ (beta - gram @ w)
            expect(w, guess)


@pytest.mark.parametrize("outputs_", [1, 2])
def test_the_effective_matrix_is_what_multiplies_beta_and_the_query(outputs_):
    """[`effective-matrix`] The vector blocks add v u' to it; the fit on a sample finds it again without them."""
    rng, task = np.random.default_rng(3), icl.Task(dim=3, context=9, out_dim=outputs_)
    A = rng.standard_normal((3, 3))
    model = icl.Merged(heads=2)
    weights = hand_built.merged(A, outputs_)
    np.testing.assert_allclose(effective_matrix(coefficients(model, weights, task), task), A)
    contexts = draw(task, 600)
    guess = np.einsum("poi,ij,pj->po", contexts.beta, A, contexts.query)
    np.testing.assert_allclose(fitted_matrices(np.stack([guess, 2 * guess]), contexts), [A, 2 * A], atol=1e-10)
    row, column = rng.standard_normal((2, 3))
    weights["value"][1, 3:, :3] = row
    weights["key_query"][1, 3:, :3] = column
    np.testing.assert_allclose(effective_matrix(coefficients(model, weights, task), task), A + np.outer(row, column))


def test_exact_and_sampled_distances_agree_within_the_sampling_error():
    """[`component-distance`] The same weights by the population's moments and on the sample."""
    A = plateau_matrix(icl.Task(), 2)
    exact = icl.probe(hand_built.separate(A), icl.Task(), shifts=False)
    mean = lambda s: np.einsum("pn,pnd->pd", s[:, :-1, 4], s[:, :-1, :4]) / (s.shape[1] - 1)
    loose = icl.probe(lambda s: np.einsum("pd,de,pe->p", mean(s), A, s[:, -1, :4]), icl.Task())
    assert (exact.exact, loose.exact) == (True, False)
    assert (loose.algorithm, loose.components) == ("pcr", (1, 2))
    for label in ("zero", "pcr-1 shrunk", "pcr-3 shrunk", "gd 1 step", "pcr-2"):
        assert loose.distances[label] == pytest.approx(exact.distances[label], rel=0.1)
    for shift in loose.off_distribution:
        assert abs(shift.measured - shift.theory) < 4 * shift.standard_error, shift


def in_context(rule):
    def predict(sequences):
        x, y, q = sequences[:, :-1, :3], sequences[:, :-1, 3], sequences[:, -1, :3]
        return np.array([rule(*one) @ one[2] for one in zip(x, y, q, strict=True)])

    return predict


def descended(x, y, _):
    w = np.zeros(3)
    for _ in range(4):
        w = w + 1.5 * x.T @ (y - x @ w) / len(y)
    return w


RULES = {
    "least_squares": lambda x, y, q: np.linalg.lstsq(x, y, rcond=None)[0],
    "ridge": lambda x, y, q: np.linalg.solve(x.T @ x + 4 * np.eye(3), x.T @ y),
    "gd": descended,
    "in_weight": lambda x, y, q: np.array([1.0, -2.0, 0.5]),
}


@pytest.mark.parametrize("algorithm", RULES)
def test_functions_of_a_user_are_named(algorithm):
    found = icl.probe(in_context(RULES[algorithm]), icl.Task(dim=3, context=20), shifts=False)
    assert found.algorithm == algorithm
    assert found.last.distance < 2e-3
    assert found.heads is None


def test_a_function_that_does_not_fit_is_refused_and_one_that_cannot_be_shifted_is_reported():
    with pytest.raises(icl.BadInput, match=r"function: returned shape \(2048, 4\)"):
        icl.probe(lambda s: s[:, -1], icl.Task(dim=3))

    def only_twenty(sequences):
        assert sequences.shape[1] == 21
        return 0 * sequences[:, -1, :1]

    found = icl.probe(only_twenty, icl.Task(dim=3, context=20))
    notes = {shift.name: shift.note for shift in found.off_distribution}
    assert notes["context 40"].startswith("AssertionError")
    assert notes["white covariance"] == ""


def test_softmax_is_asked_token_by_token():
    """Long contexts and small weights make it linear attention: A = v U / N, up to the mean that it reads out."""
    A, dim = plateau_matrix(icl.Task(dim=2, context=2000), 1), 2
    weights = hand_built.merged(0.01 * A, heads=2)
    weights["value"][:, dim, dim] = [100, -100]  # the second head, with no key, takes the mean away
    found = icl.probe(weights, icl.Task(dim=2, context=2000), model=icl.Merged(heads=2, softmax=True), shifts=False)
    assert (found.algorithm, found.components) == ("pcr", (1,))
    assert not found.exact


def test_a_task_is_read_off_its_sequences():
    task = icl.Task(dim=3, context=30, task_spectrum=(1.0, 2.0, 0.5), label_noise=0.2, normalize="tokens")
    seen = described_by(read_contexts(fresh(Law.of(task), (8,), 0, 4000), 1), task)
    true, cov = covariances(task), covariances(seen)
    np.testing.assert_allclose(cov.token, true.token, atol=0.01)
    np.testing.assert_allclose(cov.task, true.task, atol=0.1)
    assert seen.label_noise == pytest.approx(0.2, rel=0.02)
    assert seen.normalize == "tokens"
