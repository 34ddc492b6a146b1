"""Signals between and during runs: none is lost, and none cuts the tidying short."""

import os
import signal

import pytest

import iclflow as icl
from iclflow.sweeps import sweep
from iclflow.sweeps.workers.signals import Stopped, stopped_by_signals, tidying_when_stopped

GRID = {"base": {"model": "merged", "heads": 2, "dim": 2, "context": 5, "lr": 0.1, "steps": 5, "samples": 30}}


class Swallowing:
    """Python throws away what a destructor raises."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_destructor_swallowed_still_stops_the_session(tmp_path, monkeypatch):
    plain = sweep.reporting

    def reporting(*arguments):
        Swallowing()
        return plain(*arguments)

    monkeypatch.setattr(sweep, "reporting", reporting)
    with pytest.raises(Stopped, match="0 of 3 runs are done"):
        icl.sweep({**GRID, "seeds": 3}, tmp_path / "s", workers=0)


def test_a_second_signal_is_heard_until_the_first_has_been_caught():
    heard = []
    with stopped_by_signals():
        for _ in range(2):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:  # swallowed by somebody else
                heard.append("again")
        with pytest.raises(KeyboardInterrupt), tidying_when_stopped():
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # while tidying: nothing is raised
        heard.append("tidied")
    assert heard == ["again", "again", "tidied"]


def interrupted_import():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise TypeError("expected a message argument") from None


def test_a_signal_that_became_another_error_is_still_a_signal():
    """An import that is interrupted can end with a `TypeError`; without a signal an error stays what it is."""
    with pytest.raises(KeyboardInterrupt), stopped_by_signals():
        interrupted_import()
    with pytest.raises(TypeError), stopped_by_signals():
        raise TypeError("of its own")
