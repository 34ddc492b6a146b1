"""What would not fit into memory is refused in one line, before anything is allocated or drawn."""

import struct
import subprocess
import sys
import tomllib
import zipfile

import numpy as np
import pytest

from commands import call
from iclflow.config import Task, Training
from iclflow.data.own import read_own_data
from iclflow.data.sequences import Law, Sample, over_chunks
from iclflow.errors import BadInput, NoRoom
from iclflow.system.files import read_npy, read_text, regular_file
from reliability.harness import count

OVERSIZED = [
    ("--dim 1000000000", 4, "of which matrices are made|weights"),
    ("--dim 30000", 4, "weights"),
    ("--samples 1e18", 2, "samples: '1e18' must be at most 1e+12"),
    ("--samples 1e11", 4, "samples 100000000000"),
    ("--samples 1e400", 2, "samples"),
    ("--steps 1000000000000000000 --lr 0.1", 2, "steps"),
    ("--steps 1000000000000 --lr 0.1", 4, "steps 1000000000000, after each of which a loss is kept"),
    ("--heads 100000000000", 4, "weights"),
    ("--layers 1000000000", 4, "weights"),
    ("--out-dim 1000000", 4, "weights"),
    ("--context 1000000000000", 4, "context"),
    ("--softmax --samples 1e10 --steps 3 --lr 0.1", 4, "tokens engine"),
    ("--tasks 100000000000", 4, "task vectors"),
    ("--test-samples 100000000000 --samples 100 --steps 3 --lr 0.1", 4, "samples"),
]


@pytest.mark.parametrize(("flags", "code", "names"), OVERSIZED)
def test_sizes_are_estimated_before_anything_is_made(capsys, tmp_path, flags, code, names):
    import time

    begun = time.monotonic()
    left, out, err = call(capsys, "train", *flags.split(), "--out", tmp_path / "x")
    assert (left, out) == (code, "")
    assert err.count("\n") == 1
    assert any(name in err for name in names.split("|")), err
    assert "must be at most" in err
    assert time.monotonic() - begun < 10
    assert not (tmp_path / "x").exists()


def test_theory_and_sweeps_refuse_them_too(capsys, tmp_path):
    for command in (["theory", "--dim", "1000000000"], ["theory", "--scaling", "--dim", "1000000000000000"]):
        code, _, err = call(capsys, *command)
        assert code in (2, 4)
        assert err.count("\n") == 1
    (tmp_path / "big.toml").write_text("[base]\ndim = 200000\nlr = 0.1\nsteps = 5\n")
    code, _, err = call(capsys, "sweep", tmp_path / "big.toml", "--out", tmp_path / "s")
    assert code == 4
    assert "GiB" in err
    assert not (tmp_path / "s").exists()
    with pytest.raises(NoRoom):
        Law.of(Task(dim=10**9))


