"""More than one layer: the stream on tokens and on Gram matrices, files, sweeps, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import main
from iclflow.data.grams import balanced_grams, fresh_grams, gram_and_query
from iclflow.data.sequences import Law, fresh, sample
from iclflow.data.spectrum import covariances
from iclflow.engines.gram_loss import GramLoss
from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.models import deep
from iclflow.models.initial import initial_weights

TASK = icl.Task(dim=2, context=6)
MODEL = icl.Separate(heads=2, layers=2)
DESCENT = {"samples": 40, "lr": 0.05, "steps": 12, "init": 0.3, "init_law": "random", "progress": False}


@pytest.fixture(scope="module")
def descent():
    return icl.train(TASK, MODEL, seeds=2, **DESCENT)


@pytest.mark.parametrize(("model", "out_dim"), [(icl.Separate(heads=3, rank=2), 2), (icl.Merged(heads=2), 1)])
def test_one_layer_without_vector_blocks_is_todays_model(model, out_dim):
    """Prediction and gradient of the layered code at one layer; the query's attention to itself is the difference."""
    task, rng = icl.Task(dim=3, out_dim=out_dim, context=7), np.random.default_rng(0)
    weights = initial_weights(model, task, "entry", 0.5, 0, covariances(task))
    stacked = {name: array[None] for name, array in weights.items()}
    sequence = sample(task, 20, seed=1)[3]
    gram, hidden = gram_and_query(sequence[None])[0][:, :-1], sequence.copy()
    hidden[-1, 3:] = 0
    today = lambda w: jnp.sum((model.predict(w, hidden, task) - sequence[-1, 3:]) ** 2)
    other = lambda w: jnp.sum((deep.predict_from_gram(model, w, gram, hidden[-1], task) - sequence[-1, 3:]) ** 2)
    slopes, layers = jax.grad(today)(weights), jax.grad(other)(stacked)
    for name, slope in slopes.items():
        layered = layers[name][0]
        where = model.trained(task, "label")[name]
        assert np.abs(layered[where] - slope[where]).max() <= 1e-12
        assert np.abs(slope[where]).max() > 1e-3
    assert abs(today(weights) - other(stacked)) <= 1e-12
    weights["value"] += 0.1 * rng.standard_normal(weights["value"].shape)  # vector blocks tell the two apart
    stacked["value"] = weights["value"][None]
    assert abs(today(weights) - other(stacked)) > 1e-4


def test_gram_and_tokens_agree_on_minibatches_tests_and_other_precision(descent):
    given = {**DESCENT, "batch": 8, "test_samples": 30, "optimizer": "adam", "weight_decay": 0.1}
    gram, tokens = (icl.train(TASK, MODEL, engine=engine, **given) for engine in ("gram", "tokens"))
    for name in ("loss", "loss_icl", "loss_iwl"):
        assert np.abs(gram.curves[name] - tokens.curves[name]).max() <= 1e-12
    single = icl.train(TASK, MODEL, dtype="float32", **DESCENT)
    assert 0 < np.abs(single.loss - descent.select(0).loss).max() <= 1e-5


def test_memory_of_a_step_does_not_grow_with_the_number_of_gram_matrices():
    """Beyond the matrices themselves, also where their number is no multiple of a chunk."""
    weights = initial_weights(MODEL, TASK, "entry", 0.3, 0, covariances(TASK))

    def working_memory(count):
        grams = jax.ShapeDtypeStruct((count, 3, 4), jnp.float64)
        loss = lambda trained, grams: GramLoss(weights, grams, (), None, MODEL, TASK).loss_and_gradient(trained)
        return jax.jit(loss).lower(weights, grams).compile().memory_analysis().temp_size_in_bytes

    assert working_memory(200_001) < 1.1 * working_memory(4096)


