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


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_print_what_they_say(name, quiet):
    done = doctest.testmod(import_module(name))
    assert done.attempted > 0
    assert done.failed == 0


def test_links_in_the_readme_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target
