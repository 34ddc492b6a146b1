"""The command of the public code runs unchanged: flags, abbreviations, conventions, files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from iclflow.cli import public
from iclflow.cli.public import experiment_of, file_name, main, parser

ROOT = Path(__file__).parents[1]
PUBLISHED = {
    "--model attnM --head 8 --init 1e-6": "attnM_head8_D4_R1_P5000_N32_seed10.txt",
    "--model mlp --cubic_feat --head 8 --init 1e-6": "mlp_head8_D4_R1_P5000_N32_seed10.txt",
    "--model attnS --head 5 --init 1e-2 --epoch 10001 --lr 0.02": "attnS_head5_D4_R1_P5000_N32_seed10.txt",
    "--model attnS --head 9 --KQ_dim 4 --in_dim 8 --seq_len 32 --init 5e-3 --trainset_size 80000 --epoch 20001"
    " --lr 0.02": "attnS_head9_D8_R4_P80000_N32_seed10.txt",
    "--model attnM --head 8 --init 1e-6 --softmax": "attnM_head8_D4_R1_P5000_N32_seed10.txt",
    "--model attnM --icl 0.4 --head 8 --testset 5000 --init 1e-6 --white_cov --lr 0.0005 --epoch 4001":
        "attnM_head8_D4_R1_P5000_N32_seed10_icl0.4.txt",
}  # fmt: skip


def run(line: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    return end.value.code


@pytest.mark.parametrize("line", PUBLISHED)
def test_published_commands_are_understood_and_named(line):
    args = parser().parse_args(line.split())
    experiment_of(args)
    assert file_name(args) == PUBLISHED[line]


def test_its_conventions_are_kept():
    args = parser().parse_args(["--model", "attnS", "--head", "3", "--rank", "2", "--seed", "7"])
    settings = experiment_of(args).flat()
    expected = {
        "model": "separate", "heads": 3, "rank": 2, "dim": 4, "context": 31, "normalize": "none", "prefix_loss": False,
        "spectrum": "linear", "basis": "random", "init_law": "public", "init": 0.01, "whiten": True, "samples": 5000,
        "steps": 6000, "lr": 0.001, "seed": 7, "task_seed": 7, "optimizer": "sgd", "batch": None,
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected
    varied = experiment_of(parser().parse_args(["--vary_len", "--white_cov"])).flat()
    assert (varied["prefix_loss"], varied["normalize"], varied["spectrum"]) == (True, "tokens", "white")


def test_it_writes_one_loss_per_epoch_as_training_gives_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = "--model attnM --head 2 --init 0.1 --epoch 301 --lr 0.005 --trainset 200"
    assert run(line) == 0
    [file] = tmp_path.iterdir()
    losses = np.loadtxt(file)
    experiment = experiment_of(parser().parse_args(line.split()))
    twin = icl.train(
        experiment.task, experiment.model, samples=200, init=0.1, init_law="public", lr=0.005, steps=300, seed=10
    )
    assert losses.shape == (301,)
    np.testing.assert_allclose(losses, twin.loss.values, rtol=1e-12)
    assert "Epoch [0/301], Loss: " in capsys.readouterr().out


def test_with_a_test_set_the_columns_are_train_in_weight_in_context(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--model attnM --icl 0 --head 2 --init 1e-2 --lr 0.002 --epoch 400 --trainset 500 --testset 300") == 0
    [file] = tmp_path.iterdir()
    assert file.name.endswith("_icl0.0.txt")
    train, in_weight, in_context = np.loadtxt(file).T
    assert train[-1] < 0.3 * train[0]
    assert in_weight[-1] < 0.3 * in_weight[0]  # it has learned in weights,
    assert in_context[-1] > in_context[0]  # and nothing in context


@pytest.mark.parametrize("model", ["attnM", "attnS", "mlp"])
def test_value_weights_are_tracked_for_every_model(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(f"--model {model} --head 3 --init 0.1 --lr 0.01 --epoch 50 --trainset 100 --track_value") == 0
    [file] = tmp_path.iterdir()
    table = np.loadtxt(file)
    assert file.name.endswith("_value.txt")
    assert table.shape == (50, 4)
    assert np.abs(np.diff(table[:, 1:], axis=0)).max() > 0


def test_show_leaves_a_figure_where_there_is_no_screen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(public, "has_screen", lambda: False)
    assert run("--model attnM --head 2 --epoch 20 --trainset 100 --show --track") == 0
    [file] = tmp_path.iterdir()
    assert file.suffix == ".png"


def test_an_earlier_file_of_the_same_name_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for init in ("0.1", "0.2", "0.3"):
        assert run(f"--head 2 --epoch 10 --trainset 100 --init {init}") == 0
    names = sorted(f.name for f in tmp_path.iterdir())
    assert names == [f"attnM_head2_D4_R1_P100_N32_seed10{part}.txt" for part in (".1", ".2", "")]
    firsts = [np.loadtxt(tmp_path / name)[0] for name in names]
    assert len(set(firsts)) == 3
    assert run("--head 2 --epoch 10 --trainset 100 --init 0.3") == 0  # the same again leaves nothing new
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--icl c", "icl: 'c' must be a number between 0 and 1"),
        ("--icl 1.5", "icl: '1.5' must be"),
        ("--epoch 0", "epoch: '0'"),
        ("--model attn", "model: invalid choice"),
        ("--cubic_feat", "cubic_feat: belongs to --model mlp"),
        ("--model mlp --softmax", "softmax"),
        ("--lr -1", "lr: '-1' must be"),
        ("--in 4", "ambiguous option"),
        ("--colour red", "unrecognized arguments"),
        ("--init -1", "init: '-1' must be"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(line, word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line) == 2
    error = capsys.readouterr().err
    assert word in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def losses_of(line: str, folder: Path) -> np.ndarray:
    assert run(f"{line} --trainset 40 --seq_len 6") == 0
    [file] = folder.iterdir()
    return np.loadtxt(file, ndmin=2)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sequences(line: str) -> np.ndarray:
    """The sample that a line trains on."""
    experiment = experiment_of(parser().parse_args(f"{line} --trainset 40 --seq_len 6".split()))
    return icl.sample(experiment.task, 40, seed=10)


def test_a_single_epoch_is_a_single_loss(here):
    losses = losses_of("--head 2 --init 0 --epoch 1", here)
    assert losses.shape == (1, 1)
    assert losses[0, 0] == pytest.approx(np.mean(sequences("")[:, -1, 4] ** 2), rel=1e-12)


def test_without_a_learning_rate_nothing_moves(here):
    table = losses_of("--model attnS --head 2 --init 0.3 --epoch 7 --lr 0 --track", here)
    assert table.shape == (7, 3)
    assert (table == table[0]).all()


def test_zero_weights_stay_zero_without_softmax(here):
    losses = losses_of("--head 2 --init 0 --epoch 5 --lr 0.1", here)
    np.testing.assert_allclose(losses[:, 0], np.mean(sequences("")[:, -1, 4] ** 2), rtol=1e-12)


def test_zero_weights_learn_the_mean_with_softmax(here):
    """Softmax of zero scores is uniform, so value weights have a gradient at once: twin by hand."""
    losses = losses_of("--head 1 --init 0 --epoch 4 --lr 0.5 --softmax", here)[:, 0]
    data = sequences("").astype(np.float32).astype(float)
    target, tokens = data[:, -1, 4], data.copy()
    tokens[:, -1, 4] = 0
    mean, row, expected = tokens.mean(axis=1), np.zeros(5), []
    for _ in range(4):
        error = mean @ row - target
        expected.append(np.mean(error**2))
        row -= 0.5 * 2 * error @ mean / len(mean)
    np.testing.assert_allclose(losses[:2], expected[:2], rtol=1e-5)
    assert losses[3] < losses[0]


def test_a_rank_above_the_dimension_is_that_many_rows(here):
    """A slow twin of the public forward pass, on the same sample and weights."""
    line = "--model attnS --head 2 --rank 6 --init 2 --epoch 2 --lr 1e-3"
    losses = losses_of(line, here)[:, 0]
    experiment = experiment_of(parser().parse_args(line.split()))
    weights = icl.train(
        experiment.task, experiment.model, data=None, samples=40, init=2.0, init_law="public", lr=1e-3, steps=1, seed=10
    ).initial_weights
    assert weights["key"].shape == (2, 6, 5)
    assert losses[0] == pytest.approx(attention_loss(weights, sequences(line)), rel=1e-12)


def attention_loss(weights: dict[str, np.ndarray], data: np.ndarray) -> float:
    """Mean squared error of linear attention without a scale, sequence by sequence."""
    errors = []
    for sequence in data:
        seen = sequence.copy()
        seen[-1, 4] = 0
        out = 0.0
        for value, key, query in zip(weights["value"], weights["key"], weights["query"], strict=True):
            scores = (seen @ key.T) @ (query @ seen[-1])
            out += (value @ (scores @ seen))[-1]
        errors.append((out - sequence[-1, 4]) ** 2)
    return float(np.mean(errors))


def test_prefixes_of_in_weight_sequences_have_random_targets(here):
    """From zero weights the loss is the mean square of every label behind the first."""
    losses = losses_of("--head 2 --init 0 --epoch 2 --vary_len --icl 0", here)[:, 0]
    y = sequences("--vary_len --icl 0")[:, 1:, 4]
    assert losses[0] == pytest.approx(np.mean(y**2), rel=1e-12)
    assert np.mean(y[:, :-1] ** 2) == pytest.approx(1, abs=0.3)


def test_an_mlp_with_two_outputs_reads_the_last_label(here):
    """The public feature holds the last label; a slow twin trains the network by hand."""
    line = "--model mlp --head 3 --out_dim 2 --init 0.3 --epoch 4 --lr 0.01"
    losses = losses_of(line, here)[:, 0]
    experiment = experiment_of(parser().parse_args(f"{line} --trainset 40 --seq_len 6".split()))
    data = sequences(line)
    from iclflow.data.spectrum import covariances
    from iclflow.models.initial import initial_weights

    weights = initial_weights(experiment.model, experiment.task, "public", 0.3, 10, covariances(experiment.task))
    first, second = weights["first"], weights["second"]
    beta = np.einsum("pn,pnd->pd", data[:, :-1, -1], data[:, :-1, :4])
    z, target = (beta[:, :, None] * data[:, -1, None, :4]).reshape(40, 16), data[:, -1, 4:]
    for loss in losses:
        error = z @ first.T @ second.T - target
        assert loss == pytest.approx(np.mean(error**2), rel=1e-12)
        slope = 2 * error / error.size
        steps = second.T @ slope.T @ z, slope.T @ (z @ first.T)
        first, second = first - 0.01 * steps[0], second - 0.01 * steps[1]


def test_the_file_at_the_root_is_that_command(tmp_path):
    line = [sys.executable, str(ROOT / "train.py"), "--icl", "c"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "train.py: icl: 'c' must be a number between 0 and 1\n")


def test_it_trains_without_xarray_and_dask():
    script = (
        "import sys, iclflow.training.seeds; assert not {'xarray', 'dask', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
