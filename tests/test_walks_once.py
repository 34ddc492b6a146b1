"""Data walk once: read once, summed once, and what follows training asks the run instead of the sample."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

import commands
import iclflow as icl
from iclflow.data import own, sampled
from iclflow.results import tensors
from iclflow.system.lru_cache import LRUCache

TASK = icl.Task(dim=3, context=10)
HALVES = 2  # of a user's own data, which say once whether vector blocks learn more than noise
for module in ("prediction.sample", "results.inputs", "training.plan"):  # loaded before anything in them is counted
    import_module(f"iclflow.{module}")


@pytest.fixture
def counted(monkeypatch):
    """How often data files are read, weight files are read and samples are summed."""
    count = {"data": 0, "weights": 0, "sums": 0}

    def counting(module, name, what):
        plain = getattr(module, name)

        def call(*arguments, **options):
            count[what] += 1
            return plain(*arguments, **options)

        for loaded in list(sys.modules.values()):
            if getattr(loaded, "__name__", "").startswith("iclflow") and getattr(loaded, name, None) is plain:
                monkeypatch.setattr(loaded, name, call)

    monkeypatch.setattr(sampled, "RECENT", LRUCache(4, 2**26))
    counting(own, "read_npz", "data")
    counting(tensors, "read_tensors", "weights")
    counting(sampled, "sum_moments", "sums")
    return count


def test_the_command_reads_data_and_weights_once_and_sums_once(tmp_path, capsys, counted):
    np.savez(tmp_path / "d.npz", sequences=icl.sample(TASK, 300))
    start = icl.train(TASK, icl.Separate(heads=2), init=0.1, time=1.0)
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(a) for name, a in start.final_weights.items()}, tmp_path / "w.safetensors")
    counted.update(dict.fromkeys(counted, 0))
    files = ["--data", str(tmp_path / "d.npz"), "--weights", str(tmp_path / "w.safetensors")]
    code, out, err = commands.call(
        capsys, "train", *files, "--lr", "0.1", "--steps", "50", "--out", str(tmp_path / "run")
    )
    assert code == 0, err
    assert "mean gap" in out
    assert counted == {"data": 1, "weights": 1, "sums": 1 + HALVES}


@pytest.mark.parametrize("data", ["sample", "array", "tokens"])
def test_compare_and_figures_neither_draw_nor_sum_again(data, counted):
    more = {"samples": 300} if data != "array" else {"data": icl.sample(TASK, 300)}
    more |= {"engine": "tokens"} if data == "tokens" else {}
    task = None if data == "array" else TASK
    run = icl.train(task, icl.Separate(heads=2), init=0.1, lr=0.1, steps=50, **more)
    summed = counted["sums"]
    found = icl.compare(run)
    assert found.source == "sample"
    icl.figures.loss_curve(run)
    icl.probe(run, shifts=False)
    assert summed == (1 + HALVES if data == "array" else 1)
    assert counted["sums"] == summed + (data == "tokens")  # that engine sums the label blocks alone
    assert counted["data"] == 0


def test_another_model_on_the_same_sample_sums_nothing(counted):
    """Whatever the sample depends on makes it another one."""
    same = {"samples": 217, "init": 0.1, "lr": 0.1, "steps": 5, "seed": 4}
    model = icl.Separate(heads=2)
    train = lambda task=TASK, model=model, **more: icl.train(task, model, **{**same, **more})
    first, second = train(), train(model=icl.Separate(heads=4, rank=2))
    assert counted["sums"] == 1
    assert np.array_equal(first.arrays("moments")["left"], second.arrays("moments")["left"])
    others = ({"seed": 5}, {"samples": 218}, {"whiten": False}, {"task": TASK.replace(context=11)},
              {"task": TASK.replace(task_seed=1)}, {"data_seed": 6})  # fmt: skip
    for number, other in enumerate(others, start=2):
        train(**other)
        assert counted["sums"] == number, other
    assert float(train(seed=5, data_seed=4).loss[0]) == pytest.approx(float(first.loss[0]), rel=1e-2)


def test_the_moments_of_a_run_are_those_of_its_sequences(tmp_path):
    """Against a sum over sequences that is written here; also after saving, for every seed."""
    run = icl.train(TASK, icl.Merged(heads=2), init=0.1, samples=60, lr=0.01, steps=5, seeds=2, out=tmp_path / "run")
    for found in (run, icl.load(tmp_path / "run")):
        for seed in (0, 1):
            sequences = icl.sample(TASK, 60, seed)
            x, y = sequences[:, :-1, :3], sequences[:, :-1, 3]
            beta = np.einsum("pn,pnd->pd", y, x) / 10
            psi = np.einsum("pd,pe->pde", beta, sequences[:, -1, :3]).reshape(60, 9)
            moments = found.select(seed).moments
            np.testing.assert_allclose(moments["left"], psi.T @ psi / 60, atol=1e-14)
            np.testing.assert_allclose(moments["cross"][0], sequences[:, -1, 3] @ psi / 60, atol=1e-14)


def test_own_data_is_compared_with_its_own_landscape_also_from_memory():
    """Labels three times as large: the population of the default task would be off by a factor of nine."""
    sequences = icl.sample(TASK, 2000)
    sequences[:, :, 3] *= 3
    run = icl.train(data=sequences, model=icl.Merged(heads=3), init=0.01, lr=0.002, steps=6000)
    assert icl.compare(run).mean_gap < 0.02
    assert icl.compare(run).prediction.levels[0] == pytest.approx(run.loss.values[0], rel=1e-3)


def test_jax_keeps_the_precision_of_the_caller():
    code = (
        "import jax, jax.numpy as jnp, iclflow as icl\n"
        "run = icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=.1, samples=50, lr=.1, steps=20, seeds=3)\n"
        "soft = icl.train(icl.Task(dim=2), icl.Merged(heads=2, softmax=True), init=.1, samples=50, lr=.1, steps=20)\n"
        "icl.probe(soft, shifts=False)\n"
        "icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=.1, time=3.)\n"
        "print(jnp.ones(2).dtype, jax.config.jax_enable_x64, run.loss.dtype)\n"
        "print(abs(run.loss.values - run.loss.values.astype('float32')).max() > 0)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["float32 False float64", "True"], done.stderr
