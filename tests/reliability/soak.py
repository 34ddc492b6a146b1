"""Many runs in this one process; prints how much memory it holds, every so many runs."""

import sys
from pathlib import Path

from iclflow.sweeps.store.protocol import make_store
from iclflow.sweeps.sweep import grid_of
from iclflow.sweeps.workers.tasks import do_run


def resident() -> int:
    """Kilobytes of this process that are in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def main(file: str, path: Path, every: int) -> None:
    grid = grid_of(file)
    path.mkdir()
    store = make_store(path, grid)
    for run in range(grid.count):
        assert do_run(str(path), store.digest, run, "soak")["status"] == "ok"
        if (run + 1) % every == 0:
            print(resident(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