def test_seeds_files_and_resume_keep_the_layer_axis(descent, tmp_path):
    assert descent.summary["engine"] == "gram"
    assert descent.weights["value"].dims[:4] == (
        "seed",
        "record",
        "layer",
        "head",
    )
    one = icl.train(TASK, MODEL, seed=1, **DESCENT)
    assert np.array_equal(one.loss, descent.select(1).loss)
    descent.save(tmp_path / "run")
    again = icl.load(tmp_path / "run")
    assert again.model == MODEL
    assert np.array_equal(again.final_weights["key"], descent.final_weights["key"])
    first = icl.train(TASK, MODEL, seed=1, **{**DESCENT, "steps": 5})
    assert np.array_equal(icl.resume(first, steps=7, progress=False).loss, one.loss)


def test_weights_tell_the_number_of_layers_unless_they_are_looped():
    weights = {"value": np.ones((2, 3, 3, 3)), "key": np.ones((2, 3, 1, 3)), "query": np.ones((2, 3, 1, 3))}
    run = icl.train(TASK, weights=weights, samples=40, lr=1e-3, steps=1, progress=False)
    assert run.model == icl.Separate(heads=3, rank=1, layers=2)
    with pytest.raises(BadInput, match="looped: True contradicts the weights"):
        icl.train(TASK, icl.Separate(heads=3, layers=2, looped=True), weights=weights, samples=40, lr=1e-3, steps=1)
    with pytest.raises(BadInput, match="layers: 3 contradicts the weights, which have 2"):
        icl.train(TASK, icl.Separate(heads=3, layers=3), weights=weights, samples=40, lr=1e-3, steps=1)
    shared = {name: array[:1] for name, array in weights.items()}
    looped = icl.train(TASK, icl.Separate(layers=3), weights=shared, samples=40, lr=1e-9, steps=1, progress=False)
    same = {name: np.repeat(array, 3, axis=0) for name, array in shared.items()}
    unrolled = icl.train(TASK, weights=same, samples=40, lr=1e-9, steps=1, progress=False)
    assert looped.model.looped
    assert abs(looped.loss[0] - unrolled.loss[0]) <= 1e-12 * unrolled.loss[0]


def test_which_entries_start_at_zero_and_which_stay_there():
    """Law `entry`: all that mixes tokens and labels, and the token rows of value; `random`: none."""
    draw = lambda law: initial_weights(MODEL, TASK, law, 0.5, 0, covariances(TASK))
    for law in ("entry", "public", "norm"):
        weights = draw(law)
        assert not weights["value"][..., :2, :].any()
        assert not weights["value"][..., :2].any()
        assert not weights["key"][..., 2:].any()
        assert not weights["query"][..., 2:].any()
        assert weights["value"][..., 2:, 2:].all()
        assert weights["key"][..., :2].all()
        assert weights["query"][..., :2].all()
    assert np.allclose(np.linalg.norm(draw("norm")["key"], axis=(2, 3)), 0.5)
    assert all(array.all() for array in draw("random").values())
    settings = {**DESCENT, "init_law": "entry", "steps": 3}
    free, frozen = (icl.train(TASK, MODEL, freeze_vectors=f, **settings).final_weights for f in (False, True))
    assert np.abs(free["value"][0, :, :2, :2]).max() > 0  # the token stream learns
    for name, where in MODEL.vectors(TASK).items():
        assert not frozen[name][where].any()


def test_frozen_blocks_that_are_not_zero_stay_where_they_start():
    run = icl.train(TASK, MODEL, freeze_vectors=True, **DESCENT)
    for name, where in MODEL.vectors(TASK).items():
        assert np.array_equal(run.final_weights[name][where], run.initial_weights[name][where])
    assert np.abs(run.final_weights["key"] - run.initial_weights["key"]).max() > 1e-4


@pytest.mark.parametrize(("context", "noise"), [(6, 0.0), (2, 0.0), (5, 0.3)])
def test_drawn_gram_matrices_have_the_law_of_sequences(context, noise):
    """First and second moments of S and of S z_q y_q, against sums over tokens, within five standard errors."""
    task = icl.Task(dim=3, context=context, label_noise=noise, query_noise=noise > 0, spectrum=(1.0, 0.5, 0.2))
    law = Law.of(task)

    def features(grams):
        scatter = grams[:, :, :4].reshape(len(grams), -1)
        quadratic = scatter[:, :, None] * scatter[:, None, :6]
        drive = np.einsum("pab,pb,p->pa", grams[:, :, :4], grams[:, :, 4], grams[:, 3, 4])
        return np.concatenate([scatter, quadratic.reshape(len(grams), -1), drive, grams[:, :, 4] ** 2], axis=1)

    tokens = features(gram_and_query(fresh(law, (1,), 0, 10_000)))
    error = np.sqrt(tokens.var(axis=0) / len(tokens))
    for other in (fresh_grams(law, (2,), 0, 10_000), balanced_grams(law, 9000, (3,))):
        drawn = features(other)
        both = np.sqrt(error**2 + drawn.var(axis=0) / len(drawn)) + 1e-12
        assert (np.abs(drawn.mean(axis=0) - tokens.mean(axis=0)) < 5.5 * both).all()


