"""The chapter beyond the paper: every file of `paper/beyond` is a figure of it, in the same report."""

import numpy as np
import pytest

from iclflow.errors import BadInput
from iclflow.experiment import Experiment
from iclflow.paper import BEYOND, CHAPTER, NAMES, figure_module, figures_named, folder
from iclflow.paper.outcomes import Outcome, Reproduction
from iclflow.paper.report import write_report
from looks import complaints

FAST_BOUNDS = {  # of the first gap; the report shows those of the full preset
    "decay": 0,
    "drop-time-distribution": 0.9,
    "scaling-laws": 5e-3,
    "task-diversity": 1e-3,
    "edge": 0.05,
    "optimisers": 0.03,
    "depth": 0.02,
    "depth-context": 0.05,
    "depth-weights": 0.05,
    "minibatches": 0.1,
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_figure_draws_and_its_theory_is_near(name, quiet):
    drawn = figure_module(name).draw(fast=True)
    assert drawn.gaps[0].measured <= FAST_BOUNDS[name], drawn.gaps[0]
    for table in drawn.numbers.values():
        assert len(table) > 2
        assert np.isfinite(table.select_dtypes("number").to_numpy()).any(axis=0).all()
    assert all(isinstance(experiment, Experiment) for experiment in drawn.experiments.values())
    assert complaints(drawn.figure) == []


@pytest.mark.parametrize("name", BEYOND)
def test_a_figure_says_what_to_see(name):
    module = figure_module(name)
    title, _, see = module.__doc__.partition("\n")
    assert title.endswith(".")
    assert len(see.split()) > 30
    assert module.SOURCE == "beyond the paper"


def test_no_name_is_the_paper_and_beyond_is_its_chapter():
    assert figures_named([]) == NAMES
    assert figures_named([CHAPTER]) == BEYOND
    assert figures_named(["ranks", CHAPTER, "decay"])[0] == "ranks"
    assert len(figures_named([CHAPTER, "decay"])) == len(BEYOND)
    assert not set(BEYOND) & {*NAMES, CHAPTER}
    with pytest.raises(BadInput, match="name: 'decays' must be one of .*, beyond, "):
        figures_named(["decays"])


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


def test_a_figure_beyond_the_paper_leaves_the_papers_pieces_alone():
    assert folder.is_a_figure(folder.PACKAGE / "paper" / "beyond" / "decay.py")
    assert folder.fingerprint(("figures", "decay")) != folder.fingerprint(("figures", "ranks"))
