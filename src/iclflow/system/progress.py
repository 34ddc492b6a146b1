"""Progress of long work: a bar on a terminal or in a notebook, plain lines where asked for, otherwise nothing.

In a notebook the bar is a line of HTML that is replaced as work goes on and cleared at its end; it needs no widgets.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

__all__ = ["Report", "duration", "has_bar", "plain_lines", "progress_bar", "silent"]

Report = Callable[[float, str], None]  # called with the share that is done (0 to 1) and a short message
PATIENCE = 1.0  # seconds before a bar appears
EVERY = 10.0  # seconds between plain lines
REFRESH = 0.2  # seconds between changes of the bar in a notebook


def silent(share: float, words: str) -> None:
    """Ignore all reports."""


@contextmanager
def progress_bar(what: str, show: bool | Report | None = None, lines: bool = False) -> Iterator[Report]:
    """A function to report progress to while the block runs.

    Args:
        what: a word in front of the bar.
        show: True shows a bar, None only on a terminal or in a notebook; a function receives the reports instead.
        lines: where no bar is shown, print a plain line every few seconds and one at the end.
    """
    if callable(show):
        yield show
    elif show is False or (show is None and not lines and not has_bar()):
        yield silent
    elif show is None and not has_bar():
        yield plain_lines()
    else:
        with notebook_bar(what) if in_notebook() else bar(what) as report:
            yield report


def has_bar() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this program."""
    shell = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and shell is not None and shell.get_ipython() is not None


def plain_lines(at_the_end: bool = True) -> Report:
    """Print messages on standard error, one every few seconds and, unless told otherwise, one at the end."""
    last = time.monotonic()

    def report(share: float, words: str) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY or (share >= 1 and at_the_end):
            last = time.monotonic()
            print(words, file=sys.stderr, flush=True)

    return report


@contextmanager
def bar(what: str) -> Iterator[Report]:
    """A progress bar on standard error, which appears after a second."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    message = TextColumn("{task.fields[words]}")
    columns = (TextColumn("{task.description}"), BarColumn(), message, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        handle = progress.add_task(what, total=1.0, words="", visible=False)
        start = time.monotonic()

        def report(share: float, words: str) -> None:
            progress.update(handle, completed=share, words=words, visible=time.monotonic() - start > PATIENCE)

        yield report


@contextmanager
def notebook_bar(what: str) -> Iterator[Report]:
    """A progress bar in the output of a cell, which appears after a second and leaves nothing behind."""
    from IPython.display import HTML, display

    start = last = time.monotonic()
    shown = None

    def report(share: float, words: str) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - start < PATIENCE or now - last < REFRESH:
            return
        last = now
        page = HTML(f"{escape(what)} <progress value='{share:.4f}' max='1'></progress> {escape(words)}")
        if shown is None:
            shown = display(page, display_id=True)
        else:
            shown.update(page)

    try:
        yield report
    finally:
        if shown is not None:
            shown.update(HTML(""))


def duration(seconds: int | float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
