"""A bar for long work on a terminal, nothing elsewhere unless asked."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Report", "progress_bar", "silent"]

Report = Callable[[float, str], None]  # share done (0 to 1), a few words
PATIENCE = 1.0  # seconds before a bar appears


def silent(share: float, words: str) -> None:
    """Report to nobody."""


@contextmanager
def progress_bar(what: str, show: bool | Report | None = None) -> Iterator[Report]:
    """A bar that appears after a second; `show` None means: only if standard error is a terminal.

    A function in place of true or false is told instead.
    """
    if callable(show):
        yield show
        return
    if not (sys.stderr.isatty() if show is None else show):
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        handle = bar.add_task(what, total=1.0, words="", visible=False)
        start = time.monotonic()

        def report(share: float, words: str) -> None:
            bar.update(handle, completed=share, words=words, visible=time.monotonic() - start > PATIENCE)

        yield report
