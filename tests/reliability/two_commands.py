"""Two commands of the program at once: children of a process that has imported what they need.

Every line on standard input is the two commands and the seconds between them.
"""

import json
import os
import sys
import time
from pathlib import Path

import iclflow.cli.commands
import iclflow.comparison.summary
import iclflow.training.start  # noqa: F401
from iclflow.cli import main


def command(arguments: list[str], errors: Path) -> int:
    """A child that does one command; returns its number."""
    child = os.fork()
    if child != 0:
        return child
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    try:
        main(arguments)
    except SystemExit as left:
        os._exit(left.code)
    finally:
        os._exit(99)


def both(first: list[str], second: list[str], between: float, folder: Path) -> list[tuple[int, str]]:
    """Exit code and errors of each."""
    errors = [folder / "first", folder / "second"]
    one = command(first, errors[0])
    time.sleep(between)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (one, command(second, errors[1]))]
    return [(code, file.read_text()) for code, file in zip(codes, errors, strict=True)]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(both(*json.loads(line), Path(sys.argv[1]))), flush=True)
