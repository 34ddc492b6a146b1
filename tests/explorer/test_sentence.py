"""What the sentence says is true at every time of a run: checked against the run itself."""

import re
from functools import cache

import numpy as np
import pytest

from iclflow.comparison.plateaus import find_drops
from iclflow.explorer.detail import cut_down, detail_of, probed
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.sentence import WORDS
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import outline, theory_view
from iclflow.training.start import run_experiment

STAIRS = ("Fig. 3: saddle to saddle, smaller weights", "Short context", "Noisy labels")
LAYERS, DECAY = "Two layers: a second staircase", "Weight decay cuts the staircase off"


@cache
def told(name):
    state = PRESETS[name]
    run = run_experiment(state.experiment(state.seed), progress=False, roomy=True)
    view, detail = theory_view(state), probed(detail_of(cut_down(run)))
    return run, view, detail, detail.payload(view.prediction)["sentences"]


def number(words, pattern):
    found = re.search(pattern, words)
    return None if found is None else float(found.group(1))


@pytest.mark.parametrize("name", STAIRS)
def test_the_sentence_is_true_at_every_time_of_a_staircase(quiet, name):
    run, view, detail, sentences = told(name)
    observed = find_drops(run.time.values, run.loss.values).times
    kinds = set()
    for t, gain, words in zip(detail.time, detail.gains, sentences, strict=True):
        kinds.add(words.split()[0])
        near = np.abs(t / observed - 1).min() < 0.02  # where two thinned curves may differ about what is over
        learned = re.search(r"(\w+) of \w+ components learned", words)
        assert learned is None or WORDS.index(learned[1]) == (gain > 0.5).sum(), (t, gain, words)
        if words.startswith("plateau") and not near:
            assert number(words, r"plateau (\d+)") == 1 + (observed <= t).sum(), (t, words)
        if words.startswith("drop"):
            one = int(number(words, r"component (\d+) is")) - 1
            assert np.abs(t / observed[int(number(words, r"drop (\d+)")) - 1] - 1) < 0.2, (t, words)
            assert 0.001 < gain[one] < 1.2, (t, gain, words)
        coming, said = number(words, r"next drop at t = ([\d.e+]+)"), number(words, r"predicted ([\d.e+]+)\)")
        assert coming is None or near or coming == pytest.approx(observed[observed > t][0], rel=2e-3), (t, words)
        assert said is None or np.isclose(view.drops, said, rtol=1e-3).any(), (t, words)
        assert not words.startswith(("the end", "the heads")) or t > observed[-1], (t, words)
    assert kinds == {"plateau", "drop", "the"}


def test_a_forecast_that_is_late_or_early_does_not_move_the_drop(quiet):
    """Between the predicted and the true time of a drop the sentence once pointed to the drop after it."""
    run, view, detail, _ = told(STAIRS[0])
    true = find_drops(run.time.values, run.loss.values).times
    for factor in (0.9, 1.1):
        moved = view.prediction.moved(factor * view.prediction.drop_times)
        for t, words in zip(detail.time, detail.payload(moved)["sentences"], strict=True):
            coming, near = number(words, r"next drop at t = ([\d.e+]+)"), np.abs(t / true - 1).min() < 0.01
            assert coming is None or near or coming == pytest.approx(true[true > t][0], rel=2e-3), (t, words)


@pytest.mark.parametrize("name", [*STAIRS, DECAY])
def test_before_a_simulation_the_sentence_is_marked_as_theory(name):
    for words in {*theory_view(PRESETS[name]).payload()["sentences"], *outline(PRESETS[name]).payload()["sentences"]}:
        assert words == "" or words.startswith("theory: ")
        assert "the end" not in words
        assert "components learned" not in words


def test_several_layers_are_told_by_their_loss(quiet):
    run, _, detail, sentences = told(LAYERS)
    observed = find_drops(run.time.values, run.loss.values).times
    assert len(observed) == 4  # two directions, each learned twice
    for t, words in zip(detail.time, sentences, strict=True):
        if words.startswith("plateau"):
            assert number(words, r"plateau (\d+) of 5") == 1 + np.sum(observed < t), (t, words)
        else:
            assert words.startswith(("drop", "after the last drop")), words


def test_decay_is_said_to_keep_components_from_being_learned(quiet):
    _, view, detail, sentences = told(DECAY)
    never = [i + 1 for i in view.prediction.never]
    assert 0 < len(never) < 4
    assert re.findall(r"\d+", sentences[-1].split("keeps")[1]) == [str(i) for i in never]
    assert (np.abs(detail.gains[-1][[i - 1 for i in never]]) < 0.01).all()


@pytest.mark.parametrize("values", [{"log_lr": 1, "log_init": 0.3}, {"log_lr": 0.6, "log_init": -1}])
def test_a_run_that_went_wrong_says_so_in_words(quiet, values):
    state = State.read({"rule": "descent", "seeds": 1, **values})
    run = cut_down(run_experiment(state.experiment(0), progress=False, roomy=True))
    assert run.status in ("diverged", "unstable")
    detail = probed(detail_of(run))
    sentences = detail.payload(None)["sentences"]
    assert re.match(r"training (has diverged|is unstable): ", sentences[-1])
    assert all(re.match(r"training (has diverged|is unstable)|this run diverges", words) for words in sentences)
    assert set(detail.algorithms) <= {"none, because training has diverged", "none, because training is unstable"}
