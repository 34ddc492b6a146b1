"""Weights from disk: every way to name them, and files that are not what they seem."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import commands
import hand_built
import iclflow as icl
from iclflow.theory.algorithm import plateau_matrix

TASK = icl.Task(dim=4, context=31)
WEIGHTS = hand_built.separate(plateau_matrix(TASK, 2))
FLAGS = ["--dim", "4", "--context", "31"]


def call(capsys, *arguments):
    return commands.call(capsys, "probe", *arguments)


def written(path, weights, prefix=""):
    arrays = {prefix + name: np.ascontiguousarray(array) for name, array in weights.items()}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    return path


def asked(source, task=TASK, **options):
    found = icl.probe(source, task, shifts=False, **options)
    return found.algorithm, found.components


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_prefixes_are_found_and_named_ones_obeyed(suffix, tmp_path):
    both = {f"final_weights.{name}": array for name, array in WEIGHTS.items()}
    both |= {f"weights.{name}": 0 * array for name, array in WEIGHTS.items()}
    path = written(tmp_path / f"a{suffix}", both)
    assert asked(path) == ("pcr", (1, 2))
    assert asked(f"{path}:weights.") == ("zero", ())
    assert asked(written(tmp_path / f"b{suffix}", WEIGHTS)) == ("pcr", (1, 2))
    assert asked(WEIGHTS) == ("pcr", (1, 2))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("kind", ["merged", "separate"])
def test_names_of_the_public_code_are_converted(kind, suffix, tmp_path):
    """Its attention has no 1/N; a forward pass in its own layout gives the same predictions."""
    rng, width, heads = np.random.default_rng(1), 5, 3
    shapes = {
        "value": (heads, 5, 5),
        **({"key_query": (heads, 5, 5)} if kind == "merged" else {"key": (heads, 2, 5), "query": (heads, 2, 5)}),
    }
    ours = {name: 0.3 * rng.standard_normal(shape) for name, shape in shapes.items()}
    theirs = hand_built.public(ours)
    sequences = rng.standard_normal((40, 9, width))
    hidden = sequences.copy()
    hidden[:, -1, -1] = 0
    apply = lambda name: (hidden @ theirs[f"{name}.weight"].T).reshape(
        40, 9, heads, -1
    )  # a linear layer, heads side by side
    if kind == "merged":
        scores = np.einsum("pmha,pa->phm", apply("kq"), hidden[:, -1])
    else:
        scores = np.einsum("pmhr,phr->phm", apply("key"), apply("query")[:, -1])
    guess = np.einsum("phm,pmha->pa", scores, apply("value"))[:, -1]
    found = icl.probe(written(tmp_path / f"a{suffix}", theirs), data=sequences, shifts=False)
    assert found.distances["zero"] == pytest.approx(np.mean(guess**2) / np.mean(sequences[:, -1, -1] ** 2), rel=1e-9)
    assert (found.model.kind, found.model.heads) == (kind, heads)


def test_public_names_that_do_not_fit_are_refused(tmp_path):
    theirs = hand_built.public(WEIGHTS)
    for change, line in (
        ({"key.weight": theirs["key.weight"][:3]}, r"must be \(H R, E\) with H = 4"),
        ({"key.weight": theirs["key.weight"][:, :4]}, r"'key.weight' has shape \(4, 4\), must be"),
        ({"value.weight": theirs["value.weight"][:7]}, r"'value.weight' has shape \(7, 5\)"),
        ({"value.bias": np.ones(20)}, "no bias"),
    ):
        with pytest.raises(icl.BadInput, match=line):
            asked(written(tmp_path / "a.npz", {**theirs, **change}))
    with pytest.raises(icl.BadInput, match=r"must be value.weight with kq.weight"):
        asked(written(tmp_path / "a.npz", {"value.weight": theirs["value.weight"]}))


def test_a_folder_of_checkpoints_is_a_time_axis(tmp_path):
    for step, m in ((2, 0), (10, 1), (100, 2)):
        written(tmp_path / f"step_{step}.safetensors", hand_built.separate(plateau_matrix(TASK, m)))
    found = icl.probe(tmp_path, TASK, shifts=False)
    assert found.steps.tolist() == [2, 10, 100]
    assert [v.components for v in found.verdicts] == [(), (1,), (1, 2)]


def test_sizes_come_from_the_weights_and_contradictions_are_refused(tmp_path):
    path = written(tmp_path / "a.npz", WEIGHTS)
    assert icl.probe(path, shifts=False).task.dim == 4
    for task, line in (
        (icl.Task(dim=3), "dim: 3 contradicts the weights"),
        (icl.Task(out_dim=2, dim=4), "dim: 4 contradicts"),
    ):
        with pytest.raises(icl.BadInput, match=line):
            asked(path, task)
    with pytest.raises(icl.BadInput, match="data: has dim|dim"):
        asked(path, None, data=np.ones((5, 4, 4)))


def test_a_run_directory_and_the_same_run_in_memory_agree(tmp_path):
    run = icl.train(icl.Task(dim=2), icl.Merged(heads=2), init=0.1, out=tmp_path / "run")
    saved, kept = icl.probe(tmp_path / "run", shifts=False), icl.probe(run, shifts=False)
    assert saved.distances == kept.distances
    assert (saved.algorithm, saved.components) == ("least_squares", (1, 2))
    last = icl.probe(tmp_path / "run" / "weights.safetensors", run.task, shifts=False)
    assert last.distances == pytest.approx(kept.distances)


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def mutant(rng, number, path, trap):
    """One of many ways in which a weight file can be wrong; returns where it was written."""
    arrays = {name: array.copy() for name, array in WEIGHTS.items()}
    path = path.with_suffix(".npz" if number % 2 else ".safetensors")
    victim = ("value", "key", "query")[rng.integers(3)]
    where = tuple(rng.integers(size) for size in arrays[victim].shape)
    damage = ("truncate", "header", "garble", "nan", "infinite", "missing", "axis", "shape", "whole", "empty")[
        number // 2 % 10
    ]
    if damage in ("nan", "infinite"):
        arrays[victim][where] = np.nan if damage == "nan" else np.inf
    elif damage == "missing":
        del arrays[victim]
    elif damage == "axis":
        arrays[victim] = arrays[victim][..., 0]
    elif damage == "shape":
        arrays[victim] = np.pad(
            arrays[victim], [(0, 1), (0, 0), (0, 0)] if victim != "value" else [(0, 0), (0, 1), (0, 0)]
        )
    elif damage == "whole":
        arrays[victim] = (
            arrays[victim].view(np.int64)
            if number % 4
            else arrays[victim].astype(str)
            if number % 2
            else arrays[victim].astype(bool)
        )
    written(path, arrays)
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: rng.integers(1, len(content) - 1)]
    elif damage == "header":
        end = struct.unpack("<Q", content[:8])[0] if number % 2 == 0 else 40
        for at in rng.integers(8, 8 + end - 8, 4):
            content[at] ^= 1 << rng.integers(7)
    elif damage == "garble" and number % 2:
        if number % 3 == 0:
            np.savez(path, **{**arrays, victim: np.array([Trap(trap)], dtype=object)})
            return path
        middle = rng.integers(200, len(content) // 2)
        content[middle : middle + 8] = rng.bytes(8)
    elif damage == "garble":
        content = bytearray(pickle.dumps(Trap(trap))) if number % 3 == 0 else bytearray(rng.bytes(len(content)))
    elif damage == "empty":
        content = bytearray() if number % 4 else bytearray(b"not weights\n" * 9)
    path.write_bytes(bytes(content))
    return path


def test_two_hundred_damaged_files_are_refused_in_one_line(capsys, tmp_path):
    rng, trap = np.random.default_rng(0), tmp_path / "sprung"
    for number in range(200):
        path = mutant(rng, number, tmp_path / f"m{number}", trap)
        code, out, err = call(capsys, path, *FLAGS)
        assert (code, out, err.count("\n")) == (2, "", 1), (number, err)
        assert err.startswith("iclflow: "), err
    assert not trap.exists()


def false_archive(path, shape, size):
    """An array whose header says one thing and whose archive says another."""
    body = io.BytesIO()
    np.lib.format.write_array_header_1_0(body, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("value.npy", body.getvalue() + b"\0" * size)


def bomb(path, repeats):
    """Many entries that share one compressed block of zeros."""
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(2**22))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("value.npy", zeros.getvalue())
        archive.filelist.extend([archive.filelist[0]] * (repeats - 1))


def test_bombs_and_giant_headers_cost_no_memory(tmp_path):
    """Peak memory of the whole program, measured by the system in a process of its own."""
    bomb(tmp_path / "bomb.npz", 1000)
    false_archive(tmp_path / "giant.npz", (2**40,), 8)
    (tmp_path / "long.npz").write_bytes((tmp_path / "giant.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "long.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("value.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**28) + b" " * 2**28)
    for name, length in (("header", 2**62), ("short", 2**40)):
        (tmp_path / f"{name}.safetensors").write_bytes(struct.pack("<Q", length) + b"{}" * 50)
    claim = json.dumps({"value": {"dtype": "F64", "shape": [2**30, 5, 5], "data_offsets": [0, 200 * 2**30]}}).encode()
    (tmp_path / "claim.safetensors").write_bytes(struct.pack("<Q", len(claim)) + claim + b"\0" * 64)
    script = (
        "import sys\nfrom iclflow.cli import main\n"
        "for path in sys.argv[1:]:\n"
        "    try: main(['probe', path])\n"
        "    except SystemExit as left: assert left.code == 2, path\n"
        "assert not {'jax', 'xarray'} & set(sys.modules)\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    files = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(files) == 6
    assert int(done.stdout) < 300 * 1024  # KiB
