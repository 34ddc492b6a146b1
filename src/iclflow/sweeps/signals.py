"""SIGTERM stops a session as Ctrl-C does, and one of either is enough."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from iclflow.errors import IclflowError

__all__ = ["Stopped", "stopped_by_signals"]


class Stopped(IclflowError):
    """A signal ended the session."""

    exit_code = 130


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Both signals raise `KeyboardInterrupt` in the main thread, the only one they reach."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not cut the tidying short
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
