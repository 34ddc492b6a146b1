"""The command line: exit codes, one line for bad input, nothing written, no slow imports."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import iclflow as icl
from commands import call

SMALL = [
    "train", "--model", "merged", "--heads", "2", "--dim", "2", "--context", "4", "--samples", "20", "--lr", "0.05",
    "--steps", "10",
]  # fmt: skip


def test_a_run_is_made_saved_and_reported_in_one_line(capsys, tmp_path):
    code, out, err = call(capsys, *SMALL, "--out", tmp_path / "a")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'a'}: ok; loss ")
    assert icl.load(tmp_path / "a").loss.sizes["step"] == 11


def test_json_is_the_summary(capsys, tmp_path):
    code, out, _ = call(capsys, *SMALL, "--out", tmp_path / "a", "--json")
    summary = json.loads(out)
    assert code == 0
    assert {"status", "final_loss", "steps_done", "engine", "seconds", "config", "versions"} <= set(summary)
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["final_loss"] == summary["final_loss"]


def test_without_out_the_settings_name_the_directory(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(capsys, *SMALL)[0] == 0
    [made] = (tmp_path / "runs").iterdir()
    assert made.name.startswith("merged-")
    code, _, err = call(capsys, *SMALL)
    assert code == 2
    assert "--overwrite" in err
    assert call(capsys, *SMALL, "--overwrite")[0] == 0


BAD = [
    ("--dim 0", "dim: '0' must be at least 1"),
    ("--dim", "--dim: needs a value"),
    ("--hads 3", "--hads: unknown flag or argument; did you mean --heads?"),
    ("--heads x", "heads: 'x' must be a whole number"),
    ("--spectrum pink", "spectrum: 'pink' must be"),
    ("--spectrum 0.5,nan", "spectrum: holds NaN"),
    ("--model mlp --rank 2", "rank: does not apply to model 'mlp'"),
    ("--rank 9", "rank: 9 must be at most dim = 4"),
    ("--model merged --softmax --engine moments --samples 9", "engine: 'moments' must be 'tokens'"),
    ("--steps 5 --time 3", "time: belongs to the flow"),
    ("--data nowhere.npz", "data: 'nowhere.npz' must be an existing file"),
    ("--weights nowhere.npz", "weights: 'nowhere.npz' must be an existing file"),
    ("--config nowhere.toml", "config: 'nowhere.toml' must be an existing file"),
    ("--resume nowhere", "path: 'nowhere' must be a run directory"),
    ("--resume nowhere --lr 3", "lr: a resumed run keeps its settings"),
    ("--lr -1 --steps 3", "lr: '-1' must be greater than 0"),
    ("extra", "extra: unknown flag or argument"),
]


@pytest.mark.parametrize(("flags", "line"), BAD)
def test_bad_input_is_one_line_with_exit_code_two_and_nothing_written(flags, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "train", *flags.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"iclflow: {line}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_that_blows_up_has_exit_code_one_and_names_the_step(capsys, tmp_path):
    code, out, err = call(capsys, *SMALL[:-4], "--lr", 1e4, "--steps", 30, "--init", 1, "--out", tmp_path / "a")
    assert code == 1
    assert "diverged (the loss blew up at step" in out
    assert "exceeds the stable step" in err
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["status"] == "diverged"


def test_a_config_file_is_overridden_by_flags(capsys, tmp_path):
    (tmp_path / "c.toml").write_text('model = "merged"\nheads = 2\ndim = 2\nsamples = 20\nlr = 0.05\nsteps = 10\n')
    code, _, _ = call(capsys, "train", "--config", tmp_path / "c.toml", "--steps", 4, "--out", tmp_path / "a")
    assert code == 0
    config = icl.load(tmp_path / "a").config
    assert (config["steps"], config["heads"], config["lr"]) == (4, 2, 0.05)


def test_a_bad_config_file_is_one_line(capsys, tmp_path):
    for text, line in (
        ("a = [", "is not TOML"),
        ("[task]\ndim = 3", "'task' is a table"),
        ("dims = 3", "dims: unknown name"),
    ):
        (tmp_path / "c.toml").write_text(text)
        code, _, err = call(capsys, "train", "--config", tmp_path / "c.toml")
        assert code == 2
        assert line in err
        assert err.count("\n") == 1


def test_resume_continues_in_place(capsys, tmp_path):
    call(capsys, *SMALL, "--out", tmp_path / "a")
    assert call(capsys, "train", "--resume", tmp_path / "a", "--steps", 5)[0] == 0
    call(capsys, *SMALL[:-1], 15, "--out", tmp_path / "b")
    np.testing.assert_array_equal(icl.load(tmp_path / "a").loss.values, icl.load(tmp_path / "b").loss.values)


def test_save_weights_keeps_them_along_training(capsys, tmp_path):
    call(capsys, *SMALL, "--out", tmp_path / "a")
    call(capsys, *SMALL, "--save-weights", "--out", tmp_path / "b")
    call(capsys, *SMALL, "--seeds", 2, "--out", tmp_path / "c")
    assert icl.load(tmp_path / "a").weights.sizes["record"] == 2
    many = icl.load(tmp_path / "c")
    assert many.weights.sizes["record"] == 2
    np.testing.assert_array_equal(
        many.select(0).final_weights["value"], icl.load(tmp_path / "b").final_weights["value"]
    )
    assert icl.load(tmp_path / "b").weights.sizes["record"] == 11


def test_damaged_runs_have_exit_code_three(capsys, tmp_path):
    call(capsys, *SMALL, "--out", tmp_path / "a")
    (tmp_path / "a" / "weights.safetensors").write_bytes(b"")
    code, _, err = call(capsys, "train", "--resume", tmp_path / "a", "--steps", 5)
    assert code == 3
    assert err.count("\n") == 1


def test_what_does_not_fit_has_exit_code_four(capsys, tmp_path):
    code, _, err = call(
        capsys, "train", "--dim", 300, "--samples", 400, "--lr", 1, "--steps", 1, "--out", tmp_path / "a"
    )
    assert code == 4
    assert err.startswith("iclflow: memory: ")
    assert not (tmp_path / "a").exists()


def test_an_interrupt_anywhere_is_exit_code_130(tmp_path):
    """Also inside the `exec` with which Python makes records; an interpreter that dies of the signal gives -2."""
    file = tmp_path / "interrupted.py"
    file.write_text(
        "from iclflow.cli import commands\n"
        "commands.import_named_model = lambda words: exec('raise KeyboardInterrupt')\n"
        "from iclflow.cli import main\nmain(['theory'])\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "iclflow: interrupted\n")


def test_the_version_is_printed(capsys):
    assert re.fullmatch(r"\d+\.\d+\.\d+", icl.__version__)
    code, out, _ = call(capsys, "--version")
    assert code == 0
    assert out.startswith("iclflow 0.")


HEAVY = {"jax", "xarray", "dask", "diffrax", "optax", "matplotlib"}
SLOW_PARTS_OF_SCIPY = {"scipy.special", "scipy.optimize", "scipy.integrate"}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], HEAVY | {"numpy", "pydantic"}),
        (["train", "--help"], HEAVY | SLOW_PARTS_OF_SCIPY),
        (["train", "--dim", "0"], HEAVY | SLOW_PARTS_OF_SCIPY),
        (["theory"], HEAVY | SLOW_PARTS_OF_SCIPY),
    ],
    ids=["help", "help of a command", "a refusal", "theory"],
)
def test_short_commands_load_only_what_they_need(arguments, unwanted):
    script = (
        "import sys\nfrom iclflow.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"assert not {unwanted!r} & set(sys.modules), {unwanted!r} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("more", [["--samples", "50", "--lr", "0.05", "--steps", "20"], []])
def test_a_run_is_trained_saved_and_drawn_without_xarray(more, tmp_path):
    """The flow, whose theory needs nothing of it, also without SciPy's optimisers, which are slow to load."""
    unwanted = {"xarray", "pandas", "zarr", "dask", "optax", "rich", *([] if more else ["scipy.optimize"])}
    arguments = ["train", "--dim", "2", "--heads", "2", "--out", str(tmp_path / "run"), *more]
    script = (
        "import sys\nfrom iclflow.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit as end: assert end.code == 0\n"
        f"assert not {unwanted!r} & set(sys.modules), {unwanted!r} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "loss.pdf").is_file()


def test_theory_prints_predictions_without_training(capsys):
    code, out, _ = call(capsys, "theory", "--json", "--init", 0.001, "--heads", 5)
    results = json.loads(out)
    assert code == 0
    np.testing.assert_allclose(results["eigenvalues"], [0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(results["plateau_losses"], [1, 0.64057971, 0.37737216, 0.2098046, 0.13599507], atol=1e-8)
    assert results["visited"] == [0, 1, 2, 3, 4]
    assert results["minimum"] == results["plateau_losses"][-1]
    assert results["escape_rate"] == pytest.approx(0.16)
    assert len(results["drop_times"]) == 4
    assert results["escape_time"] > 0


def test_theory_of_large_weights_is_positive_in_order_and_marked(capsys):
    """Times of -1.7, 0.1, -32.3 and so on were printed here without a word."""
    flags = ("theory", "--model", "separate", "--heads", 5, "--init", 1)
    results = json.loads(call(capsys, *flags, "--json")[1])
    names = {"drop_times", "drop_intervals", "reliable", "notes", "heads", "directions", "head_shares", "escape_time"}
    assert names <= set(results)
    times = np.array(results["drop_times"])
    assert (np.diff(times, prepend=0.0) > 0).all()
    low, high = np.array(results["drop_intervals"]).T
    assert ((low < times) & (times < high)).all()
    assert any("not small" in note for note in results["notes"])
    assert min(results["heads"] + results["directions"]) >= 1  # counted from 1
    printed = call(capsys, *flags)[1]
    assert f"head {results['heads'][0]} learns component {results['directions'][0]} and holds" in printed


def test_theory_of_merged_attention_visits_only_the_ends(capsys):
    results = json.loads(call(capsys, "theory", "--model", "merged", "--json", "--init", "1e-6")[1])
    assert results["visited"] == [0, 4]
    assert results["escape_rate"] == pytest.approx(np.sqrt(0.16**2 + 0.09**2 + 0.04**2 + 0.01**2))
    assert len(results["drop_times"]) == 1
    assert "drop_times" not in json.loads(call(capsys, "theory", "--model", "merged", "--json")[1])


def test_theory_prints_a_table_and_refuses_what_it_does_not_know(capsys):
    code, out, _ = call(capsys, "theory", "--heads", 2, "--init", 0.01)
    assert code == 0
    assert "(not visited)" in out
    for flags, line in (
        (["--icl-fraction", 0.5], "icl_fraction: 0.5 must be 1 here"),
        (["--spectrum", "0.5,0"], "spectrum: must have full rank"),
        (["--data", "x.npz"], "data: 'x.npz' must be an existing file"),
        (["--records", 7], "records: '7' has no effect on a forecast"),
    ):
        code, _, err = call(capsys, "theory", *flags)
        assert code == 2
        assert err.startswith(f"iclflow: {line}")


def test_theory_of_softmax_says_whose_levels_it_prints(capsys):
    code, out, _ = call(capsys, "theory", "--softmax", "--init", 0.01)
    assert code == 0
    assert "softmax has no theory of its loss curve" in out
    assert "levels are those of its linear twin" in out
    found = json.loads(call(capsys, "theory", "--softmax", "--json")[1])
    assert (found["reliable"], len(found["notes"]), "drop_times" in found) == (False, 1, False)


def test_the_list_of_commands_says_what_each_one_does(capsys):
    from iclflow.cli import COMMANDS, app

    main_help = " ".join(call(capsys, "--help")[1].replace("│", " ").split())
    for command, summary in COMMANDS.items():
        assert app[command].help.partition("\n")[0] == summary
        assert f"{command} {summary}" in main_help


def helps(capsys):
    """What `--help` of every command and of every command of `sweep` prints."""
    from iclflow.cli import COMMANDS

    for command in [*([name] for name in COMMANDS), *(["sweep", n] for n in ("status", "check", "export", "figure"))]:
        code, out, _ = call(capsys, *command, "--help")
        assert code == 0
        yield command, out


def test_every_flag_of_every_command_is_described(capsys):
    for command, out in helps(capsys):
        assert "[default: False]" not in out
        assert not re.search(r"\bSTR\b", out), command
        for row in re.findall(r"^│ +(?:\* +)?(--?\S.*?|[A-Z]+) *│$", out, flags=re.MULTILINE):
            assert "  " in row or "|" in row or row.endswith(("ADDRESS", "none")), f"{command}: {row}"


def test_the_examples_of_every_command_run(capsys, tmp_path, monkeypatch):
    """What trains for minutes or waits for a browser is only read, not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("time,loss\n" + "".join(f"{t},{np.exp(-t)}\n" for t in range(9)))
    (tmp_path / "ranks.toml").write_text("[base]\ndim = 2\nheads = 2\ntime = 20.0\n[axes]\ninit = [0.1, 0.2]\n")
    examples = {
        " ".join(command): [" ".join(e.split()) for e in re.findall(r"Example: (iclflow .*?)(?:\n\n|\n╭)", out, re.S)]
        for command, out in helps(capsys)
    }
    from iclflow.cli import app

    for name, lines in examples.items():
        assert lines, name
        for line in lines:
            words = line.split()[1:]
            if name in ("reproduce", "verify", "explore", "completion"):
                app.parse_args(words[: words.index(">")] if ">" in words else words, exit_on_error=False)
                continue
            code, _, err = call(capsys, *(word if word != "4" else "0" for word in words))
            assert code == 0, f"{line}: {err}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_flags_and_choices(capsys, shell):
    code, out, _ = call(capsys, "completion", shell)
    assert code == 0
    for word in ("theory", "init-law", "aligned", "weight-decay"):
        assert word in out


def test_help_names_types_choices_and_defaults():
    """In a process of its own: models that other tests define are among the choices here."""
    command = [sys.executable, "-m", "iclflow", "train", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = " ".join(word for word in shown.split() if word != "│")
    assert "STR" not in text.partition("--weights")[0]
    for expected in (
        "--dim INT token dimension D [default: 4]",
        "--init FLOAT scale of the initial weights [default: 0.01]",
        "--basis random|identity",
        "--dtype float32|float64 precision [default: float64]",
        "number of heads H [default: merged 8, mlp 8, separate 5]",
        "--label-noise FLOAT variance of the noise on context labels [default: 0.0]",
        "--seed INT draws sample and initial weights [default: 0]",
    ):
        assert expected in text
    assert "Example: iclflow train" in text


def test_a_long_run_says_how_far_it_is_where_there_is_no_terminal(capsys, tmp_path, monkeypatch):
    from iclflow.system import progress

    quick = ("train", "--model", "merged", "--heads", 2, "--dim", 2, "--lr", 0.1, "--steps", 20, "--no-figure")
    assert call(capsys, *quick, "--out", tmp_path / "a")[2] == ""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    err = call(capsys, *quick, "--out", tmp_path / "b")[2]
    assert "of the time allowed: step 20, loss" in err
