"""Whatever a browser sends becomes a state that can be computed, shared and reproduced."""

import math
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iclflow as icl
from iclflow.experiment import Experiment
from iclflow.explorer.detail import cut_down
from iclflow.explorer.jobs import Forecast, Jobs
from iclflow.explorer.page import CONTROLS, EIGEN_IDS, control_values
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.state import CHOICES, RANGES, State
from iclflow.explorer.theory_view import theory_view
from iclflow.results.inputs import inputs_from_flat
from iclflow.theory.solve import Pace
from iclflow.training.cost import draw_seconds

ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.lists(st.floats(), max_size=20),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), st.sampled_from(["inf", "1e400", "-0", "free"]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*CONTROLS, "eigenvalues", "other"]), ANYTHING))
def test_anything_becomes_a_state_within_its_ranges(values):
    state = State.read(values)
    for name, (low, high) in RANGES.items():
        assert low <= getattr(state, name) <= high
    for name, allowed in CHOICES.items():
        assert getattr(state, name) in allowed
    assert state.rank <= state.dim
    assert len(state.eigenvalues) == (state.dim if state.spectrum == "free" else 0)
    assert isinstance(state.experiment(), Experiment)
    assert State.from_query(state.to_query()) == state
    assert (
        State.read(dict(zip(CONTROLS, control_values(state), strict=False)) | {"eigenvalues": state.eigenvalues})
        == state
    )


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_address_is_a_state(text):
    assert isinstance(State.from_query(text), State)


def flags_of(words):
    """The settings of a command; a flag without a value is a yes."""
    flags, name = {}, ""
    for word in words:
        name, flags = (word[2:].replace("-", "_"), flags) if word.startswith("--") else (name, flags)
        flags[name] = True if word.startswith("--") else word
    return flags


@pytest.mark.parametrize("name", PRESETS)
def test_the_command_and_the_python_are_the_run_on_screen(name):
    state = PRESETS[name]
    words = shlex.split(state.command())
    assert words[:2] == ["iclflow", "train"]
    flags = flags_of(words[2:])
    wanted = state.experiment()
    assert inputs_from_flat(flags).experiment == wanted
    names: dict = {}
    code = state.python().replace("icl.train(", "dict(").replace("task, model, ", "a=task, b=model, ")
    code = code.replace("icl.compare(run)", "")
    exec(code, names)
    assert (names["run"].pop("a"), names["run"].pop("b")) == (wanted.task, wanted.model)
    assert wanted.training == wanted.training.replace(**names["run"])


def test_what_the_page_simulates_is_what_training_gives(quiet):
    state = State.read({"dim": 3, "heads": 3, "log_init": -1, "seeds": 2, "seed": 4})
    jobs = Jobs()
    job = begin(jobs, "me", state)
    wait(job)
    run = icl.train(icl.Task(dim=3), icl.Separate(heads=3), init=0.1, seed=4, seeds=2)
    for seed, seen in zip(run.seeds, job.seeds, strict=True):
        one = run.select(seed)
        inside = np.array(seen["time"]) <= one.time.values[-1]
        there = np.interp(np.array(seen["time"])[inside], one.time.values, one.loss.values)
        assert np.abs(there - np.array(seen["loss"])[inside]).max() < 2e-3  # both are thinned curves
        assert seen["loss"][-1] == pytest.approx(float(one.loss[-1]), abs=1e-4)
    assert job.detail.learned[-1] == 3
    assert job.detail.algorithms[-1] == "least squares, shrunk"
    assert job.detail.algorithms[0] == "predicts nothing"
    jobs.close()


def test_the_next_change_drops_the_last_one(quiet):
    jobs = Jobs(workers=1)
    slow = jobs.show("me", State.read({"dim": 12, "heads": 20, "log_init": -4, "seeds": 20}))
    quick = jobs.show("me", State.read({"model": "merged", "dim": 2, "log_init": -1, "seeds": 1}))
    wait(quick)
    assert slow.dropped
    assert slow.done
    assert len(slow.seeds) < 20
    assert jobs.show("me", quick.state) is quick
    assert jobs.show("you", quick.state) is not quick
    jobs.close()


def test_theory_of_a_state_that_is_left_stops_where_it_is(quiet, monkeypatch):
    """It once went on for a minute, and the next state waited behind it."""
    import time

    def endless(state):
        while True:
            Pace().judged(1.0, 0.5)  # what every solver of theory asks at every step

    monkeypatch.setattr("iclflow.explorer.jobs.theory_view", endless)
    forecast = Forecast(State())
    time.sleep(0.1)
    assert forecast.thread.is_alive()
    assert not forecast.view().complete
    forecast.drop()
    forecast.thread.join(20)
    assert not forecast.thread.is_alive()


def test_a_page_that_nobody_looks_at_stops_working(quiet, monkeypatch):
    monkeypatch.setattr("iclflow.explorer.jobs.ABANDONED", 0.3)
    jobs = Jobs(workers=1)
    left = wait(begin(jobs, "gone", State.read({"dim": 12, "heads": 20, "log_init": -4, "seeds": 20})), looking=False)
    assert len(left.seeds) < 20
    assert not left.dropped
    jobs.close()


def test_going_back_costs_nothing(quiet):
    jobs = Jobs()
    state = State.read({"model": "merged", "dim": 2, "log_init": -1, "seeds": 2})
    first = wait(begin(jobs, "me", state))
    again = wait(begin(jobs, "you", state))
    assert again.seeds == first.seeds
    assert len(jobs.cache) == 2
    jobs.close()


def begin(jobs, name, state):
    return jobs.show(name, state)


