"""What the README and the docstrings show runs as it stands."""

import doctest
import re
import runpy
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in (ROOT / "src").rglob("*.py")
    if ">>> " in path.read_text()
)
HOW_TOS = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
