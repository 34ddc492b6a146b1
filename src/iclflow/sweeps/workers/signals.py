"""SIGTERM stops a session as Ctrl-C does, and a single signal is enough.

A signal raises `KeyboardInterrupt` wherever the main thread happens to be. If that is in a destructor, Python discards
the exception, and in the middle of an import it can become another one; therefore the signal is also recorded, and the
session checks the record between two runs and when an error ends it.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from iclflow.errors import IclflowError

__all__ = ["Stopped", "raise_if_stopped", "stopped_by_signals", "tidying_when_stopped"]

BOTH = (signal.SIGINT, signal.SIGTERM)


class Stopped(IclflowError):
    """A signal ended the session."""

    exit_code = 130


class SignalState:
    """The signals that the main thread has received; no other thread receives any."""

    asked = False  # to stop
    tidying = False  # the session is shutting down, which further signals must not interrupt


def stop(number: int, frame: FrameType | None) -> None:
    """The handler of both signals."""
    SignalState.asked = True
    if not SignalState.tidying:
        raise KeyboardInterrupt


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Both signals raise `KeyboardInterrupt` in the main thread."""
    if not in_main_thread() or signal.getsignal(signal.SIGINT) is stop:
        yield
        return
    SignalState.asked = SignalState.tidying = False
    before = {number: signal.signal(number, stop) for number in BOTH}
    try:
        yield
    except IclflowError:
        raise
    except Exception as error:
        raise_if_stopped(error)
        raise
    finally:
        SignalState.asked = SignalState.tidying = False
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_stopped(instead: Exception | None = None) -> None:
    """Stop now if a signal has asked for it, even if its exception was lost or something made another one of it."""
    if SignalState.asked and in_main_thread():
        raise KeyboardInterrupt from instead


@contextlib.contextmanager
def tidying_when_stopped() -> Iterator[None]:
    """Once a `KeyboardInterrupt` passes through here, further signals are only recorded."""
    try:
        yield
    except KeyboardInterrupt:
        SignalState.tidying = SignalState.tidying or in_main_thread()
        raise


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
