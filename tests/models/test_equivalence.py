"""Attention equals a network on the cubic feature: same outputs, same training run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import iclflow as icl
from iclflow.data.sequences import Law, Sample, as_array
from iclflow.data.spectrum import covariances
from iclflow.models import equivalence
from iclflow.models.initial import initial_weights

TASK = icl.Task(dim=3, context=7)
STEPS, RATE = 300, 0.06


def cubic(sequences):
    """Column-stacked z = x_q (x) beta, and the targets."""
    x, y = sequences[:, :-1, :3], sequences[:, :-1, 3]
    beta = np.einsum("pn,pnd->pd", y, x) / x.shape[1]
    return np.einsum("pe,pd->ped", sequences[:, -1, :3], beta).reshape(len(sequences), -1), sequences[:, -1, 3]


def draw(model, law="entry", init=0.4):
    return initial_weights(model, TASK, law, init, 0, covariances(TASK))


def descend(loss, weights):
    """Plain descent by automatic differentiation, written out here."""
    losses, slope = [], jax.jit(jax.value_and_grad(loss))
    for _ in range(STEPS):
        value, gradient = slope(weights)
        losses.append(float(value))
        weights = {name: weights[name] - RATE * gradient[name] for name in weights}
    return np.array([*losses, float(slope(weights)[0])])


def sampled_loss(networks_output):
    z, y = cubic(as_array(Sample(Law.of(TASK), 200, (0, 1))))
    return lambda w: jnp.mean((jax.vmap(lambda one: networks_output(w, one))(z) - y) ** 2)


def population_loss(networks_output):
    """E (y - f(z))^2 of a linear f from E[zz'] = Lambda (x) B and E[yz] = vec(Lambda^2), written out here."""
    token, n = covariances(TASK).token, TASK.context
    B = (1 + 1 / n) * token @ token + np.trace(token) / n * token
    quadratic, cross = np.kron(token, B), (token @ token).T.reshape(-1)

    def loss(w):
        theta = jax.vmap(lambda one: networks_output(w, one))(jnp.eye(9))
        return np.trace(token) - 2 * theta @ cross + theta @ quadratic @ theta

    return loss


def two_layer(weights, z):
    """Rows of beta x_q' stacked, as in weight files: undo the column stacking of z."""
    return (weights["second"] @ (weights["first"] @ z.reshape(3, 3).T.reshape(-1)))[0]


def convolutional(networks, z):
    return equivalence.convolve(networks, z)


CASES = {
    "merged": (icl.Merged(heads=4), equivalence.to_two_layer, two_layer),
    "separate": (icl.Separate(heads=3), equivalence.to_convolutional, convolutional),
    "rank 2": (icl.Separate(heads=2, rank=2), equivalence.to_convolutional, convolutional),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_agree(case):
    model, to_network, output = CASES[case]
    weights = draw(model)
    network = jax.tree.map(jnp.asarray, to_network(weights))
    sequences = as_array(Sample(Law.of(TASK), 10, (5,)))
    for sequence, z in zip(sequences, cubic(sequences)[0], strict=True):
        hidden = np.array(sequence)
        hidden[-1, 3] = 0
        attention = model.predict(weights, hidden, TASK.replace(context=len(sequence) - 1))[0]
        assert float(output(network, z)) == pytest.approx(float(attention), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("case", CASES)
def test_whole_runs_agree_on_the_population(case, quiet):
    model, to_network, output = CASES[case]
    run = icl.train(TASK, model, init=0.4, lr=RATE, steps=STEPS)
    network = jax.tree.map(jnp.asarray, to_network(run.initial_weights))
    losses = descend(population_loss(output), network)
    assert np.abs(run.loss.values - losses).max() <= 1e-10
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("case", CASES)
def test_whole_runs_agree_on_a_sample_with_frozen_vectors_and_differ_without(case, quiet):
    model, to_network, output = CASES[case]
    settings = {"samples": 200, "init": 0.4, "lr": RATE, "steps": STEPS, "seed": 0}
    frozen = icl.train(TASK, model, freeze_vectors=True, **settings)
    network = jax.tree.map(jnp.asarray, to_network(frozen.initial_weights))
    losses = descend(sampled_loss(output), network)
    assert np.abs(frozen.loss.values - losses).max() <= 1e-10
    free = icl.train(TASK, model, **settings)
    assert np.abs(free.loss.values - losses).max() > 1e-4


def test_the_mlp_model_is_that_two_layer_network(quiet):
    merged = icl.train(TASK, icl.Merged(heads=4), init=0.4, lr=RATE, steps=STEPS)
    network = equivalence.to_two_layer(merged.initial_weights)
    mlp = icl.train(TASK, icl.MLP(heads=4), weights=network, lr=RATE, steps=STEPS)
    assert np.abs(merged.loss.values - mlp.loss.values).max() <= 1e-10


def test_mapping_there_and_back_is_the_identity_on_what_matters():
    merged, separate = draw(icl.Merged(heads=4)), draw(icl.Separate(heads=3, rank=2))
    network = equivalence.to_two_layer(merged)
    again = equivalence.to_two_layer(equivalence.from_two_layer(network))
    assert all(np.array_equal(network[name], again[name]) for name in network)
    nets = equivalence.to_convolutional(separate)
    again = equivalence.to_convolutional(equivalence.from_convolutional(nets))
    assert all(np.array_equal(nets[name], again[name]) for name in nets)


def test_weights_with_vector_blocks_have_no_such_network():
    with pytest.raises(icl.BadInput, match="vector blocks must be zero"):
        equivalence.to_two_layer(draw(icl.Merged(), law="random"))
