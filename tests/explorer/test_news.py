"""A page is sent what is new, once."""

import time
from concurrent.futures import Future

import pytest
from dash import no_update

from iclflow.explorer.callbacks import NEWS, news, sent_of
from iclflow.explorer.jobs import Client, Jobs
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import theory_view

LARGE = ("loss", "gains", "values", "theory", "detail")


@pytest.fixture
def jobs():
    jobs = Jobs()
    yield jobs
    jobs.close()


def simulated(jobs: Jobs, state: State):
    """A job that is done while its forecast is still to come."""
    forecast: Future = Future()
    job = jobs.start(Client(), 0, state, forecast)
    end = time.monotonic() + 60
    while not job.done:
        assert time.monotonic() < end, job.words
        time.sleep(0.02)
    return job, forecast


def sent(answer: dict) -> set[str]:
    return {name for name in NEWS if answer[name] is not no_update}


def test_what_the_page_has_is_not_sent_again(jobs):
    state = State(seeds=1, log_init=-0.5, dim=2, heads=2)
    job, forecast = simulated(jobs, state)
    first = news(job, sent_of(job, None), True, False)
    assert {"loss", "gains", "values", "detail"} <= sent(first)
    assert len(first["detail"]["algorithms"]) == len(job.detail.time)
    assert not first["sent"]["everything"]  # theory is to come
    again = news(job, sent_of(job, first["sent"]), True, False)
    assert not sent(again) & set(LARGE)
    assert again["sent"] == first["sent"]
    forecast.set_result(theory_view(state))
    last = news(job, sent_of(job, again["sent"]), True, False)
    assert set(LARGE) <= sent(last)
    assert last["sent"]["everything"]
    assert not sent(news(job, sent_of(job, last["sent"]), True, False)) & set(LARGE)


def test_algorithms_that_come_after_the_curve_are_sent(jobs):
    job, _ = simulated(jobs, State(seeds=1, log_init=-0.5, dim=2, heads=2))
    named, job.algorithms = job.algorithms, None
    before = news(job, sent_of(job, None), True, False)
    assert before["detail"]["algorithms"] == []
    job.algorithms = named
    after = news(job, sent_of(job, before["sent"]), True, False)
    assert after["detail"]["algorithms"] == named
    assert sent(after) & set(LARGE) == {"detail"}


WHOLE = {"token": "TOKEN", "seeds": 1, "forecast": True, "algorithms": True, "everything": True}


@pytest.mark.parametrize("said", [None, {}, "x", [1], WHOLE | {"token": "other"}, WHOLE | {"seeds": "1"}])
def test_a_page_that_says_nothing_useful_gets_everything(jobs, said):
    job, _ = simulated(jobs, State(seeds=1, log_init=-0.5, dim=2, heads=2))
    mine = lambda said: said | {"token": job.token} if isinstance(said, dict) and said.get("token") == "TOKEN" else said
    assert sent_of(job, mine(said)) == (job.token, 0, False, False, False)
    assert sent_of(job, mine(WHOLE)) == (job.token, 1, True, True, True)
