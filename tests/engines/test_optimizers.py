"""Optimisers and weight decay: against an independent implementation, rules written out here, and the flow."""

import json
import os
from pathlib import Path

import numpy as np
import optax
import pytest

import commands
import iclflow as icl
from iclflow.models.base import KNOWN
from iclflow.models.parts import take
from iclflow.units import clock_rate, convert

GOLDEN = Path(os.environ.get("ICLFLOW_GOLDEN", Path(__file__).parents[3] / "shared" / "golden"))
NAMES = ("separate_decay", "merged_momentum", "separate_adam", "separate_adam_decay")
TASK = icl.Task(dim=3, context=10)


def golden_run(name):
    path = GOLDEN / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no golden runs at {GOLDEN}; set ICLFLOW_GOLDEN")
    with np.load(path) as file:
        arrays = dict(file)
    return path, json.loads(str(arrays["meta"])), arrays


@pytest.mark.parametrize("engine", ["moments", "tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_optimisers_and_decay_repeat_the_golden_runs(name, engine, quiet):
    path, meta, arrays = golden_run(name)
    record = KNOWN[meta["model"]]
    model = record(**{field: meta[field] for field in record.model_fields if field in meta})
    start = {key.removeprefix("weights."): array for key, array in arrays.items() if key.startswith("weights.")}
    task = icl.Task(normalize=meta["normalize"], out_dim=meta["out_dim"])
    run = icl.train(
        task, model, data=str(path), weights=start, lr=meta["lr"], steps=meta["steps"], engine=engine,
        optimizer=meta["optimizer"], weight_decay=meta["weight_decay"],
    )  # fmt: skip
    loss = arrays["loss"]
    assert np.abs(run.loss.values - loss).max() <= 1e-10 * loss[0]
    final = {key.removeprefix("final_weights."): a for key, a in arrays.items() if key.startswith("final_weights.")}
    for key, array in take(model, final, run.task, "all").items():  # only what reaches the output
        ours = take(model, run.final_weights, run.task, "all")[key]
        assert np.abs(ours - array).max() <= 1e-9 * max(1, np.abs(array).max())


def gradient_of(model, weights, sequences, task):
    """By central differences of a loss that is written out here."""

    def loss(w):
        errors = []
        for s in sequences:
            hidden = s.copy()
            hidden[-1, task.dim :] = 0
            errors.append(np.asarray(model.predict(w, hidden, task)) - s[-1, task.dim :])
        return np.mean(np.square(errors))

    slopes = {}
    for name, array in weights.items():
        slopes[name] = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            up, down = ({**weights, name: array.copy()} for _ in range(2))
            up[name][index] += 1e-5
            down[name][index] -= 1e-5
            slopes[name][index] = (loss(up) - loss(down)) / 2e-5
    return slopes


@pytest.mark.parametrize(("muon", "beta"), [("stacked", 0.0), ("heads", 0.0), ("stacked", 0.9), ("heads", 0.5)])
def test_muon_moves_along_the_orthogonal_factor_of_its_trace(muon, beta):
    """Three steps by NumPy's decomposition and gradients by differences."""
    task, model = icl.Task(dim=2, context=4), icl.Separate(heads=2, rank=2)
    settings = {"init": 0.5, "init_law": "random", "samples": 5, "lr": 0.03, "weight_decay": 0.2}
    run = icl.train(task, model, optimizer="muon", muon=muon, beta=beta, steps=3, **settings)
    weights, sequences = {n: a.copy() for n, a in run.initial_weights.items()}, icl.sample(task, 5)
    where = model.trained(task, "all")
    trace = dict.fromkeys(weights, 0.0)
    for _ in range(3):
        slopes = gradient_of(model, weights, sequences, task)
        for name, index in where.items():
            trace[name] = beta * trace[name] + slopes[name][index]
            matrices = trace[name] if muon == "heads" else trace[name].reshape(-1, trace[name].shape[-1])
            u, s, vt = np.linalg.svd(matrices, full_matrices=False)
            kept = (s > 1e-12 * s.max(axis=-1, keepdims=True))[..., None, :]
            factor = ((u * kept) @ vt).reshape(trace[name].shape)
            weights[name][index] = weights[name][index] - 0.03 * (factor + 0.2 * weights[name][index])
    for name, index in where.items():
        np.testing.assert_allclose(run.final_weights[name][index], weights[name][index], atol=1e-6)


def test_an_optax_optimiser_takes_its_own_steps_is_saved_and_resumed(tmp_path):
    """`optax.sgd` with momentum is our momentum; with a schedule it can be cut in two."""
    model, settings = icl.Separate(heads=2), {"init": 0.3, "samples": 100, "seed": 3}
    ours = icl.train(TASK, model, optimizer="momentum", lr=0.01, steps=60, **settings)
    theirs = icl.train(TASK, model, optimizer=optax.sgd(0.01, momentum=0.9), steps=60, **settings)
    np.testing.assert_allclose(theirs.loss.values, ours.loss.values, rtol=1e-12)
    rule = optax.adamw(optax.linear_schedule(0.02, 0.001, 50), weight_decay=0.1)
    whole = icl.train(TASK, model, optimizer=rule, steps=60, **settings)
    icl.train(TASK, model, optimizer=rule, steps=25, out=tmp_path / "run", **settings)
    with pytest.raises(icl.BadInput, match="optimizer: must be the one that this run was trained with"):
        icl.resume(tmp_path / "run", steps=1, optimizer=optax.sgd(0.1))
    assert icl.load(tmp_path / "run").training.optimizer.startswith("optax:")
    with pytest.raises(icl.BadInput, match="optimizer: give the object again"):
        icl.resume(tmp_path / "run", steps=35)
    again = icl.resume(tmp_path / "run", steps=35, optimizer=rule)
    np.testing.assert_array_equal(again.loss.values, whole.loss.values)
    assert whole.time.attrs["long_name"] == "learning rate x step"


def test_momentum_runs_on_the_clock_of_the_flow():
    """A small step: the drop comes at the time of plain descent, not ten times earlier."""
    task, model = icl.Task(dim=2, context=20), icl.Merged(heads=2)
    half = lambda run: float(run.time.values[np.argmax(run.loss.values < 0.5)])
    plain = icl.train(task, model, lr=0.02, steps=3000, init=0.05)
    heavy = icl.train(task, model, lr=0.0005, steps=12000, init=0.05, optimizer="momentum")
    assert half(heavy) == pytest.approx(half(plain), rel=0.05)


def test_the_flow_with_decay_is_the_limit_of_small_steps():
    model, settings = icl.Separate(heads=3), {"init": 0.3, "weight_decay": 0.2}
    flow = icl.train(TASK, model, time=60.0, tolerance=1e-10, **settings)
    gaps = []
    for lr in (0.1, 0.05):
        run = icl.train(TASK, model, lr=lr, steps=round(60 / (clock_rate(TASK, model) * lr)), **settings)
        gaps.append(abs(run.loss.values[-1] - np.interp(run.time.values[-1], flow.time.values, flow.loss.values)))
    assert gaps[1] < 0.6 * gaps[0]
    assert gaps[1] < 5e-3
    free = icl.train(TASK, model, time=60.0, init=0.3)
    assert abs(free.loss.values[-1] - flow.loss.values[-1]) > 0.01


def test_decay_means_the_same_in_every_normalisation():
    """[`normalisation`] lr x weight_decay stays; the two runs agree step by step."""
    task, model = icl.Task(dim=3, context=10, normalize="none"), icl.Separate(heads=2)
    there = convert(task, model, "context", lr=0.01, init=0.1, weight_decay=0.5)
    assert there.lr * there.weight_decay == pytest.approx(0.01 * 0.5)
    run = lambda task, lr, init, decay: icl.train(
        task, model, samples=50, lr=lr, init=init, weight_decay=decay, steps=100
    )
    ours = run(task, 0.01, 0.1, 0.5)
    theirs = run(task.replace(normalize="context"), there.lr, there.init, there.weight_decay)
    np.testing.assert_allclose(ours.loss.values, theirs.loss.values, rtol=1e-10)


def test_frozen_blocks_do_not_decay():
    run = icl.train(
        TASK, icl.Merged(heads=2), init=0.3, init_law="random", samples=50, lr=0.01, steps=20, weight_decay=1.0,
        freeze_vectors=True,
    )  # fmt: skip
    start, end = run.initial_weights, run.final_weights
    np.testing.assert_array_equal(start["value"][:, 3, :3], end["value"][:, 3, :3])
    assert np.all(np.abs(end["value"][:, 3, 3]) != np.abs(start["value"][:, 3, 3]))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--weight-decay", "-1"], "weight_decay: '-1' must be at least 0"),
        (["--weight-decay", "0.1"], "time: must be given, because theory forecasts no drop"),
        (["--weight-decay", "0.1", "--lr", "0.1"], "steps: must be given with weight_decay"),
        (["--optimizer", "rmsprop"], "optimizer: 'rmsprop' must be one of sgd, momentum, adam, muon"),
        (["--optimizer", "momentum", "--beta", "1"], "beta: '1' must be less than 1"),
        (["--beta", "0.5"], "beta: belongs to momentum, adam and muon"),
        (["--muon", "rows"], "muon: 'rows' must be one of"),
    ],
)
def test_bad_settings_are_one_line(flags, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = commands.call(capsys, "train", *flags)
    assert code == 2
    assert err.startswith(f"iclflow: {line}")
    assert not list(tmp_path.iterdir())


def test_muon_needs_matrices():
    class Vector(icl.Model):
        def shapes(self, task):
            return {"a": (task.dim,)}

        def predict(self, weights, sequence, task):
            return sequence[-1:, : task.dim] @ weights["a"]

    with pytest.raises(icl.BadInput, match="optimizer: 'muon' needs matrices"):
        icl.train(TASK, Vector(), samples=20, lr=0.1, steps=2, optimizer="muon")
    with pytest.raises(icl.BadInput, match="lr: belongs to the optimiser that was given"):
        icl.train(TASK, icl.Merged(), samples=20, lr=0.1, steps=2, optimizer=optax.sgd(0.1))
    with pytest.raises(icl.BadInput, match="must be a name or an optax.GradientTransformation"):
        icl.train(TASK, icl.Merged(), samples=20, lr=0.1, steps=2, optimizer=3)
