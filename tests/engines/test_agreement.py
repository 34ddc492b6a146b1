"""Moments, tokens, automatic differentiation and the slow twin agree on mixed configurations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import iclflow as icl
import twin
from iclflow.config import Task, Training
from iclflow.data.sampled import sampled_moments
from iclflow.data.sequences import Law, Sample, as_array
from iclflow.data.spectrum import covariances
from iclflow.engines.minimum import stable_step
from iclflow.engines.moment_loss import MomentLoss
from iclflow.engines.token_loss import TokenLoss
from iclflow.experiment import Experiment
from iclflow.models.base import KNOWN
from iclflow.models.initial import initial_weights
from iclflow.models.parts import take, vector_mask

COUNT = 50


def mixed(number: int) -> tuple[Task, object, dict]:
    """A random configuration: every option is met many times over the fifty."""
    rng = np.random.default_rng([7, number])
    pick = lambda *choices: choices[rng.integers(len(choices))]
    dim = int(rng.integers(2, 9))
    kind = pick("merged", "separate", "separate", "mlp")
    record = KNOWN[kind]
    sizes = {"heads": int(rng.integers(1, 9)), "rank": int(rng.integers(1, dim + 1))}
    model = record(**{name: size for name, size in sizes.items() if name in record.model_fields})
    noise = float(pick(0.0, 0.0, 0.3))
    icl_fraction, prefix = float(pick(1.0, 1.0, 0.5, 0.0)), bool(pick(False, True))
    task = icl.Task(
        dim=dim,
        out_dim=1 if kind == "mlp" else pick(1, 1, 2),
        context=int(rng.integers(2, 9)),
        spectrum=pick("linear", "white", "power:1.5"),
        task_spectrum=pick(None, "linear"),
        label_noise=noise,
        query_noise=noise > 0,
        icl_fraction=icl_fraction,
        prefix_loss=prefix and icl_fraction > 0,
        normalize=pick("context", "tokens", "none"),
        task_seed=number,
    )
    settings = {
        "init_law": pick("entry", "public", "norm", "random", "aligned"),
        "init": float(pick(0.1, 0.3) if kind == "separate" else pick(0.02, 0.1)),
        "optimizer": pick("sgd", "sgd", "momentum", "adam"),
        "freeze_vectors": bool(pick(False, False, True)),
        "whiten": bool(pick(True, False)),
        "samples": 60,
        "seed": number,
    }
    return task, model, settings


def mixed_loss(number: int) -> MomentLoss:
    task, model, settings = mixed(number)
    sample = Sample(Law.of(task), settings["samples"], (number, 1), settings["whiten"])
    blocks = "label" if model.kind == "mlp" else "all"
    return MomentLoss(sampled_moments(sample, task.normalize, task.prefix_loss, blocks), (), None, model)


@pytest.mark.parametrize("number", range(COUNT))
def test_moments_and_tokens_train_alike(number, quiet):
    task, model, settings = mixed(number)
    share = 0.05 if settings["optimizer"] == "momentum" else 0.5
    lr = 1e-3 if settings["optimizer"] == "adam" else share * stable_step(mixed_loss(number))
    run = lambda engine, lr=lr: icl.train(task, model, **settings, lr=lr, steps=300, engine=engine, records=3)
    ours, theirs = run("moments"), run("tokens")
    gap = np.abs(ours.loss.values - theirs.loss.values).max() / theirs.loss.values[0]
    assert gap <= 1e-10
    for name, array in theirs.final_weights.items():
        assert np.abs(ours.final_weights[name] - array).max() <= 1e-9 * max(1, np.abs(array).max())


@pytest.mark.parametrize("number", range(COUNT))
def test_hand_written_gradients_match_automatic_ones(number):
    task, model, settings = mixed(number)
    sample = Sample(Law.of(task), settings["samples"], (number,), settings["whiten"])
    blocks = "label" if model.kind == "mlp" else "all"
    weights = initial_weights(model, task, "random", 0.5, number, covariances(task))
    part = take(model, weights, task, blocks)
    mask = vector_mask(model, task, blocks) if settings["freeze_vectors"] else None
    moments = sampled_moments(sample, task.normalize, task.prefix_loss, blocks)
    by_moments = MomentLoss(moments, (), mask, model)
    by_tokens = TokenLoss(weights, as_array(sample), (), mask, model, task)
    value, gradient = by_moments.loss_and_gradient(part)
    leaves = jax.tree.map(jnp.asarray, part)
    automatic = jax.jit(jax.grad(lambda w: by_moments.loss(w)))(leaves)
    token_value, token_gradient = jax.jit(lambda w: by_tokens.loss_and_gradient(w))(leaves)
    size = max(float(jnp.abs(g).max()) for g in automatic.values())
    for name in part:
        free = 1.0 if mask is None else mask[name]
        assert np.abs(gradient[name] - free * automatic[name]).max() <= 1e-12 * size
        assert np.abs(gradient[name] - token_gradient[name]).max() <= 1e-12 * size
    assert abs(value - token_value) <= 1e-12 * abs(token_value)


TWINS = [
    ("merged", {"heads": 2}, {}),
    ("merged", {"heads": 2}, {"out_dim": 2, "normalize": "tokens"}),
    ("merged", {"heads": 2, "softmax": True}, {}),
    ("separate", {"heads": 2, "rank": 1}, {"normalize": "none"}),
    ("separate", {"heads": 1, "rank": 2}, {"prefix_loss": True}),
    ("separate", {"heads": 2, "rank": 1, "softmax": True}, {"prefix_loss": True, "normalize": "tokens"}),
    ("mlp", {"heads": 2}, {"prefix_loss": True}),
    ("merged", {"heads": 1}, {"icl_fraction": 0.5, "label_noise": 0.2}),
]


@pytest.mark.parametrize(("kind", "sizes", "options"), TWINS)
def test_engines_repeat_the_slow_twin(kind, sizes, options, quiet):
    model, task = KNOWN[kind](**sizes), icl.Task(dim=2, context=3, **options)
    sequences = as_array(Sample(Law.of(task), 5, (3,), whiten=True))
    run_on = lambda engine: icl.train(
        icl.Task(normalize=task.normalize, prefix_loss=task.prefix_loss, out_dim=task.out_dim),
        model, data=sequences, init=0.4, init_law="random", lr=0.2, steps=12, seed=5, engine=engine,
    )  # fmt: skip
    normalize = model.normalize(task)
    first = run_on("tokens")
    losses, final = twin.descend(
        first.initial_weights,
        sequences,
        2,
        normalize,
        0.2,
        12,
        prefix_loss=task.prefix_loss,
        softmax=not model.linear,
    )
    for run in [first, run_on("moments")] if model.linear else [first]:
        assert np.abs(run.loss.values - losses).max() <= 1e-10 * losses[0]
        for name, array in final.items():
            assert np.abs(run.final_weights[name] - array).max() <= 1e-10


def test_flat_settings_make_the_same_experiment_again():
    for number in range(COUNT):
        task, model, settings = mixed(number)
        experiment = Experiment(task=task, model=model, training=Training(**settings))
        assert Experiment.from_flat(experiment.flat()) == experiment


def test_stable_step_is_where_descent_turns_unstable(quiet):
    """White merged attention has no flatter minimum to flee to: 2 % below settles, 5 % above does not."""
    task, model = icl.Task(dim=3, spectrum="white"), icl.Merged(heads=4)
    probe = icl.train(task, model, lr=1e-3, steps=1).summary["runs"][0]["stable_step"]
    assert icl.train(task, model, lr=0.98 * probe, steps=3000, init=0.05).status == "ok"
    assert icl.train(task, model, lr=1.05 * probe, steps=3000, init=0.05).status == "unstable"
