"""Bad sweep files: exit code 2, one line that names the key, nothing written, JAX never loaded."""

import random
import subprocess
import sys

import pytest

from iclflow.cli import main
from reliability.harness import count

GOOD = """\
seeds = 2
[base]
samples = 40
lr = 0.05
steps = 20
[axes]
init = [0.1, 0.2]
"""
BASE, AXES = "[base]\n", "[axes]\n"
BY_HAND = [
    # the file as a whole
    ("seeds = [", "is not TOML"), ("= 3", "is not TOML"), ("seeds = 1\nseeds = 2", "is not TOML"),
    ("\x00", "is not TOML"), ("[base\n", "is not TOML"), ("[base]\n[base]\n", "is not TOML"),
    ("[bas]\ndim = 3", "bas"), ("[[axes]]\ndim = [3]", "axes"), ("base = 3", "base"), ("axes = [1]", "axes"),
    ("lr = 0.1", "lr"), ("dim = 3", "dim"), ("[zip]\ndim = [1]", "zip"), ("zip = 3", "zip"),
    # seeds, points, summary
    ("seeds = 0", "seeds"), ("seeds = -3", "seeds"), ("seeds = 1.5", "seeds"), ("seeds = 'x'", "seeds"),
    ("seeds = []", "seeds"), ("seeds = [1, 1]", "seeds"), ("seeds = [-1]", "seeds"), ("seeds = true", "seeds"),
    ("seeds = [0.5]", "seeds"), ("seeds = 100000000", "seeds"), ("seeds = { from = 3, to = 1, step = 1 }", "seeds"),
    ("points = 1", "points"), ("points = 'some'", "points"), ("points = 2.5", "points"),
    ("points = 'all'\n[base]\ndim = 2", "points"), ("summary = 1", "summary"),
    # base
    (f"{BASE}dims = 3", "dims"), (f"{BASE}dim = 0", "dim"), (f"{BASE}dim = 2.5", "dim"), (f"{BASE}dim = 'x'", "dim"),
    (f"{BASE}dim = [2, 3]", "dim"), (f"{BASE}dim = {{ a = 1 }}", "dim"), (f"{BASE}dim = 2020-01-01", "dim"),
    (f"{BASE}seed = 3", "seed"), (f"{BASE}seeds = 3", "seeds"), (f"{BASE}model = 'mixed'", "model"),
    (f"{BASE}model = 'mlp'\nrank = 2", "rank"), (f"{BASE}rank = 9", "rank"), (f"{BASE}init = 0", "init"),
    (f"{BASE}init = nan", "init"), (f"{BASE}lr = inf", "lr"), (f"{BASE}samples = 1", "samples"),
    (f"{BASE}samples = -inf", "samples"), (f"{BASE}spectrum = 'pink'", "spectrum"),
    (f"{BASE}spectrum = [0.5, -1.0]", "spectrum"), (f"{BASE}spectrum = 'nowhere.npy'", "spectrum"),
    (f"{BASE}data = 'nowhere.npz'", "data"), (f"{BASE}steps = 5\ntime = 3.0", "time"),
    (f"{BASE}softmax = true\nengine = 'flow'", "engine"), (f"{BASE}query_noise = true", "query_noise"),
    # axes
    (f"{AXES}dim = 3", "dim"), (f"{AXES}dim = []", "dim"), (f"{AXES}dim = [2, 2]", "dim"),
    (f"{AXES}dim = [2, 0]", "dim"), (f"{AXES}rnk = [1]", "rnk"), (f"{AXES}seed = [1, 2]", "seed"),
    (f"{AXES}rank = [1, 2, 9]", "rank"), (f"{AXES}dim = {{ from = 1 }}", "dim.to"),
    (f"{AXES}dim = {{ from = 1, to = 3 }}", "dim.count"), (f"{AXES}dim = {{ from = 3, to = 1, step = 1 }}", "dim.to"),
    (f"{AXES}dim = {{ from = 1, to = 3, step = 0 }}", "dim.step"),
    (f"{AXES}dim = {{ from = 1, to = 3, step = 1, by = 2 }}", "dim.by"),
    (f"{AXES}init = {{ from = 0.0, to = 1.0, count = 3, log = true }}", "init.from"),
    (f"{AXES}init = {{ from = 0.1, to = 1.0, count = 3, log = 1 }}", "init.log"),
    (f"{AXES}init = {{ from = 0.1, to = 1.0, count = 1 }}", "init.count"),
    (f"{AXES}init = {{ from = 0.1, to = inf, count = 3 }}", "init.to"),
    (f"{AXES}context = {{ from = 1, to = 3, count = 9, log = true }}", "context.count"),
    (f"{AXES}init = {{ from = 0.0, to = 1.0, step = 1e-9 }}", "init.step"),
    (f"{BASE}dim = 2\n{AXES}dim = [2, 3]", "dim"),
    # numbers that no float, or no array, has room for
    (f"{AXES}init = {{ from = 1.0, to = 1e308, step = 1e-300 }}", "init.to"),
    (f"{AXES}init = {{ from = 1.0, to = 1e299, step = 1e-299 }}", "init.step"),
    (f"{AXES}init = {{ from = -1e308, to = 1e308, count = 3 }}", "init.from"),
    (f"{AXES}init = {{ from = 1, to = {10**400}, count = 3 }}", "init.to"),
    (f"{AXES}samples = {{ from = 10, to = {10**299}, count = 3, log = true }}", "samples"),
    (f"{BASE}samples = {10**400}", "samples"), (f"{BASE}samples = 1e300", "samples"),
    (f"{BASE}dim = {10**400}", "dim"), (f"{AXES}context = [5, {10**400}]", "context"),
    (f"{BASE}spectrum = [0.5, {10**400}]", "spectrum"), (f"seeds = {10**400}", "seeds"),
    (f"{BASE}samples = 0x{16**5000:x}", "samples"), (f"{BASE}samples = {'9' * 5000}", "is not TOML"),
    # zipped axes
    ("[[zip]]\n", "zip"), ("[[zip]]\nlr = [0.1, 0.2]\nsteps = [5]", "steps"), ("[[zip]]\nlr = 0.1", "lr"),
    ("[[zip]]\nlr = [0.1, 0.2]\n[[zip]]\nlr = [0.1, 0.2]", "lr"), ("[[zip]]\nlrr = [0.1]", "lrr"),
    (f"{AXES}lr = [0.1, 0.2]\n[[zip]]\nlr = [0.1, 0.2]", "lr"),
    ("[[zip]]\nlr = [0.1, 0.1]\nsteps = [5, 6]", "lr"),
]  # fmt: skip


