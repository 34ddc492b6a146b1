"""A page is sent what is new, once."""

import threading
import time

import pytest
from dash import no_update

from iclflow.explorer.callbacks import NEWS, news, sent_of
from iclflow.explorer.jobs import Jobs
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import theory_view

LARGE = ("loss", "gains", "values", "theory", "detail")
STATE = State(seeds=1, log_init=-0.5, dim=2, heads=2)
AXES = ["time"]


@pytest.fixture
def late(monkeypatch):
    """A job that is done while its forecast is still to come, and what lets the forecast come."""
    go, jobs = threading.Event(), Jobs()
    monkeypatch.setattr("iclflow.explorer.jobs.theory_view", lambda state: go.wait(60) and theory_view(state))
    job = jobs.show("me", STATE)
    end = time.monotonic() + 100
    while not job.done:
        assert time.monotonic() < end, job.words
        job.asked = time.monotonic()
        time.sleep(0.02)
    yield job, go
    go.set()
    jobs.close()


def sent(answer: dict) -> set[str]:
    return {name for name in NEWS if answer[name] is not no_update}


def test_what_the_page_has_is_not_sent_again(late):
    job, go = late
    first = news(job, sent_of(job, None), AXES)
    assert set(LARGE) <= sent(first)
    assert len(first["detail"]["algorithms"]) == len(job.detail.time)
    assert not first["sent"]["everything"]  # theory is to come
    again = news(job, sent_of(job, first["sent"]), AXES)
    assert not sent(again) & set(LARGE)
    assert again["sent"] == first["sent"]
    go.set()
    job.forecast.future.result(60)
    last = news(job, sent_of(job, again["sent"]), AXES)
    assert set(LARGE) <= sent(last)
    assert last["sent"]["everything"]
    assert not sent(news(job, sent_of(job, last["sent"]), AXES)) & set(LARGE)


WHOLE = {"token": "TOKEN", "seeds": 1, "forecast": True, "stage": 2, "everything": True}


def test_a_page_that_says_nothing_useful_gets_everything(late):
    job, _ = late
    for said in (None, {}, "x", [1], WHOLE, WHOLE | {"token": job.token, "seeds": "1"}):
        assert sent_of(job, said) == (job.token, 0, False, 0, False)
    assert sent_of(job, WHOLE | {"token": job.token}) == (job.token, 1, True, 2, True)
