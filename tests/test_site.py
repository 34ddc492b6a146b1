"""The documentation site: every page and every public name is on it, and it opens from disk."""

import importlib.util
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from browser import CHROMIUM, open_browser

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "site"))
import api_pages  # noqa: E402
import docstrings  # noqa: E402
import names  # noqa: E402
import offline  # noqa: E402
import pages  # noqa: E402

SPHINX = all(importlib.util.find_spec(name) for name in ("sphinx", "furo", "myst_nb", "latex2mathml", "ziamath"))
needs_sphinx = pytest.mark.skipif(not SPHINX, reason="no Sphinx here: make docs installs it")


def public_names() -> list[str]:
    """Every name of the front door, of `icl.theory`, `icl.figures`, and of each module of the rooms shown whole."""
    found = [f"iclflow.{name}" for name in names.module("").public if name not in api_pages.DOORS]
    found += [f"iclflow.{door}.{name}" for door in api_pages.DOORS for name in names.module(door).public]
    modules = [module for room in names.WHOLE for module in names.modules_of(room)]
    return found + [f"iclflow.{module}.{name}" for module in modules for name in names.module(module).public]


# --- what is on it ----------------------------------------------------------------------------------------------------


def test_every_page_of_the_documentation_and_every_notebook_is_in_the_sidebar():
    shown = {page for section in pages.sections().values() for page in section if isinstance(page, Path)}
    written = {*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb"), ROOT / "CHANGELOG.md"}
    assert written - shown == {pages.START, *pages.NOT_SHOWN}
    assert all(page.is_file() for page in shown)


def test_the_index_of_the_repository_links_every_page():
    text = (ROOT / "docs" / "README.md").read_text()
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", text)}
    shown = {page for section in pages.sections().values() for page in section if isinstance(page, Path)}
    assert linked >= shown


def test_the_order_of_pages_names_pages_that_exist():
    for folder, first in pages.FIRST.items():
        assert {page.stem for page in pages.folder(folder)} >= set(first)


def test_no_public_name_is_missing_in_the_reference():
    modules = {f"iclflow.{module}" for room in names.documented().values() for module in room}
    assert len(public_names()) > 300
    assert [name for name in public_names() if names.home(name) not in api_pages.entries().keys() | modules] == []


def test_the_front_door_of_the_reference_is_that_of_the_package():
    import iclflow

    listed = [name for group in api_pages.FRONT.values() for name in group]
    assert sorted([*listed, *api_pages.DOORS]) == sorted(iclflow.__all__)


def test_a_docstring_becomes_text_code_and_fields():
    made = docstrings.to_markdown("Do it.\n\nArgs:\n    x: a number\n        or two.\n\n>>> 1\n1\n\nReturns:\n    It.")
    assert made == "Do it.\n\n\n```pycon\n>>> 1\n1\n```\n\n\n:param x: a number or two.\n:returns: It."
    with pytest.raises(ValueError, match="as `name: meaning`"):
        docstrings.to_markdown("Do it.\n\nArgs:\n    x\n")


def test_keys_and_names_become_links_outside_of_code():
    links = {"iclflow.predict": "{{py:obj}}`{} <iclflow.predict>`"}
    text = "`icl.predict` [`plateau`]\n```python\nicl.predict  # `icl.predict` [`plateau`]\n```"
    made = pages.linked(text, links)
    assert made.startswith("{py:obj}`icl.predict <iclflow.predict>` [[`plateau`](#eq-plateau)]\n")
    assert made.endswith("# `icl.predict` [`plateau`]\n```")
    inside = pages.linked("`````{py:function} f()\n\n`icl.predict`\n```python\n`icl.predict`\n```\n`````", links)
    assert inside.count("{py:obj}") == 1


@pytest.mark.parametrize(
    "body",
    [
        '<script src="https://somewhere/x.js"></script>',
        '<link rel="stylesheet" href="//somewhere/x.css">',
        '<img src="http://somewhere/badge.svg">',
        "<style>@import 'https://somewhere/font.css';</style>",
        '<div style="background: url(https://somewhere/x.png)"></div>',
        '<a href="missing.html">x</a>',
        '<a href="#missing">x</a>',
        '<img src="missing.png">',
    ],
)
def test_what_comes_from_the_network_or_leads_nowhere_is_found(body, tmp_path):
    (tmp_path / "index.html").write_text('<p id="here"><a href="#here">x</a><a href="https://arxiv.org">y</a></p>')
    assert offline.complaints(tmp_path) == []
    (tmp_path / "index.html").write_text(body)
    assert len(offline.complaints(tmp_path)) == 1


# --- built ------------------------------------------------------------------------------------------------------------


@needs_sphinx
def test_the_site_builds_without_a_warning_shows_everything_and_asks_the_network_for_nothing(tmp_path):
    """One test, because the build takes most of its time; warnings of Sphinx and dead links fail it."""
    from iclflow.studies.runner import reproduce

    reproduce("white-time-course", out=tmp_path / "work" / "gallery", fast=True, claims=False, workers=1)
    build = [sys.executable, ROOT / "docs" / "site" / "build.py", "--no-figures", "--work", tmp_path / "work"]
    done = subprocess.run([*build, "--out", tmp_path / "site"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    described = inventory(site)
    modules = {f"iclflow.{module}" for room in names.documented().values() for module in room}
    assert [name for name in public_names() if names.home(name) not in described | modules] == []
    for page in ("index", "gallery", "commands", "api/theory/landscape", "changelog"):
        assert (site / f"{page}.html").is_file()
    derivation = (site / "derivations" / "staircase.html").read_text()
    assert derivation.count("<math") > 90
    assert "$" not in re.sub(r"<(script|style|code|pre)\b.*?</\1>", "", derivation, flags=re.DOTALL)
    assert "<svg" in (site / "tutorial" / "01_staircase.html").read_text()
    assert "white-time-course.svg" in (site / "gallery.html").read_text()
    if CHROMIUM is not None:
        opened_from_disk(site, "index", "derivations/staircase", "gallery", "equations", "search")


def inventory(site: Path) -> set[str]:
    """The names that the built site describes."""
    listing = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    return {line.split()[0] for line in listing.splitlines()}


def opened_from_disk(site: Path, *names: str) -> None:
    """A browser loads each page from files alone, complains about nothing, and it fits a telephone."""
    asked, said = [], []
    with open_browser() as browser:
        tab = browser.new_page(viewport={"width": 390, "height": 800})
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        for name in names:
            tab.goto((site / f"{name}.html").as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
