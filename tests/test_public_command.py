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
        ("--epoch 1", "epoch: '1'"),
        ("--model attn", "model: invalid choice"),
        ("--cubic_feat", "cubic_feat: belongs to --model mlp"),
        ("--model mlp --softmax", "softmax"),
        ("--model attnS --rank 9", "rank: 9"),
        ("--lr -1", "lr: '-1' must be"),
        ("--in 4", "ambiguous option"),
        ("--colour red", "unrecognized arguments"),
        ("--vary_len --icl 0", "prefix_loss"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(line, word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line) == 2
    error = capsys.readouterr().err
    assert word in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_file_at_the_root_is_that_command(tmp_path):
    line = [sys.executable, str(ROOT / "train.py"), "--icl", "c"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "train.py: icl: 'c' must be a number between 0 and 1\n")