def refused(capsys, directory, text: str, *flags: str) -> str:
    """The one line with which a sweep file is refused; fails if it is not refused as it should be."""
    file = directory / "bad.toml"
    file.write_text(text)
    before = sorted(directory.rglob("*"))
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(file), "--out", str(directory / "out"), *flags])
    out, err = capsys.readouterr()
    assert left.value.code == 2, (text, err)
    assert out == ""
    assert err.startswith("iclflow: ")
    assert err.count("\n") == 1, err
    assert sorted(directory.rglob("*")) == before
    return err


def test_sixty_were_written_by_hand():
    assert len(BY_HAND) >= 60


@pytest.mark.parametrize(("text", "key"), BY_HAND)
def test_a_bad_file_is_refused_in_a_line_that_names_the_key(text, key, capsys, tmp_path):
    assert key in refused(capsys, tmp_path, text)


NAMES = {"dim": int, "context": int, "heads": int, "steps": int, "samples": int, "init": float, "lr": float}


def broken(dice: random.Random) -> tuple[str, str]:
    """A good file with one thing wrong in it, and the key that is wrong."""
    name = dice.choice(sorted(NAMES))
    where = dice.choice(["base", "axes"])
    put = lambda value: value if where == "base" else f"[{value}]"
    low = {"samples": dice.randint(-9, 1)}.get(name, -dice.randint(0, 99))
    typo = name[:1] + dice.choice("qxzw") + name[1:]
    number = dice.uniform(0.1, 9)
    kinds = {
        "low": (name, put(low)),
        "text": (name, put(f"'{dice.choice(['a lot', 'none', 'x' * dice.randint(1, 400)])}'")),
        "fraction": (name, put(dice.randint(2, 9) + 0.5)) if NAMES[name] is int else (name, put("nan")),
        "endless": (name, put("-inf")),
        "typo": (typo, put(3)),
        "date": (name, put(f"20{dice.randint(10, 99)}-01-01")),
        "deep": (name, put("[[1]]") if where == "base" else "[[[1]]]"),
        "twice": (name, f"[{number}, {number}]" if NAMES[name] is float else "[7, 7]"),
        "empty": (name, "[]" if where == "axes" else "{}"),
        "range": (name, f"{{ from = {dice.randint(5, 9)}, to = {dice.randint(1, 4)}, step = 1 }}"),
        "unknown part": (name, f"{{ from = 2, to = 4, step = 1, {typo} = 1 }}"),
        "no step": (name, f"{{ from = {number}, to = {number + 1} }}"),
        "seed": (dice.choice(["seed", "seeds"]), put(dice.randint(0, 9))),
        "rank": ("rank", put(dice.randint(5, 99))),
        "word": (dice.choice(["engine", "optimizer", "init_law", "basis"]), put(f"'w{dice.randint(0, 99)}'")),
        "switch": (dice.choice(["softmax", "whiten", "prefix_loss"]), put("'perhaps'")),
    }
    key, value = kinds[dice.choice(sorted(kinds))]
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key} =") or key == "seeds"]
    at = lines.index(f"[{where}]") + 1
    return "\n".join([*lines[:at], f"{key} = {value}", *lines[at:]]) + "\n", key


def test_generated_bad_files_are_refused_too(capsys, tmp_path, measured):
    dice, wanted = random.Random(0), count(300, 300)
    for _ in range(wanted):
        text, key = broken(dice)
        assert key in refused(capsys, tmp_path, text), text
    measured(f"{len(BY_HAND)} by hand and {wanted} generated: exit 2, one line naming the key, nothing written")


def test_flags_are_checked_as_well(capsys, tmp_path):
    assert "workers" in refused(capsys, tmp_path, GOOD, "--workers", "many")
    assert "workers" in refused(capsys, tmp_path, GOOD, "--workers", "-1")
    assert "scheduler" in refused(capsys, tmp_path, GOOD, "--scheduler", "nowhere")


def test_a_bad_file_never_loads_jax_or_dask(tmp_path):
    (tmp_path / "bad.toml").write_text("[axes]\nrank = [1, 9]\n")
    script = (
        "import sys\nfrom iclflow.cli import main\n"
        f"try: main(['sweep', {str(tmp_path / 'bad.toml')!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "except SystemExit as left: assert left.code == 2\n"
        "assert not {'jax', 'dask', 'distributed', 'xarray', 'zarr'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
