"""Files of every kind, mutated: one line or the right numbers; no traceback, no hang, no growth, no wrong number.

What the readers make of a mutated file is held against what is in it by a second road, or, where digests protect it,
against what was written. Now and then the command is asked as well.
"""

import contextlib
import itertools
import json
import random
import resource
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy

import iclflow as icl
from commands import call
from iclflow.cli.flags import Flags, given
from iclflow.comparison.curves import read_curves
from iclflow.config import Training
from iclflow.data.own import read_own_data
from iclflow.errors import DamagedStore, IclflowError
from iclflow.results.inputs import inputs_from_flat, read_inputs
from iclflow.results.labelled import to_tensors
from iclflow.studies.folder import finished, keep, place
from iclflow.sweeps.results import gather
from iclflow.sweeps.store.check import check
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from iclflow.system.manifest import with_digest
from iclflow.training.cost import refuse_oversized
from reliability import second_roads
from reliability.harness import count, tiny
from reliability.mutations import OTHERS, mutate, other_value, replaced

PATIENCE = 60  # seconds for one file
ROOM = 2**30  # bytes by which the process may grow
FEW_STEPS = ("train", "--steps", "2", "--lr", "0.01", "--no-figure")
PIECE = ("claims", "merged")
CONFIG = """\
model = "separate"
heads = 3
rank = 2
dim = 4
context = 31
samples = 80_000
init = 0.01
lr = 0.1
steps = 2000
label_noise = 0.25
softmax = false
spectrum = [0.4, 0.3, 0.2, 0.1]
engine = "auto"
seed = 3
"""
SWEEP = """\
seeds = [1, 2, 5]
points = 20
[base]
model = "separate"
dim = 3
samples = 500
lr = 0.05
steps = 20
[axes]
rank = [1, 2]
init = { from = 1e-3, to = 1e-1, count = 3, log = true }
[[zip]]
context = [8, 16]
heads = [2, 3]
"""
Numbers = dict[str, np.ndarray]


