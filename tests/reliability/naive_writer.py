"""A sweep as one might write it in a hurry: one file with all results, written anew after every run.

Only here to show that the harness sees losses where there are some.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np


def results(path: Path) -> dict[str, np.ndarray]:
    with (path / "results.npz").open("rb") as handle, np.load(handle) as file:
        return {name: file[name] for name in file.files}


def result(run: int) -> np.ndarray:
    return np.random.default_rng(run).standard_normal(20_000)


def digest(run: int) -> str:
    return hashlib.sha256(result(run).tobytes()).hexdigest()


def main(path: Path, runs: int) -> None:
    path.mkdir(exist_ok=True)
    try:
        done = results(path)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        done = {}  # "it was probably the first time"
    for run in range(runs):
        if f"run{run}" not in done:
            done[f"run{run}"] = result(run)
            np.savez(path / "results.npz", **done)
            print(run, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
