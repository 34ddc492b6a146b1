"""Commits run 0 of a store in a fresh child for every line on standard input, so that a test can strike it anywhere.

The child stops itself before it begins; a test attaches to one of its threads, then lets it go on. Tracers count calls
thread by thread, so zarr gets a single thread for its files, and that thread is there before the commit begins.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import zarr

from iclflow.sweeps.store.protocol import open_store


def commit(path: Path) -> None:
    zarr.config.set({"threading.max_workers": 1})
    store = open_store(path)
    for name in store.names:
        _ = store.array(name)[0]  # starts zarr's threads
    os.kill(os.getpid(), signal.SIGSTOP)
    rows = {name: np.full(store.shape(name)[1:], 7.0) for name in store.names}
    store.commit(0, rows, {"status": "ok", "why": "", "seconds": 0.0, "config": {}})


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                commit(Path(line.strip()))
            except OSError as error:
                os._exit(error.errno or 1)
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