class Kind(NamedTuple):
    """A kind of file: how it is made, read, and read by a second road; and a command that reads it."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Numbers]
    truth: Callable[[Path], Numbers] | None  # None: digests protect what was written
    command: tuple[str, ...] = ()
    seal: Callable[[bytes, random.Random], bytes] | None = None  # a mutation under a digest that is right


class Hang(BaseException):
    """A reader has not come back."""


# --- how the files are made -------------------------------------------------------------------------------------------


def a_run(folder: Path) -> Path:
    settings = {"samples": 40, "lr": 0.05, "steps": 5, "optimizer": "momentum", "test_samples": 10, "seeds": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        icl.train(icl.Task(dim=2, context=4), icl.Separate(heads=2), out=folder / "run", **settings)
    return folder / "run"


def an_earlier_run(folder: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parents[1] / "fixtures" / "v0.2.0" / "sample", folder / "run"))


def a_sweep(folder: Path) -> Path:
    run_grid(read_grid(tiny(folder, 1)), folder / "sweep", workers=0)
    return folder / "sweep"


def results(folder: Path) -> Path:
    def write(piece: Path) -> None:
        (piece / "table.csv").write_text("time,loss\n0,1\n1,0.5\n")

    keep(folder / "results", PIECE, False, {"seconds": 1.5, "claims": [{"id": "a", "measured": 0.25}]}, write)
    return folder / "results"


def arrays() -> Numbers:
    dice = np.random.default_rng(0)
    sizes = {"value": (2, 3, 3), "key": (2, 1, 3), "query": (2, 1, 3)}
    return {f"weights.{name}": dice.normal(size=size) for name, size in sizes.items()}


def tensors(folder: Path) -> Path:
    (folder / "w.safetensors").write_bytes(safetensors.numpy.save(arrays()))
    return folder / "w.safetensors"


def archive(folder: Path) -> Path:
    np.savez(folder / "w.npz", **arrays())
    return folder / "w.npz"


def data(folder: Path) -> Path:
    dice = np.random.default_rng(0)
    np.savez(folder / "d.npz", sequences=dice.normal(size=(6, 4, 3)), sequences_icl=dice.normal(size=(3, 4, 3)))
    return folder / "d.npz"


def eigenvalues(folder: Path) -> Path:
    np.save(folder / "s.npy", np.array([0.4, 0.3, 0.2, 0.1]))
    return folder / "s.npy"


def matrix(folder: Path) -> Path:
    np.save(folder / "m.npy", np.array([[2.0, 0.5], [0.5, 1.0]]))
    return folder / "m.npy"


def table(folder: Path) -> Path:
    lines = [f"{i},{0.5 * i},{1.25**-i + 1e-6}" for i in range(12)]
    (folder / "c.csv").write_text("\n".join(["step,time,loss", *lines]) + "\n")
    return folder / "c.csv"


def rows(folder: Path) -> Path:
    (folder / "c.txt").write_text("".join(f"{1.25**-i:.18e} {i * -1e-3:.6e} {i}\n" for i in range(12)))
    return folder / "c.txt"


def one_column(folder: Path) -> Path:
    (folder / "c.txt").write_text("".join(f"{1.25**-i:.6f}\n" for i in range(12)))
    return folder / "c.txt"


def text(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return make


# --- how they are read ------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Numbers:
    run = icl.load(path)
    ends = np.array(run.summary["final_loss"], dtype=float)
    return {**to_tensors(run.groups)[0], **run.initial_weights, **run.optimizer_state, "final_loss": ends}


def read_sweep(path: Path) -> Numbers:
    """The numbers of the runs that are called finished; the others must have none."""
    check(path)
    found = gather(path).data
    states, numbers = found["status"].values.ravel(), {}
    for name in ("loss", "curve_time", "final_loss", "steps_done", "drop_times"):
        for run, row in enumerate(found[name].values.reshape(len(states), -1)):
            if states[run] == "ok":
                numbers[f"{name} of {run}"] = row
            else:
                assert states[run] in ("missing", "damaged")
                assert np.isnan(row).all()
    return numbers


def read_results(path: Path) -> Numbers:
    record = finished(path, PIECE, False)
    if record is None:
        raise DamagedStore("this piece is made again")
    listed = (place(path, PIECE) / "table.csv").read_bytes()
    return {"record": np.array(json.dumps(record, sort_keys=True)), "table": np.frombuffer(listed, np.uint8)}


def read_weights(path: Path) -> Numbers:
    return read_inputs(None, None, Training(), weights=str(path)).weights


def read_data(path: Path) -> Numbers:
    own = read_own_data(path, None)[0]
    return {"sequences": own.training.sequences, **{name: test.sequences for name, test in own.tests.items()}}


def read_spectrum(path: Path) -> Numbers:
    given_one = icl.Task(spectrum=str(path)).spectrum
    task = icl.Task(dim=len(given_one), spectrum=str(path))
    assert np.isfinite(icl.theory.plateau_losses(task)).all()
    return {"spectrum": np.array(task.spectrum)}


def read_curve(path: Path) -> Numbers:
    [curve] = read_curves(str(path), {})
    return {name: a for name in ("step", "time", "loss") if (a := getattr(curve, name)) is not None}


def read_rows(path: Path) -> Numbers:
    return {"loss": read_curve(path)["loss"]}


def read_config(path: Path) -> dict[str, object]:
    """Whatever the settings mean is what the file says."""
    experiment = inputs_from_flat(given(Flags(), path)).experiment
    refuse_oversized(experiment)
    flat, stated = experiment.flat(), second_roads.settings(path)
    return {name: np.array(second_roads.same(flat[name], value)) for name, value in stated.items()}


def read_sweep_file(path: Path) -> dict[str, object]:
    grid, stated = read_grid(path), second_roads.settings(path)
    base = {name: second_roads.same(grid.base[name], value) for name, value in stated.get("base", {}).items()}
    values = {name: axis.coordinate(name).tolist() for axis in grid.axes for name in axis.names}
    plain = {name: v for name, v in stated.get("axes", {}).items() if isinstance(v, list)}
    zipped = {name: v for entry in stated.get("zip", []) for name, v in entry.items() if isinstance(v, list)}
    same = {name: second_roads.same(values[name], v) for name, v in {**plain, **zipped}.items()}
    seeds = stated.get("seeds", 1)
    same["seeds"] = grid.seeds == tuple(seeds if isinstance(seeds, list) else range(seeds))
    assert grid.count < 10**8
    return {name: np.array(right) for name, right in {**base, **same}.items()}


def all_right(path: Path) -> Numbers:
    """Of settings the reader itself has compared what they mean with what the file says."""
    stated = second_roads.settings(path)
    flat = [*stated, *stated.get("base", {}), *stated.get("axes", {})] if "base" in stated else stated
    return {str(name): np.array(True) for name in [*flat, "context", "heads", "seeds"]}


def sealed(content: bytes, dice: random.Random) -> bytes:
    """A JSON file with another value at some place, under a digest of itself that is right."""
    changed = json.loads(other_value(content, dice))
    changed.pop("sha256", None)
    return with_digest(changed)


FUZZED = {
    "run": Kind(a_run, read_run, None, ("probe", "{}")),
    "run of 0.2.0": Kind(an_earlier_run, read_run, None, ("compare", "{}", "--out", "{}.pdf")),
    "sealed run": Kind(a_run, read_run, None, ("compare", "{}", "--out", "{}.pdf"), sealed),
    "sweep": Kind(a_sweep, read_sweep, None, ("sweep", "status", "{}")),
    "results": Kind(results, read_results, None),
    "weights.safetensors": Kind(tensors, read_weights, second_roads.weights, ("probe", "{}")),
    "weights.npz": Kind(archive, read_weights, second_roads.weights, ("probe", "{}")),
    "data": Kind(data, read_data, second_roads.archive, (*FEW_STEPS, "--data", "{}", "--out", "{}.run")),
    "eigenvalues": Kind(eigenvalues, read_spectrum, second_roads.spectrum, ("theory", "--spectrum", "{}")),
    "matrix": Kind(matrix, read_spectrum, second_roads.spectrum, ("theory", "--dim", "2", "--spectrum", "{}")),
    "table": Kind(table, read_curve, second_roads.table, ("compare", "{}", "--out", "{}.pdf")),
    "rows": Kind(rows, read_rows, second_roads.rows, ("compare", "{}", "--lr", "0.1", "--out", "{}.pdf")),
    "column": Kind(one_column, read_rows, second_roads.rows),
    "config": Kind(text("c.toml", CONFIG), read_config, all_right),
    "sweep file": Kind(text("s.toml", SWEEP), read_sweep_file, all_right),
}  # fmt: skip


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FUZZED)
def test_a_mutated_file_is_refused_in_one_line_or_read_rightly(name, tmp_path, capsys, measured):
    kind, dice, seen = FUZZED[name], random.Random(name), Counter()
    sound = kind.make(tmp_path)
    written = kind.read(sound)
    assert written
    before, wanted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, count(700, 40)
    for number in range(wanted):
        here = tmp_path / "mutated"
        here.mkdir()
        path = here / sound.name
        shutil.copytree(sound, path) if sound.is_dir() else shutil.copy(sound, path)
        what = mutated(path, kind, dice)
        with bounded(f"{name}, number {number}, {what}"):
            seen[outcome(kind, path, written, what)] += 1
            if kind.command and number % 20 == 0:
                told(capsys, *(part.format(path) for part in kind.command))
        shutil.rmtree(here)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    measured(f"{wanted} files: {dict(seen)}, 0 wrong; {grown:.0f} MiB more at most")
    assert seen["refused"] > 0
    assert set(seen) <= {"refused", "read"}


@pytest.mark.parametrize("name", ["run", "sweep", "results"])
def test_anything_else_in_the_place_of_any_file_is_neither_read_nor_waited_for(name, tmp_path, measured):
    kind, seen = FUZZED[name], Counter()
    sound = kind.make(tmp_path)
    written = kind.read(sound)
    for file, other in itertools.product(files_of(sound), OTHERS):
        aside = shutil.move(file, tmp_path / "aside")
        shutil.copy(aside, file)
        with bounded(f"{name}, {other} for {file.name}"):
            seen[outcome(kind, sound, written, replaced(file, other))] += 1
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        shutil.move(aside, file)
    measured(f"{sum(seen.values())} files: {dict(seen)}, 0 wrong")
    assert written.keys() == kind.read(sound).keys()
    assert set(seen) <= {"refused", "read"}


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")


def mutated(path: Path, kind: Kind, dice: random.Random) -> str:
    """Make something wrong with the file, or with one of the files in a directory."""
    if kind.seal is not None:
        path = path / "summary.json"
        path.write_bytes(kind.seal(path.read_bytes(), dice))
        return "sealed"
    chosen = dice.choice([path] if path.is_file() else files_of(path))
    return f"{mutate(chosen, dice)} of {chosen.name}"


def outcome(kind: Kind, path: Path, written: Numbers, what: str) -> str:
    """Whether the file was refused, or read rightly; everything else fails."""
    try:
        read = kind.read(path)
    except IclflowError as error:
        return "refused" if "\n" not in str(error) else "told in several lines"
    truth = written if kind.truth is None else kind.truth(path)
    for name, numbers in read.items():
        assert np.array_equal(numbers, truth[name], equal_nan=np.asarray(numbers).dtype.kind == "f"), (what, name)
    return "read"


def told(capsys, *command: str) -> None:
    """What the command itself does: a code that is documented, and a line or more where something is wrong."""
    code, _, err = call(capsys, *command)
    assert code in range(5), (command, err)
    assert "Traceback" not in err
    one_line = err.startswith("iclflow: ") and err.count("\n") == 1
    assert code < 2 or one_line, (command, err)


@contextlib.contextmanager
def bounded(what: str) -> Iterator[None]:
    """Neither for long nor with much more memory than before."""

    def too_long(*_: object) -> None:
        raise Hang(what)

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, limits[1]))
    signal.alarm(PATIENCE)
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)