def wait(job, seconds=120.0, looking=True):
    """As the page does, which asks all the time, unless nobody is looking."""
    import time

    end = time.monotonic() + seconds
    while not job.done:
        assert time.monotonic() < end
        job.asked = time.monotonic() if looking else job.asked
        time.sleep(0.01)
    return job


def test_a_large_sample_is_known_to_take_long():
    cheap, dear = (State.read({"data": "sample", "dim": d, "log_samples": 5, "context": 64}) for d in (3, 16))
    assert draw_seconds(cheap.experiment()) < 4 < draw_seconds(dear.experiment())
    assert cheap.rule == "descent"


def test_theory_is_there_where_there_is_one_and_says_why_not_elsewhere():
    state = State.read({"log_init": -3})
    view = theory_view(state)
    expected = icl.predict(icl.Task(), icl.Separate(heads=5), init=1e-3)
    np.testing.assert_array_equal(view.drops, expected.drop_times)
    np.testing.assert_allclose(view.levels, icl.theory.plateau_losses(icl.Task()))
    tied = theory_view(State.read({"spectrum": "white"}))
    assert tied.prediction is not None or tied.note
    assert math.isfinite(float(tied.levels[0]))


def test_every_free_eigenvalue_has_a_control():
    assert len(EIGEN_IDS) == RANGES["dim"][1]


def test_the_same_state_is_the_same_job(quiet):
    jobs = Jobs(workers=1)
    state = State.read({"model": "merged", "dim": 2, "log_init": -1, "seeds": 1})
    job = jobs.show("me", state)
    assert jobs.show("me", State.from_query(state.to_query())) is job
    assert not job.dropped
    jobs.leave("me")
    assert job.dropped
    jobs.close()


def test_the_last_seeds_are_not_taken_for_each_other(quiet):
    jobs = Jobs(workers=1)
    state = State.read({"model": "merged", "dim": 2, "log_init": -1, "seeds": 2, "seed": 10_000})
    one, two = wait(begin(jobs, "me", state)).seeds
    assert one["loss"] != two["loss"]
    jobs.close()


@pytest.mark.parametrize("values", [{"log_init": 0.5}, {"heads": 20, "log_init": 0.2}, {"normalize": "none"}])
def test_theory_of_large_weights_is_finite_or_says_why_there_is_none(values):
    view = theory_view(State.read({"log_init": 0, **values}))
    assert np.isfinite(view.time).all()
    assert (view.time > 0).all()
    assert view.loss is None or np.isfinite(view.loss).all()
    assert view.note


def test_a_run_that_diverged_is_called_so(quiet):
    jobs = Jobs(workers=1)
    job = wait(begin(jobs, "me", State.read({"rule": "descent", "log_lr": 1, "log_init": 0.3, "seeds": 1})))
    assert job.seeds[0]["status"] == "diverged"
    assert "diverged" in job.words
    assert "exceeds the stable step" in job.words
    jobs.close()


def test_what_is_kept_of_a_run_is_small(quiet):
    run = icl.train(icl.Task(dim=8), icl.Separate(heads=20, rank=8), init=0.3, lr=0.01, steps=2000)
    small = cut_down(run)
    numbers = sum(array.size for array in small.weights.values())
    assert numbers < 250_000 < sum(array.size for array in run.weights.values())
    assert len(small.loss) <= 400
    assert float(small.loss[-1]) == float(run.loss[-1])


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({"optimizer": "momentum", "log_lr": -1.5}, {"optimizer": "momentum", "lr": 0.032}),
        ({"optimizer": "adam", "log_lr": 0, "log_length": 3}, {"optimizer": "adam", "lr": 0.01, "steps": 1000}),
        ({"optimizer": "muon", "log_lr": -2.5, "log_length": 3}, {"optimizer": "muon", "lr": 0.0032, "steps": 1000}),
        ({"log_decay": -2, "log_length": 3}, {"weight_decay": 0.01, "time": 1000.0}),
        (
            {"layers": 2, "log_lr": -1, "log_length": 2, "data": "sample"},
            {"freeze_vectors": True, "gram_samples": 256, "lr": 0.1, "steps": 100},
        ),
    ],
)
def test_optimiser_decay_and_layers_are_those_of_training(quiet, values, settings):
    state = State.read({"dim": 3, "heads": 3, "log_init": -1, "seeds": 1, **values})
    jobs = Jobs(workers=1)
    seen = wait(begin(jobs, "me", state)).seeds[0]
    model = icl.Separate(heads=3, layers=values.get("layers", 1))
    run = icl.train(icl.Task(dim=3), model, init=0.1, **settings)
    assert seen["loss"][-1] == pytest.approx(float(run.loss[-1]), abs=1e-4)
    assert seen["time"][-1] == pytest.approx(float(run.time[-1]), rel=1e-3)
    jobs.close()


def test_several_layers_are_for_small_dimensions_only():
    assert State.read({"layers": 3, "dim": 3}).layers == 3
    assert State.read({"layers": 3, "dim": 4}).layers == 1
    deep = State.read({"layers": 2, "dim": 2, "heads": 20, "data": "sample", "normalize": "tokens"})
    assert (deep.heads, deep.data, deep.normalize, deep.rule) == (6, "population", "context", "descent")


def test_the_notes_of_a_forecast_are_on_the_page():
    tied = theory_view(State.read({"spectrum": "white"}))
    assert tied.loss is not None or tied.note
    large = theory_view(State.read({"log_init": 0.0, "heads": 20}))
    assert "not small" in large.note
    adam = theory_view(State.read({"optimizer": "adam", "log_lr": -2.5}))
    assert adam.loss is None
    assert "no staircase to predict" in adam.note
    assert adam.clock == "learning rate × step"
    never = theory_view(State.read({"log_decay": -1}))
    assert "no drop comes" in never.note
