"""Maths in the report is set as maths: in claims, in gaps, in what to see; text stays text."""

import re
from pathlib import Path

import pytest

from iclflow.studies import BEYOND, NAMES, every_claim, figure_named
from iclflow.studies.maths import FORMULAS, bare, with_maths
from iclflow.studies.report import PLACES, Outcome, Reproduction, place_in_paper
from iclflow.studies.study import ELSEWHERE

PLAIN_MATHS = r"[\^_|~$\\]|sqrt|\d/|/\d|=|\d[eE][-+]?\d"


def words(text: str) -> str:
    """What is left of a text without formulas and code."""
    return re.sub(r"<math.*?</math>|<code>.*?</code>|<[^>]*>", " ", str(with_maths(text)))


@pytest.mark.parametrize("claim", every_claim().values(), ids=lambda claim: claim.name)
def test_no_formula_of_a_claim_is_left_in_plain_letters(claim):
    for text in (claim.title, claim.text):
        assert not re.search(PLAIN_MATHS, words(text)), words(text)


@pytest.mark.parametrize("name", [*NAMES, *BEYOND])
def test_no_formula_of_a_figure_is_left_in_plain_letters(name):
    figure = figure_named(name)
    assert not re.search(PLAIN_MATHS, words(f"{figure.title}. {figure.text}"))


def test_formulas_become_mathml_and_markup_stays_text():
    assert "<msup><mn>10</mn>" in with_maths("init 1e-3")
    assert "<mo>&#x000D7;</mo>" in with_maths("2e-4 an entry")
    assert str(with_maths(r"$\gamma T$ below")).endswith("</math> below")
    assert str(with_maths("`init` <b>")) == "<code>init</code> &lt;b&gt;"
    assert str(with_maths("(`a`, $x$), $y$")).count("<math") == 2
    glued = str(with_maths("($x$), a $y$ b; 1e-3."))
    assert "&lt;" not in glued
    assert glued.count("glued") == 2
    assert glued.endswith("</math>.</span>")
    assert "<script" not in with_maths("$<script>$ and <script>")
    assert with_maths("nothing to set here; seed 10") == "nothing to set here; seed 10"
    assert bare(r"the gain $\sigma$ of `init`") == "the gain sigma of init"


def test_every_known_formula_is_maths():
    for latex in FORMULAS.values():
        assert with_maths(f"${latex}$").startswith("<math")


def test_claims_come_in_the_order_of_the_paper():
    for claim in every_claim().values():
        assert (place_in_paper(claim.source) == len(PLACES)) == (claim.source == ELSEWHERE), claim.source
    made = Reproduction(Path())
    for subject, sources in {"depth": [ELSEWHERE], "merged": ["Eq. 9", ELSEWHERE], "equivalence": ["Eq. 6, 7"],
                             "ranks": ["Fig. 4", "Fig. 3a"]}.items():  # fmt: skip
        claims = [{"id": f"{subject} {source}", "source": source} for source in sources]
        made.outcomes.append(Outcome(("claims", subject), {"claims": claims}))
    assert [claim["id"] for claim in made.claims] == [
        "equivalence Eq. 6, 7", "merged Eq. 9", "ranks Fig. 3a", "ranks Fig. 4",
        f"merged {ELSEWHERE}", f"depth {ELSEWHERE}",
    ]  # fmt: skip