LARGE = [
    ("", "icl.Separate(heads=5)", "init=30"), ("", "icl.Merged(heads=5)", "init=30"),
    ("", "icl.Separate(heads=5)", "init=10"), ("", "icl.Merged(heads=5)", "init=10"),
    ("spectrum=[4e8, 3e8]", "icl.Separate(heads=5)", "init=1e-2"),
    ("spectrum=[4e8, 3e8]", "icl.Merged(heads=5)", "init=3"),
    ("", "icl.Separate(heads=5)", "weights=scaled(1e3)"),
]  # fmt: skip
FOLLOWED = """\
import resource, warnings
import iclflow as icl
warnings.simplefilter("ignore")
def scaled(by):
    small = icl.train(icl.Task(), icl.Separate(heads=5), init=1, time=1e-3).initial_weights
    return {{name: by * array for name, array in small.items()}}
task = icl.Task({})
run = icl.train(task, {}, {})
zero, lowest = float(icl.theory.plateau_losses(task)[0]), run.summary["runs"][0]["lowest_loss"]
settled = run.summary["final_loss"] <= lowest + 1.001e-4 * (zero - lowest)
print(run.status, settled, run.loss.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.timeout(3600)
def test_flows_from_large_weights_take_below_1_gb_and_say_how_they_ended(measured):
    """One of them took 21 GiB, because it saved a point for each small part of its loss."""
    most, many = 0, count(len(LARGE), 1)
    for settings in LARGE[:many]:
        done = subprocess.run([sys.executable, "-c", FOLLOWED.format(*settings)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        status, settled, points, peak = done.stdout.split()
        assert (status, settled) in (("ok", "True"), ("max_steps", "False")), settings
        assert int(points) < 10_000
        assert int(peak) < 2**20  # kilobytes
        most = max(most, int(peak))
    measured(f"{many} flows, at most {most / 1024:.0f} MiB, with the status that belongs to their last loss")


def bomb(path, kind: str, bytes_each: int) -> None:
    """An archive of a few MB that unpacks to 3 GiB of zeros."""
    count = 3 * 2**30 // (160 * bytes_each)
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count}, 32, 5), }}".encode().ljust(117) + b"\n"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("sequences.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
        for _ in range(3 * 2**30 // 2**24):
            member.write(bytes(2**24))


def test_an_archive_that_unpacks_to_much_more_than_its_size_is_refused_as_data(tmp_path):
    bomb(tmp_path / "bomb.npz", "<f8", 8)
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        f"from iclflow.cli import main\nmain(['train', '--data', {str(tmp_path / 'bomb.npz')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "times its own size" in done.stderr
    assert done.stderr.count("\n") == 1


def test_small_numbers_count_as_the_doubles_they_become(tmp_path, monkeypatch):
    np.savez(tmp_path / "small.npz", sequences=np.zeros((4000, 10, 5), dtype=np.int8))
    monkeypatch.setattr("iclflow.system.memory.available", lambda: 3 * 10**6)
    with pytest.raises(NoRoom, match="twice as doubles"):
        read_own_data(tmp_path / "small.npz", None)


def test_chunks_of_a_sample_are_not_all_handed_out_at_once():
    begun = []
    sample = Sample(Law.of(Task(dim=2, context=1)), 10**10, (0, 1), whiten=False)
    walk = over_chunks(begun.append, sample)
    next(walk)
    walk.close()
    assert len(begun) < 100


def test_an_array_shorter_or_longer_than_its_header_says_is_refused(tmp_path):
    path = tmp_path / "s.npy"
    np.save(path, np.ones(4))
    good = path.read_bytes()
    assert read_npy(path, "spectrum", 10**6).tolist() == [1.0] * 4
    for bad in (good[:-1], good + b"x", good.replace(b"(4,)", b"(9,)"), good.replace(b"<f8", b"|O8"), good[:40], b""):
        path.write_bytes(bad)
        with pytest.raises(BadInput, match=r"spectrum: cannot read .* as a \.npy array"):
            read_npy(path, "spectrum", 10**6)
        with pytest.raises(BadInput, match="spectrum"):
            Task(spectrum=str(path))


def test_records_refuse_numbers_that_no_float_holds():
    for name, value in (("dim", 10**24), ("context", "9" * 5000), ("dim", 10**400)):
        with pytest.raises(BadInput) as refused:
            Task(**{name: value})
        assert name in str(refused.value)
        assert len(str(refused.value)) < 400
    for name, value in (("samples", 10**400), ("samples", "9" * 400), ("init", 1e300), ("lr", 1e300)):
        with pytest.raises(BadInput, match=name):
            Training(**{name: value})


def test_only_regular_files_are_opened(tmp_path):
    import os
    import socket

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "good").write_text("a = 1")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
    for name in ("fifo", "dangling", "loop", "zero", "socket", ".", "good/below", "a\nb", "x" * 400, "nul\0"):
        with pytest.raises(BadInput, match="config"):
            regular_file(tmp_path / name, "config")
    assert read_text(tmp_path / "link", "config", "TOML", tomllib.loads) == {"a": 1}
