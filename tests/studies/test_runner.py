"""Finished pieces are kept: reuse, resumption after kill -9, and refusals that change nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import iclflow.studies
from iclflow.errors import BadInput
from iclflow.studies import FILES, SUBJECTS, every_claim, figure_named, folder, runner
from iclflow.studies.runner import reproduce
from iclflow.studies.study import STUDIES
from iclflow.system.lock import only_writer

QUICK = "icl-iwl"
IMAGES = ("pdf", "png", "svg")


def command(out: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess:
    line = [sys.executable, "-m", "iclflow", "reproduce", *arguments, "--fast", "--out", str(out)]
    line = ["sh", "-c", f'{before}; exec "$@"', "sh", *line] if before else line
    return subprocess.run(line, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("made") / "results"
    done = command(out, QUICK)
    assert done.returncode == 0, done.stderr
    assert "index.html: 1 figures" in done.stdout
    return out


@pytest.fixture
def copy(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "results"))


def contents(where: Path) -> dict[str, tuple[bytes, int]]:
    return {str(f.relative_to(where)): (f.read_bytes(), f.stat().st_mtime_ns) for f in where.rglob("*") if f.is_file()}


def test_a_figure_has_pictures_numbers_settings_and_its_gap(made):
    where = made / "figures" / QUICK
    names = {str(f.relative_to(where)) for f in where.rglob("*") if f.is_file()}
    others = {f"{QUICK}.csv", f"{QUICK}.py", "settings/p-0.toml", "settings/p-0.6.toml", "README.md", "piece.json"}
    assert {f"{QUICK}.{kind}" for kind in IMAGES} | others == names
    assert json.loads((where / "piece.json").read_text())["gaps"][0]["measured"] < 0.1
    said = (where / "README.md").read_text()
    assert all(f"`{name}`" in said or name.startswith("settings/") for name in others - {"README.md"})
    assert f"iclflow reproduce {QUICK} --out results --fast" in said


def test_a_folder_that_is_handed_on_draws_its_figure_again(made, tmp_path):
    where = Path(shutil.copytree(made / "figures" / QUICK, tmp_path / "handed on"))
    (tmp_path / "elsewhere").mkdir()
    line = [sys.executable, str(where / f"{QUICK}.py")]
    done = subprocess.run(line, cwd=tmp_path / "elsewhere", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert {f.name for f in (tmp_path / "elsewhere").iterdir()} == {f"{QUICK}.{k}" for k in (*IMAGES, "csv")}
    assert (tmp_path / "elsewhere" / f"{QUICK}.csv").read_bytes() == (where / f"{QUICK}.csv").read_bytes()
    line = [sys.executable, "-m", "iclflow", "train", "--config", str(where / "settings" / "p-0.toml")]
    done = subprocess.run([*line, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_finished_piece_is_used_again_and_a_damaged_one_is_not(copy):
    before = contents(copy / "figures")
    assert "cached" in command(copy, QUICK).stdout
    assert contents(copy / "figures") == before
    (copy / "figures" / QUICK / f"{QUICK}.csv").write_text("1,2,3\n")
    assert folder.finished(copy, ("figures", QUICK), fast=True) is None


def test_every_flipped_bit_of_piece_json_is_found(copy):
    file, dice = copy / "figures" / QUICK / "piece.json", random.Random(0)
    good = file.read_bytes()
    assert folder.finished(copy, ("figures", QUICK), fast=True)
    for _ in range(2000 if os.environ.get("ICLFLOW_RELIABILITY") == "full" else 300):
        bit, bad = dice.randrange(8 * len(good)), bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        assert folder.finished(copy, ("figures", QUICK), fast=True) is None, bit


def test_a_second_reproduction_is_refused_before_it_clears_anything(copy):
    at_work = copy / "figures" / f".{QUICK}.0123abcd.partial"
    at_work.mkdir()
    with only_writer(copy), pytest.raises(BadInput, match="is being written by process"):
        reproduce(QUICK, out=copy, fast=True)
    assert at_work.exists()
    reproduce(QUICK, out=copy, fast=True)
    assert not at_work.exists()


def test_a_change_of_the_program_makes_a_piece_anew_and_of_another_figure_does_not(copy, monkeypatch):
    assert folder.finished(copy, ("figures", QUICK), fast=True)
    assert folder.finished(copy, ("figures", QUICK), fast=False) is None
    hashes = folder.source_hash
    monkeypatch.setattr(folder, "source_hash", lambda name: hashes(name) + ("x" if name == "ranks.py" else ""))
    assert folder.finished(copy, ("figures", QUICK), fast=True)
    monkeypatch.setattr(folder, "source_hash", lambda name: hashes(name) + ("x" if name == "in_weight.py" else ""))
    assert folder.finished(copy, ("figures", QUICK), fast=True) is None
    monkeypatch.setattr(folder, "source_hash", hashes)
    monkeypatch.setattr(folder, "package_hash", lambda: "another")
    assert folder.finished(copy, ("figures", QUICK), fast=True) is None


def test_after_a_kill_it_resumes_and_leaves_no_process(tmp_path):
    out, names = tmp_path / "results", (QUICK, "rank-weights")
    line = [sys.executable, "-m", "iclflow", "reproduce", *names, "--fast", "--workers", "1", "--out", str(out)]
    parent = subprocess.Popen(line, stdout=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: (out / "figures" / QUICK / "piece.json").exists(), 120)
    children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not any(alive(pid) for pid in children), 10)
    leftover, mine = out / "figures" / ".half-written.0123abcd.partial", out / "figures" / ".mine"
    leftover.mkdir()
    mine.mkdir()
    first = contents(out / "figures" / QUICK)
    done = command(out, *names)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cached") == 1
    assert contents(out / "figures" / QUICK) == first
    assert not leftover.exists()
    assert mine.exists()
    assert (out / "index.html").exists()


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_full_disk_is_exit_4_in_one_line_and_nothing_is_lost(copy):
    before = contents(copy / "figures")
    done = command(copy, "icl-iwl", "rank-weights", before="ulimit -f 8")  # no file above 4 KiB
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "File too large" in done.stderr
    assert contents(copy / "figures") == before
    assert not (copy / "figures" / "rank-weights").exists()


@pytest.mark.parametrize("kind", ["foreign", "file", "name", "workers"])
def test_refusals_are_one_line_and_write_nothing(tmp_path, kind):
    out = tmp_path / "results"
    if kind == "foreign":
        out.mkdir()
        (out / "thesis.tex").write_text("years of work")
    if kind == "file":
        out.write_text("a file")
    extra = {"name": ["abrupt"], "workers": ["--workers", "0"]}.get(kind, [QUICK])
    before = contents(tmp_path)
    done = command(out, *extra)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    done = command(tmp_path / "closed" / "results", QUICK)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_second_writer_is_refused(copy):
    with only_writer(copy), pytest.raises(BadInput, match="is being written by process"):
        reproduce(QUICK, out=copy, fast=True)


def test_a_figure_that_fails_is_reported_and_the_others_are_made(copy, monkeypatch):
    monkeypatch.setattr(iclflow.studies, "NAMES", (*iclflow.studies.NAMES, "broken"))
    monkeypatch.setattr("iclflow.studies.runner.NAMES", iclflow.studies.NAMES)
    monkeypatch.setattr(folder, "fingerprint", lambda piece: "")
    reproduction = reproduce("broken", out=copy, fast=True)
    assert [outcome.piece for outcome in reproduction.failed] == [("figures", "broken")]
    assert "broken" in (copy / "index.html").read_text()


def test_the_paper_and_the_chapter_beyond_it_have_claims_of_their_own(tmp_path, monkeypatch):
    wanted = []
    monkeypatch.setattr(runner, "all_outcomes", lambda pieces, *rest: wanted.append(pieces) or iter(()))
    for names, claims in (((), None), (("beyond",), None), (("beyond",), True)):
        reproduce(*names, out=tmp_path / "r", claims=claims)
    measured = [{name for kind, name in pieces if kind == "claims"} for pieces in wanted]
    assert measured == [set(SUBJECTS["paper"]), set(), set(SUBJECTS["beyond"])]


def test_claims_are_measured_by_subject(tmp_path):
    folder.open_folder(tmp_path / "r")
    record = runner.make(("claims", "equivalence"), tmp_path / "r", True)
    assert {claim["status"] for claim in record["claims"]} == {"pass"}
    assert folder.finished(tmp_path / "r", ("claims", "equivalence"), True)


def test_every_study_stands_in_a_file_that_the_registry_names():
    claims, _ = every_claim(), [figure_named(name) for name in FILES]
    files = {f"{chapter}.{subject}" for chapter, subjects in SUBJECTS.items() for subject in subjects} | {
        *FILES.values()
    }
    there = {f"{file.parent.name}.{file.stem}" for chapter in folder.CHAPTERS for file in chapter.glob("*.py")}
    assert files == there
    assert {s.name for s in STUDIES.values()} == {*claims, *FILES}
    for name in (name for name, study in STUDIES.items() if study.bound is None):
        assert STUDIES[name].function.__module__ == f"iclflow.studies.{FILES[name]}"


def test_a_piece_depends_on_its_own_file_and_on_those_that_it_imports():
    assert folder.sources("ranks.py") == {"ranks.py"}
    assert folder.sources("variants.py") == {"variants.py", "ranks.py"}
    assert folder.fingerprint(("figures", "decay")) != folder.fingerprint(("figures", "ranks"))
