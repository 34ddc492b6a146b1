"""One training in a process of its own, so that import, sampling, compilation and memory are all counted.

Run as `python -m benchmarks.child` with the training as JSON on standard input; it answers in
one line of JSON.
"""

import time

BEGUN = time.perf_counter()

import json  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

__all__ = ["Outcome", "train_in_child"]


class Outcome(NamedTuple):
    """What a child reports."""

    importing: float  # seconds for the package and all it needs
    training: float  # seconds of `icl.train`, sampling and compilation included
    process: float  # seconds from start to exit, as the parent sees them
    peak: int  # largest resident memory, bytes
    status: str
    final_loss: float
    learned: int  # directions of the token covariance that the final weights hold


Settings = dict[str, Any]


def train_in_child(task: Settings, model: str, shape: Settings, settings: Settings) -> Outcome:
    """Train in a fresh interpreter and wait for it."""
    asked = json.dumps({"task": task, "model": model, "shape": shape, "settings": settings})
    begun = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.child"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True)
    process = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"the child failed: {done.stderr.strip().splitlines()[-1]}")
    return Outcome(process=process, **json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    asked = json.load(sys.stdin)
    import dask.array  # noqa: F401  (xarray loads it with its first array)
    import scipy.linalg
    import scipy.sparse.linalg  # noqa: F401  (both are loaded when the stable step is computed)

    import iclflow as icl

    train = icl.train  # imports JAX and the engines
    imported = time.perf_counter()
    task = icl.Task(**asked["task"])
    run = train(task, getattr(icl, asked["model"])(**asked["shape"]), progress=False, **asked["settings"])
    trained = time.perf_counter()
    report = {
        "importing": imported - BEGUN,
        "training": trained - imported,
        "peak": peak_resident(),
        "status": run.status,
        "final_loss": run.summary["final_loss"],
        "learned": directions_learned(task, run.final_weights),
    }
    print(json.dumps(report))


def peak_resident() -> int:
    """Largest resident set in bytes. `ru_maxrss` alone would not do: Linux lets a child inherit its parent's."""
    try:
        with open("/proc/self/status") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def directions_learned(task: Any, weights: dict[str, Any]) -> int:
    r"""How many eigenvectors have at least half of their final gain, $e_d' A e_d \ge a_d^\star / 2$."""
    import numpy as np

    from iclflow.data.spectrum import covariances

    if "key" not in weights or task.out_dim != 1:
        return -1
    dim, cov = task.dim, covariances(task)
    value, key, query = weights["value"][:, dim, dim], weights["key"][..., :dim], weights["query"][..., :dim]
    A = np.einsum("h,hra,hrb->ab", value, key, query)
    scale = {"context": 1.0, None: 1.0, "none": task.context, "tokens": task.context / (task.context + 1)}
    lam = cov.eigenvalues
    final = 1 / (lam + (lam + lam.sum()) / task.context) / scale[task.normalize]
    gain = np.einsum("ad,ab,bd->d", cov.basis, A, cov.basis)
    return int(np.sum(gain >= final / 2))


if __name__ == "__main__":
    main()