def test_balanced_draws_know_second_moments_far_better_than_independent_ones():
    task = icl.Task(dim=3, context=31)
    law, cov = Law.of(task), covariances(task)

    def drive_error(grams):
        drive = np.einsum("pa,p,pb->ab", grams[:, :3, 3], grams[:, 3, 4], grams[:, :3, 4]) / len(grams) / 31
        return np.abs(drive - cov.token @ cov.token).max() / np.abs(cov.token @ cov.token).max()

    balanced = max(drive_error(balanced_grams(law, 9 * 900, (seed,), True)) for seed in range(5))
    assert balanced < 0.005 < drive_error(fresh_grams(law, (0,), 0, 8100))


def test_the_flow_is_the_limit_of_descent_on_the_population():
    settings = {"init": 0.3, "gram_samples": 400, "progress": False}
    flow = icl.train(TASK, MODEL, time=2.0, **settings)
    assert flow.by_flow
    assert flow.summary["engine"] == "gram"
    assert "400 of them" in flow.summary["engine_reason"]
    gaps = []
    for steps in (40, 80):
        run = icl.train(TASK, MODEL, lr=1.0 / steps, steps=steps, **settings)
        assert abs(run.time.values[-1] - 2.0) < 1e-12
        gaps.append(float(run.loss[-1] - flow.loss[-1]))
    assert 1e-7 < abs(gaps[1]) < 0.02
    assert 1.8 < gaps[0] / gaps[1] < 2.2
    other = icl.train(TASK, MODEL, lr=0.1, steps=2, data_seed=5, **settings)
    assert abs(other.loss[0] - flow.loss[0]) > 1e-9
    longer = icl.resume(icl.train(TASK, MODEL, time=1.0, **settings), time=1.0, progress=False)
    assert abs(longer.loss[-1] - flow.loss[-1]) < 1e-7


def test_the_flow_without_a_time_passes_both_forecast_drops_and_settles():
    """One direction, two layers: it is learned, and learned again."""
    task, model = icl.Task(dim=1, context=20), icl.Separate(heads=1, layers=2)
    run = icl.train(task, model, init=0.05, freeze_vectors=True, gram_samples=2048, progress=False)
    forecast = icl.predict(task, model, init=0.05)
    assert run.status == "ok"
    assert run.summary["runs"][0]["why"] == "settled"
    assert len(forecast.drop_times) == 2
    assert forecast.drop_times[-1] < run.time.values[-1] < 3 * forecast.drop_times[-1]
    assert float(run.loss[-1]) == pytest.approx(forecast.levels[-1], rel=0.1)
    middle = np.interp(np.sqrt(np.prod(forecast.drop_times)), run.time.values, run.loss.values)
    assert middle == pytest.approx(forecast.levels[1], rel=0.05)
    drops = icl.compare(run).drops
    assert [(drop.observed_head, drop.observed_direction) for drop in drops] == [(h, 0) for h in forecast.heads]
    assert max(drop.error for drop in drops) < 0.05
    with pytest.raises(BadInput, match="steps: must be given"):
        icl.train(task, icl.Merged(layers=2))


def test_fresh_matrices_come_with_every_step():
    run = icl.train(TASK, MODEL, batch=64, lr=0.1, steps=6, init=0.3, progress=False)
    assert run.summary["engine"] == "gram"
    assert len(np.unique(run.loss)) == 7


