"""`train` does what it is asked, says what it chose, and repeats itself."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.experiment import Experiment

TASK = icl.Task(dim=3, context=8)
SMALL = {"samples": 50, "lr": 0.05, "steps": 40, "init": 0.3}


def same(a, b):
    return np.array_equal(a.loss.values, b.loss.values) and all(
        np.array_equal(a.final_weights[name], b.final_weights[name]) for name in a.final_weights
    )


def test_the_shortest_call_shows_the_staircase():
    run = icl.train()
    levels = icl.theory.plateau_losses(run.task)
    assert (run.model.kind, run.summary["engine"], run.status) == ("separate", "flow", "ok")
    for level in levels:
        assert np.abs(run.loss.values - level).min() < 2e-3


def test_losses_are_before_every_step_and_after_the_last():
    run = icl.train(TASK, icl.Merged(heads=2), **SMALL)
    assert run.loss.dims == ("step",)
    assert run.loss.sizes["step"] == 41
    np.testing.assert_allclose(run.time.values, 2 * 0.05 * np.arange(41))


@pytest.mark.parametrize(
    ("settings", "engine"),
    [
        ({}, "flow"),
        ({"samples": 50}, "flow"),
        ({"lr": 0.1, "steps": 5}, "moments"),
        ({"samples": 50, "steps": 5}, "moments"),
        ({"samples": 50, "optimizer": "adam", "steps": 5}, "moments"),
        ({"samples": 50, "batch": 10, "lr": 0.1, "steps": 5}, "tokens"),
        ({"batch": 10, "lr": 0.1, "steps": 5}, "tokens"),
        ({"time": 5.0}, "flow"),
    ],
)
def test_auto_picks_an_engine_and_says_why(settings, engine, quiet):
    run = icl.train(TASK, icl.Merged(heads=2), **settings)
    assert run.summary["engine"] == engine
    assert len(run.summary["engine_reason"]) > 10


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        {**SMALL, "data_seed": 4},
        {**SMALL, "samples": 20_000},
        {"init": 0.3},
        {**SMALL, "samples": 50, "batch": 10, "engine": "tokens"},
        {"lr": 0.1, "steps": 50, "init": 0.2},
    ],
    ids=["own samples", "shared sample", "large samples", "population flow", "minibatch", "population descent"],
)
def test_many_seeds_in_one_call_are_bit_for_bit_single_runs(settings, quiet):
    model = icl.Separate(heads=3, rank=2)
    together = icl.train(TASK, model, seed=5, seeds=3, **settings)
    assert together.loss.dims == ("seed", "step")
    for seed in (5, 6, 7):
        alone = icl.train(TASK, model, seed=seed, **settings)
        assert same(together.select(seed), alone)
        assert together.select(seed).status == alone.status


def test_seeds_change_data_and_weights_and_a_data_seed_holds_the_data(quiet):
    model = icl.Merged(heads=2)
    first, second = (icl.train(TASK, model, seed=s, **SMALL) for s in (0, 1))
    assert not np.array_equal(first.initial_weights["value"], second.initial_weights["value"])
    held = [icl.train(TASK, model, seed=s, data_seed=9, init_law="aligned", **SMALL) for s in (0, 1)]
    assert same(*held)
    assert not same(held[0], icl.train(TASK, model, data_seed=8, init_law="aligned", **SMALL))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("engine", ["moments", "tokens"])
def test_a_resumed_run_is_bit_for_bit_one_long_run(optimizer, engine, quiet, tmp_path):
    settings = {**SMALL, "lr": 0.01, "optimizer": optimizer, "engine": engine}
    if engine == "tokens":
        settings["batch"] = 7
    model = icl.Separate(heads=2)
    whole = icl.train(TASK, model, **{**settings, "steps": 60})
    part = icl.train(TASK, model, **{**settings, "steps": 23}, out=tmp_path / "run")
    again = icl.resume(tmp_path / "run", steps=37)
    assert same(whole, again)
    np.testing.assert_array_equal(whole.time.values, again.time.values)
    assert again.config["steps"] == 60
    assert part.loss.sizes["step"] == 24


def test_resuming_many_seeds_keeps_them_apart(quiet):
    whole = icl.train(TASK, icl.Merged(heads=2), seeds=2, **{**SMALL, "steps": 50})
    half = icl.train(TASK, icl.Merged(heads=2), seeds=2, **{**SMALL, "steps": 20})
    np.testing.assert_array_equal(icl.resume(half, steps=30).loss.values, whole.loss.values)


def test_resume_asks_for_the_right_measure(quiet):
    descent = icl.train(TASK, icl.Merged(heads=2), **SMALL)
    with pytest.raises(icl.BadInput, match="steps: says how much longer"):
        icl.resume(descent, time=5.0)
    with pytest.raises(icl.BadInput, match="time: says how much longer"):
        icl.resume(icl.train(TASK, icl.Merged(heads=2), time=1.0))


def test_own_sequences_need_no_task_and_must_agree_with_what_is_said():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((30, 6, 4))
    run = icl.train(model=icl.Merged(heads=2), data=data, lr=0.01, steps=3)
    assert (run.task.dim, run.task.context, run.task.out_dim) == (3, 5, 1)
    two = icl.train(icl.Task(out_dim=2), icl.Merged(heads=2), data=data, lr=0.01, steps=3)
    assert two.task.dim == 2
    for task, message in (
        (icl.Task(dim=4), "dim: 4 contradicts the data file, which has 3"),
        (icl.Task(context=9), "context: 9 contradicts"),
        (icl.Task(spectrum="white"), "spectrum: describes sampled sequences"),
    ):
        with pytest.raises(icl.BadInput, match=message):
            icl.train(task, icl.Merged(heads=2), data=data, lr=0.01, steps=3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 4)), r"'sequences' has shape \(3, 4\)"),
        (np.zeros((1, 4, 3)), "at least 2 sequences"),
        (np.zeros((5, 1, 3)), "2 tokens"),
        (np.zeros((5, 4, 1)), "columns"),
        (np.full((5, 4, 3), np.nan), r"holds NaN or infinity, first at \[0, 0, 0\]"),
        (np.full((5, 4, 3), "a"), "must be numbers"),
        ({"x": np.zeros((5, 4, 3))}, "must have 'sequences'"),
        ({"sequences": np.zeros((5, 4, 3)), "sequences_icl": np.zeros((5, 5, 3))}, "must match 'sequences'"),
        ({"sequences": np.zeros((5, 4, 3)), "out_dim": np.array(0)}, "out_dim 0 must be"),
    ],
)
def test_own_sequences_that_make_no_sense_are_refused(data, message):
    with pytest.raises(icl.BadInput, match=message):
        icl.train(model=icl.Merged(heads=2), data=data, lr=0.01, steps=3)


def test_files_that_are_not_npz_are_refused(tmp_path):
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04 not really")
    np.savez(tmp_path / "objects.npz", sequences=np.array([{"a": 1}], dtype=object))
    for name in ("junk.npz", "objects.npz", "none.npz"):
        with pytest.raises(icl.BadInput, match="^data: "):
            icl.train(model=icl.Merged(heads=2), data=str(tmp_path / name), lr=0.01, steps=3)


def test_test_sets_are_watched_and_not_trained_on(quiet):
    task = icl.Task(dim=3, context=8, icl_fraction=0.5)
    plain = icl.train(task, icl.Merged(heads=2), **SMALL)
    watched = icl.train(task, icl.Merged(heads=2), test_samples=40, **SMALL)
    assert np.array_equal(plain.loss.values, watched.loss.values)
    assert watched.loss_icl.sizes == watched.loss_iwl.sizes == watched.loss.sizes
    assert np.abs(watched.loss_icl.values - watched.loss_iwl.values).max() > 0.01
    with pytest.raises(AttributeError, match="no test set"):
        _ = plain.loss_icl


def test_the_population_knows_its_test_losses_exactly(quiet):
    task = icl.Task(dim=2, context=8, icl_fraction=0.5, spectrum="white")
    exact = icl.train(task, icl.Merged(heads=2), lr=0.1, steps=200, init=0.1)
    sampled = icl.train(task, icl.Merged(heads=2), lr=0.1, steps=200, init=0.1, samples=40_000, test_samples=40_000)
    for name in ("loss", "loss_icl", "loss_iwl"):
        assert np.abs(exact.curves[name].values - sampled.curves[name].values).max() < 0.06


def test_frozen_vectors_stay_where_they_are(quiet):
    run = icl.train(TASK, icl.Merged(heads=2), init_law="random", freeze_vectors=True, **SMALL)
    first, last = run.initial_weights, run.final_weights
    np.testing.assert_array_equal(first["value"][:, 3, :3], last["value"][:, 3, :3])
    np.testing.assert_array_equal(first["key_query"][:, 3, :3], last["key_query"][:, 3, :3])
    assert np.abs(first["value"][:, 3, 3] - last["value"][:, 3, 3]).min() > 1e-4


def test_single_precision_follows_double(quiet):
    double = icl.train(TASK, icl.Merged(heads=2), **SMALL)
    for engine in ("moments", "tokens"):
        single = icl.train(TASK, icl.Merged(heads=2), dtype="float32", engine=engine, **SMALL)
        gap = np.abs(single.loss.values - double.loss.values).max()
        assert 0 < gap < 1e-4


def test_fresh_batches_learn_the_task(quiet):
    run = icl.train(TASK, icl.Merged(heads=4), batch=200, lr=0.3, steps=300, init=0.2)
    assert run.loss.values[-20:].mean() < 0.6


def test_a_cap_nobody_asked_for_is_said_and_is_no_failure(monkeypatch):
    monkeypatch.setattr("iclflow.engines.flow.MOST_STEPS", 100)
    with pytest.warns(UserWarning, match="stopped at the cap, .* has not settled, lowest reachable 0.136"):
        run = icl.train(icl.Task(), icl.Separate(heads=5), init=1e-3)
    assert run.status == "max_steps"
    monkeypatch.setattr("iclflow.training.by_descent.MOST_STEPS", 50)
    with pytest.warns(UserWarning, match="stopped at the cap of 50 steps"):
        assert icl.train(icl.Task(), icl.Separate(heads=5), lr=0.1).status == "max_steps"


def test_weights_and_heads_come_from_the_file(tmp_path, quiet):
    first = icl.train(TASK, icl.Separate(heads=3, rank=2), **SMALL, out=tmp_path / "a")
    source = str(tmp_path / "a" / "weights.safetensors")
    again = icl.train(TASK, weights=source, **SMALL)
    assert same(first, again)
    on = icl.train(TASK, weights=source + ":final_weights.", **SMALL)
    assert on.loss.values[0] == first.loss.values[-1]
    with pytest.raises(icl.BadInput, match="heads: 2 contradicts the weights, which have 3"):
        icl.train(TASK, icl.Separate(heads=2), weights=source, **SMALL)
    with pytest.raises(icl.BadInput, match="model: 'merged' contradicts"):
        icl.train(TASK, icl.Merged(), weights=source, **SMALL)
    with pytest.raises(icl.BadInput, match="holds no weights .* under"):
        icl.train(TASK, weights=source + ":nothing.", **SMALL)


def test_a_run_can_be_made_again_from_its_config_alone(quiet):
    run = icl.train(TASK, icl.Separate(heads=2), seed=3, **SMALL)
    again = Experiment.from_flat(run.config)
    settings = {name: getattr(again.training, name) for name in again.training.model_fields_set}
    assert same(run, icl.train(again.task, again.model, **settings))


def test_the_version_and_the_citation_are_there(capsys):
    assert "2501.16265" in icl.cite()
    assert "iclflow" in capsys.readouterr().out


@pytest.mark.parametrize("spacing", ["log", "even"])
def test_two_records_are_the_first_and_the_last_weights_of_all_steps(spacing):
    run = icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=0.1, lr=0.1, steps=50, records=2, spacing=spacing)
    assert run.loss.sizes["step"] == 51
    assert run.weights["step"].values.tolist() == [0, 50]


def test_own_sequences_settle_without_the_noise_that_vector_blocks_could_fit():
    """What vector blocks learn on half of the sequences holds on the other half only if sequences share tasks."""
    from iclflow.config import Training
    from iclflow.results.inputs import read_inputs
    from iclflow.training.plan import Plan

    rng = np.random.default_rng(0)
    x = rng.laplace(size=(2000, 17, 3)) * [0.7, 0.5, 0.3]
    for tasks, noise in ((2000, True), (3, False)):
        w = rng.standard_normal((tasks, 3))[np.arange(2000) % tasks]
        mine = np.concatenate([x, np.einsum("pnd,pd->pn", x, w)[..., None]], axis=2)
        inputs = read_inputs(None, icl.Separate(heads=4), Training(), mine)
        assert Plan(inputs.experiment, inputs.own).label_only is noise


def test_a_covariance_without_full_rank_is_not_blamed_on_the_sample():
    from iclflow.prediction.sample import sample_landscape
    from iclflow.theory.separate import rank_optimum

    for task, samples, words in (
        (icl.Task(spectrum=(0.5, 0.3, 0.0)), 500, "spectrum: must have full rank for theory; the tokens span 2 of 3"),
        (icl.Task(dim=3), 6, "samples: too few for theory"),
    ):
        run = icl.train(task, icl.Merged(heads=1), samples=samples, lr=0.1, steps=1)
        with pytest.raises(icl.BadInput, match=words):
            rank_optimum(sample_landscape(run), 3)
