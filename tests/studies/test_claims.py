"""Claims can fail: every number exceeds its bound once a deliberate mistake is made."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iclflow.cli import main
from iclflow.studies import SUBJECTS, every_claim
from iclflow.studies.study import STUDIES

ROOT = Path(__file__).parents[2]
CLAIMS = every_claim()
QUICK = [c.name for c in CLAIMS.values() if c.quick]
PRINTED = {c["id"]: c for c in json.loads((ROOT / "docs" / "claims.json").read_text())["claims"]}


def number(name, **settings):
    """The number of a claim."""
    return CLAIMS[name].measure(**settings).measured[0].number


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_claim_holds_and_gives_the_number_that_the_readme_prints(name, quiet):
    """A fresh measurement is within the bound, and is the printed number up to rounding errors."""
    measured = number(name)
    assert measured <= CLAIMS[name].bound
    assert measured == pytest.approx(PRINTED[name]["measured"], rel=0.05, abs=1e-9)


@pytest.mark.parametrize("subject", [subject for chapter in SUBJECTS.values() for subject in chapter])
def test_every_claim_fails_when_sabotaged(subject, quiet):
    """A deliberate mistake breaks the bound; the claims of a subject share their runs."""
    claims = every_claim(subject)
    assert claims
    unbroken = [name for name, claim in claims.items() if number(name, sabotage=True) <= claim.bound]
    assert unbroken == []


def test_every_claim_says_what_it_measures_and_where_it_comes_from():
    for claim in CLAIMS.values():
        assert len(claim.title) > 20
        assert claim.title.endswith(".")
        assert claim.source
        assert claim.text


def offsets():
    """What has been measured at other seeds, by claim."""
    rows = [json.loads(line) for line in (ROOT / "docs" / "claims_at_offsets.jsonl").read_text().splitlines()]
    return {name: [row["measured"] for row in rows if row["id"] == name] for name in {row["id"] for row in rows}}


def test_no_claim_was_beyond_its_bound_at_other_seeds():
    assert set(offsets()) <= set(CLAIMS)
    beyond = {name: max(numbers) for name, numbers in offsets().items() if not max(numbers) <= CLAIMS[name].bound}
    assert beyond == {}


def test_bounds_mean_something():
    """At most five times the median over offsets, unless it counts cases or sits at rounding."""
    loose = {}
    for name, numbers in offsets().items():
        bound, middle = CLAIMS[name].bound, float(np.median(numbers))
        counts = bound == int(bound) and all(number == int(number) for number in numbers)
        if len(numbers) >= 3 and not counts and middle > 1e-9 and bound > 5 * middle:
            loose[name] = bound / middle
    assert loose == {}


def test_claims_about_small_weights_name_their_size():
    """Near ties are rare only where weights are small: a sentence without a size cannot be checked."""
    for name in ("staircase-heads", "staircase-drop-times", "staircase-loss-curve", "staircase-order", "rank-2-waits"):
        assert re.search(r"1e-3|2e-4", CLAIMS[name].title), name


def test_the_networks_lose_their_vector_blocks_and_not_their_number():
    """A sabotage that returned infinity would break nothing."""
    for name in ("mlp-sample-free", "convolution-sample-free"):
        broken = number(name, sabotage=True)
        assert np.isfinite(broken)
        assert broken > CLAIMS[name].bound


def test_verify_lists_measures_and_writes(capsys, tmp_path):
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "mlp-population", "--json", str(tmp_path / "c.json")])
    assert left.value.code == 0
    [outcome] = json.loads((tmp_path / "c.json").read_text())["claims"]
    assert {"id", "statement", "source", "measured", "bound", "status"} <= set(outcome)
    assert outcome["status"] == "pass"
    with pytest.raises(SystemExit):
        main(["verify", "--list"])
    assert "mlp-population" in capsys.readouterr().out


def test_a_claim_that_does_not_hold_has_exit_code_one(capsys, monkeypatch):
    true = CLAIMS["mlp-population"]
    broken = replace(true, function=lambda sabotage, offset: true.function(sabotage=True))
    broken.function.__module__ = true.function.__module__
    monkeypatch.setitem(STUDIES, "mlp-population", broken)
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "mlp-population"])
    assert left.value.code == 1
    assert "FAIL" in capsys.readouterr().out


def test_the_offset_shifts_the_seeds_of_weights_data_and_task(monkeypatch, quiet):
    """Whatever a seeded claim trains has seeds that moved with the offset; one without seeds trains the same."""
    import iclflow as icl

    drawn = []
    trained = icl.train
    monkeypatch.setattr(
        icl,
        "train",
        lambda task, *given, **settings: (
            drawn.append((task.task_seed, settings["seed"])) or trained(task, *given, **settings)
        ),
    )
    numbers = [number("mlp-sample-frozen", offset=offset) for offset in (7, 8)]
    assert drawn == [(7, 7), (7, 7), (8, 8), (8, 8)]
    assert max(numbers) <= CLAIMS["mlp-sample-frozen"].bound
    assert number("fixed-points-loss", offset=7) == number("fixed-points-loss")


def test_every_measure_takes_an_offset_and_every_seeded_one_uses_it():
    for claim in CLAIMS.values():
        code = inspect.getsource(claim.function)
        assert inspect.signature(claim.function).parameters["offset"].default == 0, claim.name
        assert (code.count("offset") > 1) == (claim.seeds != "none"), claim.name


def test_verify_passes_the_offset_on(capsys, monkeypatch, tmp_path):
    true = CLAIMS["mlp-population"]
    echo = replace(true, function=lambda sabotage, offset: float(offset), bound=41)
    echo.function.__module__ = true.function.__module__
    monkeypatch.setitem(STUDIES, "mlp-population", echo)
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "mlp-population", "--offset", "42", "--json", str(tmp_path / "c.json")])
    assert left.value.code == 1
    written = json.loads((tmp_path / "c.json").read_text())
    assert written["offset"] == written["claims"][0]["measured"] == 42
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "mlp-population", "--offset", "-1"])
    assert left.value.code == 2
    assert "offset: -1 must be" in capsys.readouterr().err


def test_an_unknown_claim_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "nonsense"])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("iclflow: only: 'nonsense' must be")


def test_the_page_of_claims_lists_every_claim_with_its_bound():
    page = (ROOT / "docs" / "claims.md").read_text()
    assert set(PRINTED) == set(CLAIMS)
    for name, claim in CLAIMS.items():
        assert PRINTED[name]["bound"] == claim.bound
        assert f"(`{name}`)" in page
