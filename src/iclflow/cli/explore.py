"""`iclflow explore`: the page in the browser."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from iclflow.cli.parameters import named, switch
from iclflow.errors import BadInput

__all__ = ["explore"]


def explore(
    directory: Annotated[str | None, Parameter(help="saved runs and sweeps to show as well, read only")] = None,
    /,
    *,
    port: Annotated[str, named("INT", "on 127.0.0.1; 0 takes a free one")] = "8050",
    browser: Annotated[bool, switch("open the page [default: yes]", off="--no-browser")] = True,
) -> None:
    """Explore theory and simulation in a browser, on this machine only.

    Example: iclflow explore runs --port 8050
    """
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise BadInput(f"port: {port!r} must be a whole number from 0 to 65535")
    saved = None if directory is None else Path(directory)
    if saved is not None and not saved.is_dir():
        raise BadInput(f"directory: {directory!r} must be a directory with saved runs or sweeps")
    try:
        from iclflow.explorer.server import serve
    except ModuleNotFoundError as missing:
        if missing.name != "dash":
            raise
        raise BadInput("explore: needs the package dash; pip install 'iclflow[explore]'") from None

    def opened(url: str) -> None:
        print(f"{url} (Ctrl-C stops it)", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(url)

    try:
        serve(int(port), saved, opened)
    except (OSError, SystemExit) as error:  # werkzeug exits by itself when the port is taken
        if isinstance(error, OSError) and error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise BadInput(f"port: {port} is taken or not allowed; choose another, or 0 for a free one") from None
    # A thread inside XLA cannot be interrupted, and a normal exit would abort around it; there is nothing to save.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
