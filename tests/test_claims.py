"""Claims can fail: every number exceeds its bound once a deliberate mistake is made."""

import json
from pathlib import Path

import pytest

from iclflow.claims import SUBJECTS, every_claim
from iclflow.cli import main

ROOT = Path(__file__).parents[1]
CLAIMS = every_claim()
QUICK = [c.id for c in CLAIMS.values() if c.quick]


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_claim_holds(name, quiet):
    claim = CLAIMS[name]
    assert claim.measure() <= claim.bound


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_claim_fails_when_sabotaged(subject, quiet):
    """A deliberate mistake breaks the bound; the claims of a subject share their runs."""
    claims = [c for c in CLAIMS.values() if c.measure.__module__.endswith(f".{subject}")]
    assert claims
    unbroken = [c.id for c in claims if c.measure(sabotage=True) <= c.bound]
    assert unbroken == []


def test_every_claim_says_what_it_measures_and_where_it_comes_from():
    for claim in CLAIMS.values():
        assert len(claim.statement) > 20
        assert claim.statement.endswith(".")
        assert claim.source
        assert claim.quantity


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
    from dataclasses import replace

    from iclflow.claims.registry import REGISTRY

    broken = replace(CLAIMS["mlp-population"], measure=lambda sabotage=False: CLAIMS["mlp-population"].measure(True))
    monkeypatch.setitem(REGISTRY, "mlp-population", broken)
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "mlp-population"])
    assert left.value.code == 1
    assert "FAIL" in capsys.readouterr().out


def test_an_unknown_claim_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["verify", "--only", "nonsense"])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("iclflow: only: 'nonsense' must be")


def test_the_readme_prints_what_a_fresh_measurement_gives(quiet):
    """Measured again, quick claims give the printed numbers, up to rounding errors."""
    printed = {c["id"]: c for c in json.loads((ROOT / "docs" / "claims.json").read_text())["claims"]}
    readme = (ROOT / "README.md").read_text()
    assert set(printed) == set(CLAIMS)
    for name, claim in CLAIMS.items():
        assert printed[name]["bound"] == claim.bound
        assert f"(`{name}`)" in readme
    for name in QUICK:
        now, then = CLAIMS[name].measure(), printed[name]["measured"]
        assert now == pytest.approx(then, rel=0.05, abs=1e-9), name
