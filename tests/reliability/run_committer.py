"""Serves what `iclflow train --overwrite`, or `--resume`, does with the directory of a run once it is trained.

The first argument is the directory of the run that is written.
"""

import os
import signal
import sys
from pathlib import Path

from iclflow.results.loading import load_run
from iclflow.results.writing import add_picture, write_run, writing
from reliability.strikes import serve

PICTURE = b"%PDF of the new run"


def main() -> None:
    run = load_run(sys.argv[1])

    def commit(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        with writing(path, overwrite=True):
            write_run(run, path)
            add_picture(path, PICTURE)

    serve(commit)


if __name__ == "__main__":
    main()
