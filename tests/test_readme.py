"""What the README and the docstrings show runs as it stands."""

import doctest
import re
import runpy
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import pytest

from commands import call

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in (ROOT / "src").rglob("*.py")
    if ">>> " in path.read_text()
)
HOW_TOS = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("[a-z]*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def test_the_lines_of_python_run(tmp_path, monkeypatch, quiet):
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "loss.pdf").stat().st_size > 1000
    assert names["run"].status == "ok"


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_every_example_runs(path, tmp_path, monkeypatch):
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path))["main"]()
    assert list(tmp_path.iterdir())


ALONE = [path for path in HOW_TOS if path.stem != "new-model"]  # its blocks are files: tests/test_new_model.py


@pytest.mark.parametrize("path", ALONE, ids=[p.stem for p in ALONE])
def test_the_python_of_every_how_to_runs(path, tmp_path, monkeypatch, quiet):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)
    for block in blocks:
        exec(compile(block, path.name, "exec"), {})


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_print_what_they_say(name, quiet):
    done = doctest.testmod(import_module(name))
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_pages_with_measured_numbers_are_those_that_the_script_writes():
    for path, text in runpy.run_path(str(ROOT / "docs" / "fill_readme.py"))["pages"]().items():
        assert path.read_text() == text, path.name


def test_the_readme_is_a_page_of_at_most_900_words():
    assert len((ROOT / "README.md").read_text().split()) < 900


def test_the_first_command_prints_what_the_readme_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    [command] = re.findall(r"^iclflow (train .*)$", text, flags=re.MULTILINE)
    [shown] = re.findall(r"<!-- first -->\n```console\n(.*)\n```", text)
    code, out, _ = call(capsys, *command.split())
    assert code == 0
    without_seconds = lambda line: re.sub(r"[\d.]+ s\b", "", line).split("; loss")[1].strip()
    words = lambda line: re.sub(r"\d[\d.e+-]*", "0", without_seconds(line))
    assert words(out) == words(shown)
    assert re.findall(r"loss .* in 4 drops", out) == re.findall(r"loss .* in 4 drops", shown)


def test_the_page_of_speed_has_every_part_of_the_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    script = runpy.run_path(str(ROOT / "docs" / "fill_readme.py"))
    assert list(script["PARTS"]) == list(import_module("benchmarks.__main__").PARTS)


@pytest.mark.parametrize("path", BENCHMARKS, ids=[p.stem for p in BENCHMARKS])
def test_the_benchmarks_fit_the_package(path, monkeypatch):
    """What they import from it is there."""
    monkeypatch.syspath_prepend(ROOT)
    import_module(f"benchmarks.{path.stem}")


def test_the_benchmark_of_depth_measures_every_size(monkeypatch, quiet):
    monkeypatch.syspath_prepend(ROOT)
    rows = import_module("benchmarks.depth").on_gram_matrices(quick=True)
    assert [row.what for row in rows[:5]] == ["N = 8", "N = 32", "layers 4", "layers 6", "tokens, N = 32"]
    assert all(row.value > 0 for row in rows[:5])
