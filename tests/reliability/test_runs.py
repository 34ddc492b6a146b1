"""Runs on disk under kills, full disks, two writers and flipped bits: the old run or the new one, nothing else lost."""

import collections
import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from iclflow.results.labelled import to_tensors
from iclflow.results.run import Run
from iclflow.results.writing import leftovers, write_run, writing
from iclflow.system.lock import holder, is_held
from reliability import run_committer, strikes, two_commands
from reliability.harness import FULL, PROGRAM, count, only_full, run
from reliability.strikes import calls_of_one, traced

V0_2_0 = Path(__file__).parents[1] / "fixtures" / "v0.2.0" / "sample"
TRAIN = ("train", "--dim", 2, "--heads", 2, "--samples", 40, "--lr", 0.05, "--steps", 20)
NOTES = "my own notes"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """An old run, a new one, and one that version 0.2.0 wrote."""
    folder, settings = tmp_path_factory.mktemp("runs"), {"samples": 40, "lr": 0.05, "steps": 5}
    task, model = icl.Task(dim=2, context=4), icl.Merged(heads=2)
    for seed, name in enumerate(("old", "new")):
        icl.train(task, model, seed=seed, out=folder / name, **settings)
    return {"old": folder / "old", "new": folder / "new", "earlier": V0_2_0}


@pytest.fixture(scope="module")
def server(runs):
    with strikes.server(run_committer.__file__, runs["new"]) as process:
        yield process


def begin(path: Path, old: Path | None) -> Path:
    """A directory with an old run and the user's own files, or none."""
    shutil.rmtree(path, ignore_errors=True)
    if old is not None:
        shutil.copytree(old, path)
        (path / "notes.txt").write_text(NOTES)
        shutil.copytree(old, path / "copies" / "run")
    return path


def same(a: Run, b: Run) -> bool:
    numbers = [to_tensors(run.groups)[0] | run.initial_weights for run in (a, b)]
    equal = [np.array_equal(numbers[0][name], numbers[1][name]) for name in numbers[0]]
    return numbers[0].keys() == numbers[1].keys() and all(equal) and a.summary == b.summary


def state(path: Path, runs: dict[str, Path], old: str | None) -> str:
    """`old` or `new`; `none` where there was none; anything else fails."""
    if old is not None:
        assert (path / "notes.txt").read_text() == NOTES
        assert holds(path / "copies" / "run", runs[old])
        if holds(path, runs[old]):
            return "old"
    elif not (path / "summary.json").exists():
        return "none"
    assert same(icl.load(path), icl.load(runs["new"]))
    return "new"


def holds(path: Path, other: Path) -> bool:
    """Whether a directory holds all files of another, with the same bytes; so it opens as that one does."""
    files = [file.relative_to(other) for file in other.rglob("*") if file.is_file() and file.name != ".lock"]
    return all((path / f).is_file() and (path / f).read_bytes() == (other / f).read_bytes() for f in files)


def recovers(path: Path, runs: dict[str, Path], old: str | None) -> bool:
    """The next command writes its run whatever was left, and nothing but that run and the user's files is there."""
    mine = {"notes.txt", "copies"} if old is not None else set()
    with writing(path, overwrite=(path / "summary.json").exists()):
        assert not leftovers(path)
        write_run(icl.load(runs["new"]), path)
    files = {".lock", "summary.json", "arrays.safetensors", "weights.safetensors"}
    return state(path, runs, old) == "new" and {file.name for file in path.iterdir()} == files | mine


@strikes.needs_strace
@pytest.mark.parametrize("old", ["old", None, "earlier"])
def test_a_run_killed_at_any_call_of_its_writing_leaves_the_old_one_or_the_new(
    server, runs, tmp_path, measured, capfd, old
):
    path, seen = tmp_path / "run", collections.Counter()
    points = calls_of_one(server, begin(path, runs.get(old)))
    assert {name for _, name, _ in points} >= {"fsync", "openat", "rename", "write", "flock"}
    if not FULL:  # of the calls that change names all over a run, of the others a few
        chosen = lambda i, name: i % {"old": 8, None: 8, "earlier": 24}[old] == 0 or (old == "old" and "name" in name)
        points = [point for i, point in enumerate(points) if chosen(i, point[1])]
    for thread, name, number in points:
        code, _ = traced(server, begin(path, runs.get(old)), thread, "-e", f"inject={name}:signal=KILL:when={number}")
        seen["killed"] += code == -signal.SIGKILL
        seen[state(path, runs, old)] += 1
        left = path.exists() and bool(leftovers(path))
        capfd.readouterr()
        assert recovers(path, runs, old), (thread, name, number)
        said = capfd.readouterr().err
        assert (said.count("\n"), "an interrupted command had left" in said) == (left, left), (name, number, said)
        seen["cleared"] += left
    measured(f"over {old}: {len(points)} calls, {dict(seen)}: all recovered, notes and runs below untouched")
    assert seen["killed"] == len(points)
    assert seen["new"] > 0
    assert seen["cleared"] > 0
    assert seen["none" if old is None else "old"] > 0


