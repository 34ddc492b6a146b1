"""What the sentence says is true at every time of a run, in every preset: checked against the run itself."""

import re
from functools import cache

import numpy as np
import pytest

from iclflow.comparison.plateaus import find_drops
from iclflow.explorer.detail import algorithms, cut_down, detail_of
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.sentence import WORDS, Story
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import outline, theory_view
from iclflow.training.start import run_experiment

EARLY = "a forecast that comes too early"  # at this initial scale theory was once three per cent early
STATES = {EARLY: State.read({"log_init": -1.95}), **PRESETS}
SLOW = "Fig. 4: full rank, D = 8"  # its forecast takes half a minute, so its sentences are checked without one
LAYERS = "Two layers: a second staircase"


@cache
def told(name):
    state = STATES[name]
    run = run_experiment(state.experiment(state.seed), progress=False, roomy=True)
    view = outline(state) if name == SLOW else theory_view(state)
    detail = detail_of(cut_down(run))
    return run, view, detail, detail.payload(view.prediction)["sentences"]


def number(words, pattern):
    found = re.search(pattern, words)
    return None if found is None else float(found.group(1))


@pytest.mark.parametrize("name", [n for n in STATES if n != LAYERS])
def test_the_sentence_is_true_at_every_time_of_a_run(quiet, name):
    run, view, detail, sentences = told(name)
    settled = run.experiment.training.steps is None and run.experiment.training.time is None
    rest = np.where(detail.gains[-1] > 0.3, detail.gains[-1], 1.0)
    done, sure = detail.gains / rest > 0.85, detail.gains / rest > 0.92
    loss, last = np.interp(detail.time, run.time, run.loss), 0
    fall = float(loss[0] - loss[-1])
    for t, now, yes, gain, value, words in zip(detail.time, done, sure, detail.gains, loss, sentences, strict=True):
        learned = counted(words)
        if learned is not None:
            assert yes.sum() <= learned <= now.sum(), (t, gain, words)
            assert learned >= last, (t, words)  # what is learned stays so
            last = learned
        if words.startswith("plateau"):
            assert number(words, r"plateau (\d+)") == learned + 1
            assert yes.sum() <= learned <= now.sum(), (t, gain, words)
            assert abs(value - plateau_of(detail.story, now, rest)) < 0.06 * fall, (t, value, words)
        if words.startswith("drop"):
            one = int(number(words, r"component (\d+) is")) - 1
            assert 0.04 * rest[one] < gain[one], (t, gain, words)
            assert yes.sum() - yes[one] <= number(words, r"drop (\d+)") - 1 <= now.sum(), (t, gain, words)
            assert not yes[one], (t, gain, words)
        if " at once" in words:
            named = [int(n) - 1 for n in re.findall(r"\d+", words.split(" are ")[0])]
            assert (gain[named] > 0.04 * rest[named]).all(), (t, gain, words)
        if words.startswith(("the end", "the heads are full")):
            assert settled
            assert value - loss[-1] < 0.06 * fall, (t, value, words)
        coming = number(words, r"(?:next drop|the drop comes) at t = ([\d.e+]+)")
        assert coming is None or coming > t * (1 - 1e-3), (t, words)
        said = number(words, r"predicted ([\d.e+]+)\)")
        assert said is None or np.isclose(view.drops, said, rtol=1e-3).any(), (t, words)


def counted(words):
    """How many components the sentence says are learned."""
    found = re.search(r"(\w+) of \w+ components learned", words)
    return 0 if "nothing learned" in words else None if found is None else WORDS.index(found.group(1))


def plateau_of(story, learned, rest):
    """The loss of the landscape with these components at rest."""
    d = story.directions
    s = learned * rest * d.strength
    return d.base - np.sum(2 * d.drive * s - d.curvature * s**2) / d.outputs


