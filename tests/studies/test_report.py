"""The report opens from disk in a real browser, shows every figure, and sends no network request."""

import json
import re

import pytest

from browser import needs_browser, open_browser
from iclflow.experiment import Experiment
from iclflow.studies import NAMES, folder
from iclflow.studies.report import Outcome, Reproduction, write_report

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="100"><rect width="300" height="100"/></svg>'
RUN = Experiment.from_flat({"model": "merged", "heads": 6, "lr": 0.25}).flat()
MARKUP = '<script>window.caught = true</script>"&'


@pytest.fixture
def page(tmp_path):
    """A report of three figures whose texts contain markup, one failed figure and two claims."""
    folder.open_folder(tmp_path)
    reproduction = Reproduction(tmp_path, seconds=1.0)
    for name in NAMES[:3]:
        facts = {
            "title": f"Title of {name}", "see": f"See $D = 4$ {MARKUP}", "source": "Fig. 0", "seconds": 1.5,
            "versions": {},
            "gaps": [{"what": "gap", "measured": 0.00123}], "runs": {"a": RUN, "b": {**RUN, "heads": 7}},
        }  # fmt: skip
        write = lambda where, name=name: (where / f"{name}.svg").write_text(PICTURE)
        record = folder.keep(tmp_path, ("figures", name), False, facts, write)
        reproduction.outcomes.append(Outcome(("figures", name), record))
    reproduction.outcomes.append(Outcome(("figures", NAMES[3]), None, error=f"ValueError: {MARKUP}"))
    claim = {"id": "a", "statement": "It holds.", "source": "Eq. 1", "quantity": "error", "seeds": "none"}
    claims = [
        {**claim, "measured": 0.5, "bound": 1.0, "status": "pass"},
        {**claim, "id": "b", "measured": 2.0, "bound": 1.0, "status": "fail"},
    ]
    reproduction.outcomes.append(Outcome(("claims", "x"), {"claims": claims, "seconds": 1.0}))
    write_report(reproduction)
    return tmp_path / "index.html"


def in_view(tab) -> bool:
    """Whether the contents are in view after scrolling to the end."""
    tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    box = tab.evaluate("(({top, bottom}) => ({top, bottom}))(document.querySelector('nav').getBoundingClientRect())")
    return box["top"] > -1 and box["bottom"] > 20


def fits(tab) -> bool:
    """Whether the page is no wider than its window."""
    return tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@needs_browser
def test_the_page_opens_from_disk_complete_and_without_the_network(page):
    with open_browser() as browser:
        tab = browser.new_page()
        schemes, complaints = [], []
        tab.on("request", lambda request: schemes.append(request.url.split(":")[0]))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(page.as_uri())
        widths = tab.eval_on_selector_all("figure img", "all => all.map(image => image.naturalWidth)")
        alternatives = tab.eval_on_selector_all("figure img", "all => all.map(image => image.alt.length)")
        headings = tab.eval_on_selector_all("h2", "all => all.map(h => h.textContent)")
        caught = tab.evaluate("window.caught === undefined")
        overflow = tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        verdicts = tab.eval_on_selector_all("tbody td:last-child", "all => all.map(td => td.textContent)")
        light = [in_view(tab), fits(tab)]
        tab.set_viewport_size({"width": 390, "height": 800})
        narrow = [in_view(tab), fits(tab)]
        broken = tab.eval_on_selector_all(
            "a[href^='#']", "all => all.filter(a => !document.getElementById(a.hash.slice(1))).length"
        )
    assert (light, narrow) == ([True, True], [True, True]), "contents in view, no page wider than its window"
    assert widths == [300, 300, 300]
    assert min(alternatives) > 20
    assert headings == [*(f"Title of {name}" for name in NAMES[:3]), "All claims", "How this was made"]
    assert caught, "text became markup"
    assert overflow, "the page is wider than the window"
    assert verdicts == ["pass", "fail"]
    assert broken == 0
    assert set(schemes) <= {"file", "data"}
    assert complaints == []


def test_settings_stand_beside_their_figure_and_maths_is_maths(page):
    text = page.read_text()
    section = text[text.index(f'<section id="{NAMES[0]}"') : text.index(f'<section id="{NAMES[1]}"')]
    assert "<dt>heads</dt><dd>6; 7</dd>" in section
    assert "<dt>lr</dt><dd>0.25</dd>" in section
    assert "<dt>dim</dt><dd>4</dd>" in section
    assert "<dt>label noise</dt>" not in section  # at its default
    assert "<mi>D</mi><mo>&#x0003D;</mo><mn>4</mn>" in section
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", text)


def test_the_page_says_what_failed_what_is_missing_and_how_to_run_it(page):
    text = page.read_text()
    assert f"{NAMES[3]} failed" in text
    assert f"iclflow reproduce {NAMES[0]}" in text
    assert "1 of 2 claims hold" in text
    assert NAMES[-1] in text
    assert "<script>" not in text
    assert json.loads((page.parent / folder.MARK).read_text())["made_by"]


def test_the_chapter_stands_behind_the_paper_in_one_report(tmp_path):
    folder.open_folder(tmp_path)
    made = Reproduction(tmp_path)
    facts = {"see": "See.", "source": "Fig. 0", "seconds": 1.0, "gaps": [], "runs": {}}
    for name in ("decay", "ranks"):
        write = lambda where, name=name: (where / f"{name}.svg").write_text("<svg/>")
        record = folder.keep(tmp_path, ("figures", name), False, {**facts, "title": f"Title of {name}"}, write)
        made.outcomes.append(Outcome(("figures", name), record))
    write_report(made)
    page = (tmp_path / "index.html").read_text()
    places = [page.index(f"{text}</h") for text in ("Title of ranks", "Beyond the paper", "Title of decay", "made")]
    assert places == sorted(places)
    assert "1 figures, 1 beyond the paper" in page