@strikes.needs_strace
@pytest.mark.parametrize("old", ["old", None])
def test_a_disk_that_is_full_at_any_call_leaves_the_old_run_or_the_new(server, runs, tmp_path, measured, old):
    path, seen = tmp_path / "run", collections.Counter()
    points = [p for p in calls_of_one(server, begin(path, runs.get(old))) if p[1] not in ("close", "unlink", "flock")]
    for thread, name, number in points if FULL else points[::10]:
        traced(server, begin(path, runs.get(old)), thread, "-e", f"inject={name}:error=ENOSPC:when={number}")
        seen[state(path, runs, old)] += 1
        assert recovers(path, runs, old), (thread, name, number)
    measured(f"full over {old}: {dict(seen)}: all recovered")


COMMANDS = {"resume": ("train", "--steps", 5, "--resume"), "overwrite": (*TRAIN, "--seed", 3, "--overwrite", "--out")}


@strikes.needs_strace
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["resume", pytest.param("overwrite", marks=only_full)])
def test_whole_commands_killed_at_calls_in_their_directory_leave_the_old_run_or_the_new(how, tmp_path, measured):
    """The program itself: one call, all of them in the full mode."""
    code, _, err = run(*TRAIN, "--out", tmp_path / "old", "--no-figure")
    assert code == 0, err
    path, old, seen = tmp_path / "run", icl.load(tmp_path / "old"), collections.Counter()
    points = calls_of_command(how, begin(path, tmp_path / "old"))
    assert {name for name, _ in points} == {"fsync", "rename", "unlink", "link"}
    for name, number in points if FULL else points[len(points) // 2 :][:1]:
        begin(path, tmp_path / "old")
        kill = (f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}")
        seen["killed"] += strace(how, path, *kill) == -signal.SIGKILL
        found = icl.load(path)
        seen["old" if same(found, old) else "new"] += 1
        ended = (found.seeds, found.summary["steps_done"])
        assert same(found, old) or ended == {"resume": ([0], 25), "overwrite": ([3], 20)}[how]
        assert (path / "notes.txt").read_text() == NOTES
        assert holds(path / "copies" / "run", tmp_path / "old")
    measured(f"{how}, {len(points)} calls in its directory: {dict(seen)}")
    assert seen["killed"] == seen["old"] + seen["new"]


def strace(how: str, path: Path, *filters: str) -> int:
    """The exit code of a command under strace, which writes what it sees to `trace` beside the directory."""
    log = ["-o", path.parent / "trace", "-e", *filters]
    command = ["strace", "-f", "-y", "-qq", *log, *PROGRAM, *COMMANDS[how], path]
    return subprocess.run([*map(str, command)], capture_output=True, timeout=600).returncode


def calls_of_command(how: str, path: Path) -> list[tuple[str, int]]:
    """Name and number of the calls that change something in the directory, all of them by the program's main thread."""
    assert strace(how, path, "trace=fsync,rename,unlink,link") == 0
    seen, points = collections.Counter(), []
    lines = [line.split(maxsplit=1) for line in (path.parent / "trace").read_text().splitlines()]
    for call in (call for thread, call in lines if thread == lines[0][0]):
        name = call.partition("(")[0]
        seen[name] += 1
        points += [(name, seen[name])] if str(path) in call else []
    return points


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two commands at once, the second after some seconds: exit codes and errors."""
    with strikes.server(two_commands.__file__, tmp_path_factory.mktemp("errors")) as process:

        def both(*commands: tuple, between: float) -> list[tuple[int, str]]:
            words = [[str(word) for word in command] for command in commands]
            process.stdin.write(f"{json.dumps([*words, between])}\n")
            process.stdin.flush()
            return [(code, err) for code, err in json.loads(process.stdout.readline())]

        yield both


@pytest.mark.timeout(3600)
def test_two_writers_of_a_fresh_directory_never_both_succeed(pairs, tmp_path, measured):
    dice, wanted = random.Random(0), count(25, 2)
    for number in range(wanted):
        path, between = tmp_path / f"x{number}", dice.choice([0, dice.uniform(0, 2)])
        ended = pairs(*[(*TRAIN, "--seed", seed, "--no-figure", "--out", path) for seed in (1, 2)], between=between)
        assert sorted(code for code, _ in ended) == [0, 2], ended
        winner = next(seed for seed, (code, _) in zip((1, 2), ended, strict=True) if code == 0)
        assert icl.load(path).seeds == [winner]
        refused = next(err for code, err in ended if code == 2)
        assert refused.count("\n") == 1
        assert str(path) in refused
    measured(f"{wanted} pairs: one succeeded and one was refused in one line, each time")


@pytest.mark.timeout(3600)
def test_of_two_that_continue_a_run_each_that_succeeds_counts(pairs, tmp_path, measured):
    path, dice, wanted, done = tmp_path / "x", random.Random(1), count(25, 2), 0
    assert run(*TRAIN, "--no-figure", "--out", path)[0] == 0
    more = ("train", "--resume", path, "--steps", 7, "--no-figure")
    for _ in range(wanted):
        ended = pairs(more, more, between=dice.choice([0, dice.uniform(0, 2)]))
        assert all(code in (0, 2) and err.count("\n") == (code == 2) for code, err in ended), ended
        done += sum(code == 0 for code, _ in ended)
        assert icl.load(path).summary["steps_done"] == 20 + 7 * done
    measured(f"{wanted} pairs: {done} succeeded and counted, {2 * wanted - done} were refused in one line")
    assert done >= wanted


def test_a_second_writer_in_python_is_refused_in_one_line_and_changes_nothing(runs, tmp_path):
    path = begin(tmp_path / "run", runs["old"])
    with writing(path, overwrite=True):
        with pytest.raises(icl.BadInput, match="is being written by process"):
            icl.load(runs["new"]).save(path, overwrite=True)
        assert same(icl.load(path), icl.load(runs["old"]))
    refused = pytest.raises(icl.BadInput, match="is being written by process")
    with writing(tmp_path / "fresh", overwrite=False), refused:
        icl.load(runs["new"]).save(tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_a_lock_that_is_a_link_or_a_pipe_neither_clears_a_file_nor_waits(runs, tmp_path):
    path, mine = begin(tmp_path / "run", runs["old"]), tmp_path / "mine"
    mine.write_text(NOTES)
    (path / ".lock").unlink(missing_ok=True)
    (path / ".lock").symlink_to(mine)
    with pytest.raises(icl.BadInput, match="out"):
        icl.load(runs["new"]).save(path, overwrite=True)
    assert mine.read_text() == NOTES
    (path / ".lock").unlink()
    os.mkfifo(path / ".lock")
    assert not is_held(path)
    assert holder(path) == "another process"


def test_every_flipped_bit_of_a_summary_is_found(runs, tmp_path, measured):
    path, dice = begin(tmp_path / "run", runs["old"]), random.Random(0)
    good = (path / "summary.json").read_bytes()
    many = count(2000, 300)
    for _ in range(many):
        bit = dice.randrange(8 * len(good))
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (path / "summary.json").write_bytes(bad)
        with pytest.raises(icl.DamagedStore):
            icl.load(path)
    (path / "summary.json").write_bytes(good)
    assert same(icl.load(path), icl.load(runs["old"]))
    measured(f"{many} bits, 0 accepted")


def test_a_command_that_finds_a_flipped_bit_ends_with_3_and_leaves_the_run_alone(runs, tmp_path):
    path = begin(tmp_path / "run", runs["old"])
    text = (path / "summary.json").read_text().replace('"seed": 0', '"seed": 1')
    (path / "summary.json").write_text(text)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"}
    code, _, err = run("train", "--resume", path, "--steps", 5)
    assert (code, err.count("\n")) == (3, 1), err
    assert {file: file.read_bytes() for file in before} == before


def test_seeds_of_an_earlier_version_that_do_not_belong_to_its_settings_are_found(tmp_path):
    """Its summary had no digest: one bit in `seeds` made the run go on with other data."""
    path = begin(tmp_path / "run", V0_2_0)
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "seeds": [0, 3]}))
    with pytest.raises(icl.DamagedStore, match="seeds"):
        icl.load(path)