@pytest.mark.parametrize("name", [EARLY, "Fig. 3: saddle to saddle, smaller weights", "Short context", "Noisy labels"])
def test_the_drops_it_names_are_those_of_the_loss_curve(quiet, name):
    run, _, detail, sentences = told(name)
    observed = find_drops(run.time.values, run.loss.values).times
    order = np.sort(detail.story.drop_times)
    np.testing.assert_allclose(order, observed, rtol=1e-3)
    for t, words in zip(detail.time, sentences, strict=True):
        coming = number(words, r"next drop at t = ([\d.e+]+)")
        if coming is not None:
            following = observed[observed > t * (1 + 1e-4)][0]
            assert coming == pytest.approx(following, rel=2e-3), (t, words)
        if words.startswith("drop"):
            k = int(number(words, r"drop (\d+)"))
            assert abs(t / observed[k - 1] - 1) < 0.15, (t, observed, words)


def test_a_forecast_that_is_late_or_early_does_not_move_the_drop(quiet):
    """Between the predicted and the true time of a drop the sentence once pointed to the drop after it."""
    _, view, detail, _ = told(EARLY)
    true = np.sort(detail.story.drop_times)
    for factor in (0.9, 1.1):
        moved = view.prediction.moved(factor * view.prediction.drop_times)
        for t, words in zip(detail.time, detail.story.sentences(moved), strict=True):
            coming = number(words, r"next drop at t = ([\d.e+]+)")
            assert coming is None or coming == pytest.approx(true[true > t][0], rel=1e-3), (t, words)
    near = [w for t, w in zip(detail.time, detail.payload(None)["sentences"], strict=True) if 517 < t < 522]
    assert set(near) == {"drop 1 of 4: component 1 is being learned"}


@pytest.mark.parametrize("name", [n for n in STATES if n != SLOW])
def test_before_a_simulation_the_sentence_is_marked_as_theory(name):
    for words in {*theory_view(STATES[name]).sentences, *outline(STATES[name]).sentences}:
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
            assert words.startswith("drop")
            assert np.abs(np.log(t / observed[int(number(words, r"drop (\d+)")) - 1])) < 0.2


def test_decay_is_said_to_keep_components_from_being_learned(quiet):
    _, view, detail, sentences = told("Weight decay cuts the staircase off")
    never = [i + 1 for i in view.prediction.never]
    assert 0 < len(never) < 4
    assert re.findall(r"\d+", sentences[-1].split("keeps")[1]) == [str(i) for i in never]
    assert (np.abs(detail.gains[-1][[i - 1 for i in never]]) < 0.01).all()


@pytest.mark.parametrize("values", [{"log_lr": 1, "log_init": 0.3}, {"log_lr": 0.6, "log_init": -1}])
def test_a_run_that_went_wrong_says_so_in_words(quiet, values):
    state = State.read({"rule": "descent", "seeds": 1, **values})
    run = cut_down(run_experiment(state.experiment(0), progress=False, roomy=True))
    assert run.status in ("diverged", "unstable")
    sentences = detail_of(run).payload(None)["sentences"]
    assert re.match(r"training (has diverged|is unstable): ", sentences[-1])
    assert all(re.match(r"training (has diverged|is unstable)|this run diverges", words) for words in sentences)
    assert set(algorithms(run)) <= {"none, because training has diverged", "none, because training is unstable"}


def test_ripples_and_large_weights_are_no_plateaus():
    """A component that rises a little and falls back is not being learned; a loss off its level is no plateau."""
    from iclflow.config import Task
    from iclflow.theory.landscape import directions

    d, time = directions(Task(dim=2)), np.arange(6.0)
    gains = np.array([[0, 0], [0, 0.07], [0.5, 0.02], [1, 0], [1, 0.5], [1, 1.0]])
    loss = np.array([plateau_of_gains(d, g) for g in gains])
    story = Story(time, loss, gains, (time, loss), d, one_by_one=True, places=2)
    said = story.sentences()
    assert said[1].startswith("plateau 1 of 3")
    assert said[2] == "drop 1 of 2: component 1 is being learned"
    assert said[5] == "the end: two of two components learned"
    high = Story(time, loss + 0.2 * d.base, gains, (time, loss), d, one_by_one=True, places=2)
    assert high.sentences()[0].startswith("no plateau")


def plateau_of_gains(d, gains):
    s = gains * d.strength
    return d.base - np.sum(2 * d.drive * s - d.curvature * s**2) / d.outputs