class OneStep(icl.Model):
    """One step of preconditioned gradient descent in context."""

    scale: float = 1.0

    def shapes(self, task):
        return {"A": (task.dim, task.dim)}

    def predict(self, weights, sequence, task):
        x, y = sequence[:-1, : task.dim], sequence[:-1, task.dim :]
        return self.scale * y.T @ x @ weights["A"] @ sequence[-1, : task.dim] / task.context

    def gram(self, weights, gram, query, task):
        dim = task.dim
        return self.scale * gram[dim:, :dim] @ weights["A"] @ query[:dim] / task.context


def test_a_model_of_your_own_can_offer_its_gram_form():
    settings = {"samples": 50, "lr": 0.1, "steps": 5, "progress": False}
    gram, tokens = (icl.train(TASK, OneStep(), engine=engine, **settings) for engine in ("auto", "tokens"))
    assert (gram.summary["engine"], tokens.summary["engine"]) == ("gram", "tokens")
    assert np.abs(gram.loss - tokens.loss).max() <= 1e-12
    assert not Experiment.from_flat(
        {"model": OneStep.kind, "prefix_loss": True, "samples": 9, "lr": 0.1, "steps": 1}
    ).on_grams
    with pytest.raises(BadInput, match="no Gram form"):
        icl.train(TASK, icl.Separate(), engine="gram", samples=40, lr=0.1, steps=2)


BAD = [
    ({"layers": 0}, "layers"),
    ({"looped": True}, "looped: True must be False with one layer; give layers"),
    ({"layers": 2, "engine": "moments"}, "engine: 'moments' must be 'gram', 'tokens' or 'auto'"),
    ({"layers": 2, "softmax": True}, "softmax: has no meaning with layers above 1"),
    ({"layers": 2, "prefix_loss": True}, "prefix_loss: must be off with layers above 1"),
    ({"layers": 2, "icl_fraction": 0.5}, "icl_fraction: 0.5 must be 1 with layers above 1"),
    ({"layers": 2, "normalize": "tokens"}, "normalize: 'tokens' must be 'context' or 'none' with layers above 1"),
    ({"layers": 2, "engine": "tokens"}, "batch: fresh samples for the tokens engine need a batch size"),
    ({"layers": 2, "time": 3, "batch": 5}, "batch: belongs to descent"),
    ({"model": "mlp", "layers": 2}, "layers: does not apply to model 'mlp'"),
]


@pytest.mark.parametrize(("settings", "words"), BAD)
def test_what_depth_cannot_be_combined_with_is_refused_in_one_line(settings, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"lr": 0.1, "steps": 3} if "time" not in settings else {}
    flags = {f"--{name.replace('_', '-')}": value for name, value in {**given, **settings}.items()}
    with pytest.raises(SystemExit) as left:
        main(["train", *(flag if value is True else f"{flag}={value}" for flag, value in flags.items())])
    said = capsys.readouterr().err.strip()
    assert left.value.code == 2
    assert words in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


def test_looped_with_weights_of_every_layer_is_refused_by_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", value=np.ones((2, 3, 3, 3)), key=np.ones((2, 3, 1, 3)), query=np.ones((2, 3, 1, 3)))
    flags = ("--dim=2", "--weights=two.npz", "--layers=2", "--looped", "--samples=40", "--lr=0.1", "--steps=1")
    with pytest.raises(SystemExit) as left:
        main(["train", "--model=separate", *flags])
    said = capsys.readouterr().err.strip()
    assert left.value.code == 2
    assert said.startswith("iclflow: looped: True contradicts the weights")
    assert "\n" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["two.npz"]


def test_a_sweep_over_layers_trains_what_single_runs_train(tmp_path):
    base = {"dim": 2, "context": 6, "model": "separate", "heads": 2, "samples": 40, "lr": 0.05, "steps": 12}
    grid = {"base": {**base, "init": 0.3, "init_law": "random"}, "axes": {"layers": [1, 2]}, "seeds": 1}
    found = icl.sweep(grid, tmp_path / "sweep", workers=0)
    single = icl.train(TASK, MODEL, **DESCENT)
    assert abs(float(found.data["final_loss"].sel(layers=2).squeeze()) - float(single.loss[-1])) < 1e-14
