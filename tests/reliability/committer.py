"""Serves commits of run 0 of a store, so that a test can strike them anywhere.

Tracers count calls thread by thread, so zarr gets a single thread for its files, and that thread is there before the
commit begins.
"""

import os
import signal
from pathlib import Path

import numpy as np
import zarr

from iclflow.sweeps.store.protocol import open_store
from reliability.strikes import serve


def commit(path: Path) -> None:
    zarr.config.set({"threading.max_workers": 1})
    store = open_store(path)
    for name in store.names:
        _ = store.array(name)[0]  # starts zarr's threads
    os.kill(os.getpid(), signal.SIGSTOP)
    rows = {name: np.full(store.shape(name)[1:], 7.0) for name in store.names}
    store.commit(0, rows, {"status": "ok", "why": "", "seconds": 0.0, "config": {}})


def main() -> None:
    serve(commit)


if __name__ == "__main__":
    main()
