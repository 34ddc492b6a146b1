"""Flipped bits, deleted and truncated files: all found by `check`, none read as a number, repair redoes only these."""

import random
from pathlib import Path

import numpy as np
import pytest

from iclflow.errors import IclflowError
from iclflow.sweeps.results import gather
from iclflow.sweeps.store.check import check, repair
from iclflow.sweeps.store.protocol import open_store
from iclflow.sweeps.sweep import run_grid
from iclflow.sweeps.sweep_file import read_grid
from reliability.harness import count, finished, run, tiny

NUMBERS = ("loss", "curve_time", "curve_step", "final_loss", "steps_done", "components", "drops", "drop_times")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("damage")
    run_grid(read_grid(tiny(directory, 2)), directory / "s", workers=0)
    return directory / "s"


def pieces(store: Path) -> list[Path]:
    return sorted(f for f in store.rglob("*") if f.is_file() and f.name != ".lock")


def damaged(content: bytes, how: str, dice: random.Random) -> bytes | None:
    if how == "delete":
        return None
    if how == "truncate":
        return content[: dice.randrange(len(content))]
    place = dice.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << dice.randrange(8))]) + content[place + 1 :]


def put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def read_wrongly(store: Path, sound) -> int:
    """Runs whose numbers are neither what was written nor absent."""
    try:
        now = gather(store).data
    except IclflowError:
        return 0
    gone = np.isin(now["status"].values.astype(str), ["missing", "damaged"])
    wrong = np.zeros(gone.shape, dtype=bool)
    for name in NUMBERS:
        a, b = now[name].values, sound[name].values
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        whole, nothing = same.reshape(*gone.shape, -1).all(-1), np.isnan(a).reshape(*gone.shape, -1).all(-1)
        wrong |= ~np.where(gone, nothing, whole)
    return int(wrong.sum())


def test_every_damage_is_found_and_none_is_read_as_numbers(store, measured):
    dice, sound, files = random.Random(0), gather(store).data, pieces(store)
    assert check(store).fine
    found = wrong = 0
    wanted = count(300, 60)
    for _ in range(wanted):
        path, how = dice.choice(files), dice.choice(["flip", "delete", "truncate"])
        content = path.read_bytes()
        put(path, damaged(content, how, dice))
        try:
            found += not check(store).fine
        except IclflowError:
            found += 1
        wrong += read_wrongly(store, sound)
        path.write_bytes(content)
    measured(f"{found} of {wanted} found, {wrong} read as numbers")
    assert check(store).fine
    assert (found, wrong) == (wanted, 0)


def test_repair_redoes_only_what_is_damaged(store, measured):
    before, dice = finished(store), random.Random(1)
    opened = open_store(store)
    kept = {run: opened.manifest(run).stat().st_mtime_ns for run in before}
    hurt = {0: opened.chunk("curves", 0), 3: opened.manifest(3), 5: opened.chunk("summary", 5)}
    for path, how in zip(hurt.values(), ("flip", "truncate", "delete"), strict=True):
        put(path, damaged(path.read_bytes(), how, dice))
    for path in (store / "arrays.zarr" / "curves" / "zarr.json", store / "sweep.json"):
        put(path, damaged(path.read_bytes(), "flip", dice))
    report, tally = repair(store, workers=0)
    assert set(report.damaged) == set(hurt)
    assert len(report.broken) == 2
    assert tally.done == len(before)
    assert check(store).fine
    assert finished(store) == before
    redone = {run for run in before if opened.manifest(run).stat().st_mtime_ns != kept[run]}
    assert redone == set(hurt)
    measured(f"3 damaged runs and 2 descriptions restored, {len(before) - 3} runs left alone")


def test_files_of_another_run_are_not_taken_for_a_runs_own(store):
    opened = open_store(store)
    pairs = [
        (opened.manifest(2), opened.manifest(4)),
        *((opened.chunk(n, 2), opened.chunk(n, 4)) for n in opened.names),
    ]
    contents = {target: target.read_bytes() for _, target in pairs}
    for source, target in pairs:
        target.write_bytes(source.read_bytes())
    report, data = check(store), gather(store).data
    for target, content in contents.items():
        target.write_bytes(content)
    assert set(report.damaged) == {4}
    assert data["status"].values.ravel()[4] == "damaged"
    assert np.isnan(data["final_loss"].values.ravel()[4])


def test_the_command_says_three_names_the_file_and_repairs(store):
    chunk = open_store(store).chunk("curves", 1)
    chunk.unlink()
    code, out, err = run("sweep", "check", store)
    assert code == 3
    assert err == f"{chunk}: is missing\n"
    assert "1 runs are damaged" in out
    assert run("sweep", "check", store, "--repair", "--workers", 0)[0] == 0
    assert run("sweep", "check", store)[0] == 0


def test_a_store_without_any_description_is_damaged_beyond_repair(store):
    contents = {name: (store / name).read_bytes() for name in ("sweep.json", "sweep.copy.json")}
    for name in contents:
        (store / name).write_bytes(b"{}")
    code, _, err = run("sweep", "check", store, "--repair")
    for name, content in contents.items():
        (store / name).write_bytes(content)
    assert code == 3
    assert "neither sweep.json nor its copy is intact" in err
    assert err.count("\n") == 1
